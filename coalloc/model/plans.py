"""The strategies, and the plan for the transfer of a file. No behaviour, no I/O.

Sizes are bytes, times seconds.
"""

from typing import Literal, NamedTuple

from coalloc.model.checksums import Checksum
from coalloc.model.forecasts import Estimate
from coalloc.model.promises import DeadlineView
from coalloc.model.routes import PlannedRoute

__all__ = ["Plan", "PlannedShare", "Strategy"]

Strategy = Literal["single", "brute", "history", "conservative", "aggressive", "adaptive"]
"""Names of the co-allocation strategies."""


class PlannedShare(NamedTuple):
    """The expected part of one source. `error` is the reason why the source would not be used.

    `routes` are its routes if depots may be used, the first one first; else empty.
    """

    url: str
    bytes: int
    fraction: float
    estimate: Estimate
    priority: int | None = None
    error: str | None = None
    routes: tuple[PlannedRoute, ...] = ()


class Plan(NamedTuple):
    """The plan for the transfer of one file now. `seconds` is the expected duration, None if no rate is known.

    In four of five cases, the duration should be within `bounds`, in seconds; None if no source's bounds are known.
    `deadline` is the outlook for the deadline that the user gave, and `needed` the number of sources, the first ones,
    with which its transfer would begin; None without a deadline, or if no rate is known.
    """

    name: str
    size: int
    strategy: str
    seconds: float | None
    rationale: str
    shares: tuple[PlannedShare, ...]
    checksums: tuple[Checksum, ...] = ()
    bounds: tuple[float, float] | None = None
    deadline: DeadlineView | None = None
    needed: int | None = None
