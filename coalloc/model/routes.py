"""Routes to servers, direct or over depots, and the state of network paths. No behaviour, no I/O.

Sizes are bytes, times seconds.
"""

from typing import NamedTuple

__all__ = ["DIRECTLY", "PathState", "PlannedRoute", "RouteUse"]


class PathState(NamedTuple):
    """The state of the network path of a source's data, over all its connections.

    `rtt` is the longest current round-trip time in seconds, including queues; `disordered` is the number of packets so
    far that arrived out of order, as an earlier packet was lost or late.
    """

    rtt: float
    disordered: int = 0


DIRECTLY = "none"
"""Text of the direct route, as for `coget --via`."""


class RouteUse(NamedTuple):
    """The part of one route to a server in one transfer.

    :param route: depots, as for `coget --via`; "none" for the direct route
    :param seconds: time in which its sessions fetched
    :param opening_seconds: time until its first session was ready
    :param beginning: number of its first bytes, about 1 MiB if so many came
    :param beginning_seconds: time from the first request until these had arrived
    """

    route: str
    bytes: int
    seconds: float
    sessions: int
    opening_seconds: float
    beginning: int
    beginning_seconds: float


class PlannedRoute(NamedTuple):
    """A route to a server: its depots, as for `coget --via`, and the expected seconds of a file of 1 MiB if known."""

    route: str
    seconds: float | None
