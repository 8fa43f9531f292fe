"""The decisions of a co-allocation strategy: shares at the start, and the next step of a source without work."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple

from coalloc.schedule.sources import RunningCopy, ScheduledSource
from coalloc.schedule.state import State

__all__ = ["Choice", "Policy", "Race", "Role", "Steal", "Take"]

Shares = dict[int, list[tuple[int, int]]]


class Take(NamedTuple):
    """Fetch those bytes of [start, end) that are not final. They are unassigned, or in the source's own share."""

    start: int
    end: int


class Steal(NamedTuple):
    """Take over the last `nbytes` that source `victim` still has to deliver."""

    victim: int
    nbytes: int


class Race(NamedTuple):
    """Fetch all missing bytes of partial copy `copy` a second time; the copy that delivers them first wins."""

    copy: int


Choice = Take | Steal | Race
Role = Literal["needed", "reserve", "spare"]
"""Role of a source without work: it may get work soon, it is to replace one that fails, or it is not needed now."""


class Policy(ABC):
    """One strategy. `patience` is the time in seconds that the start waits for sources that have not answered."""

    name: ClassVar[str]
    patience: ClassVar[float] = 0.0
    watches_idle: ClassVar[bool] = False
    """Whether `choose` is called for idle sources at intervals, not only after events."""
    rebalances: ClassVar[bool] = False
    """Whether other sources take over the bytes that a slow source has not delivered."""
    widens: bool = False
    """Whether a source may get more parallel streams during the transfer."""

    def shares(self, state: State, now: float) -> Shares:
        """Return the ranges reserved for each source at the start; all other bytes stay unassigned."""
        return {}

    @abstractmethod
    def choose(self, state: State, source: ScheduledSource, now: float) -> Choice | None:
        """Return the next step of a source with an empty share that is idle, or soon will be; None for nothing."""

    def role(self, state: State, source: ScheduledSource, now: float) -> Role:
        """Return the role of a source without work once the shares are assigned.

        While bytes are unassigned, at least one source has to be needed.
        """
        return "needed" if state.unassigned else "spare"

    def delivered(self, copy: RunningCopy, now: float) -> None:
        """Learn that partial copy `copy` was delivered completely."""

    def explain(self, state: State, now: float) -> str:
        """Return one sentence for users that explains the shares."""
        return f"{self.name}: {len(state.sources)} source{'s' if len(state.sources) > 1 else ''}"


def first_unassigned(state: State) -> Take | None:
    """Return the first unassigned bytes, as many as one partial copy can fetch; None if all bytes are assigned."""
    stretch = state.first_stretch(state.unassigned)
    return Take(*stretch) if stretch else None


def candidates(state: State) -> list[ScheduledSource]:
    """Return the sources to divide the bytes among: all in use that support ranges and are not pausing or waiting."""
    return [
        source
        for source in state.sources
        if source.usable and source.ranged and source.status not in ("pausing", "waiting")
    ]
