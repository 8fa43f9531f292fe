"""Collections in virtual time: a method over a network in which flows share links max-min fairly. Pure.

It lies beside the methods that it drives, not in the planner, which knows nothing of them; and not among the tests, as
what a plan would do hop by hop is of use to people, too. There is no TCP in it: no slow start, no losses, no delay.
"""

from coalloc.staging.simulation.carrier import Carrier
from coalloc.staging.simulation.happenings import Break, Capacity, Happening, Kill, Rate, Share
from coalloc.staging.simulation.record import Hop, Record
from coalloc.staging.simulation.simulator import simulate
from coalloc.staging.simulation.underlay import Route, Stream, Underlay

__all__ = [
    "Break",
    "Capacity",
    "Carrier",
    "Happening",
    "Hop",
    "Kill",
    "Rate",
    "Record",
    "Route",
    "Share",
    "Stream",
    "Underlay",
    "simulate",
]
