"""Simulation of collect jobs in virtual time: a method over a network whose flows share links max-min fairly. Pure.

It is not part of the planner, because the planner does not import methods, nor of the tests, because users can simulate
a plan hop by hop. It has no model of TCP: no slow start, no losses, no delay.
"""

from coalloc.collect.simulation.carrier import SimulatedCarrier
from coalloc.collect.simulation.simulator import SimulatedHop, SimulationRecord, simulate
from coalloc.collect.simulation.underlay import (
    Break,
    Capacity,
    FluidStream,
    Happening,
    Kill,
    Rate,
    RateShare,
    Route,
    Underlay,
)

__all__ = [
    "Break",
    "Capacity",
    "FluidStream",
    "Happening",
    "Kill",
    "Rate",
    "RateShare",
    "Route",
    "SimulatedCarrier",
    "SimulatedHop",
    "SimulationRecord",
    "Underlay",
    "simulate",
]
