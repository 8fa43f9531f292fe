"""The current state of a transfer, for displays. No behaviour, no I/O.

Sizes are bytes, rates bytes per second, times seconds.
"""

from typing import Literal, NamedTuple

from coalloc.model.promises import DeadlineView, RateView

__all__ = ["Phase", "Snapshot", "SourceState", "SourceView"]

SourceState = Literal["connecting", "idle", "fetching", "stalled", "waiting", "pausing", "dropped"]
Phase = Literal["connecting", "fetching", "verifying", "done"]


class SourceView(NamedTuple):
    """The current state of one source for a display. `share` is its share of the arrived bytes, from 0 to 1."""

    url: str
    state: SourceState
    rate: float = 0.0
    bytes: int = 0
    share: float = 0.0
    error: str | None = None


class Snapshot(NamedTuple):
    """The current state of a transfer. `size` is None until the first server has answered.

    In nine of ten cases, the remaining seconds should be within `eta_bounds`. `warnings` are all warnings so far that
    the deadline or the promised rate may not be kept.
    """

    name: str
    phase: Phase
    seconds: float
    done_bytes: int = 0
    resumed_bytes: int = 0
    size: int | None = None
    rate: float = 0.0
    eta_seconds: float | None = None
    sources: tuple[SourceView, ...] = ()
    eta_bounds: tuple[float, float] | None = None
    deadline: DeadlineView | None = None
    warnings: tuple[DeadlineView | RateView, ...] = ()
    reading: RateView | None = None
