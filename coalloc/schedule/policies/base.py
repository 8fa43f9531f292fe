"""What a co-allocation scheme decides: shares at the start, and what a source does that has nothing to do."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple

from coalloc.schedule.state import Copy, Lane, State

__all__ = ["Choice", "Policy", "Race", "Role", "Steal", "Take"]

Shares = dict[int, list[tuple[int, int]]]


class Take(NamedTuple):
    """Fetch [start, end), which is unassigned or in the lane's own share."""

    start: int
    end: int


class Steal(NamedTuple):
    """Take the last `nbytes` of what lane `victim` still has to deliver."""

    victim: int
    nbytes: int


class Race(NamedTuple):
    """Fetch all that partial copy `copy` lacks a second time; whichever delivers first wins."""

    copy: int


Choice = Take | Steal | Race
Role = Literal["needed", "reserve", "spare"]
"""What a source without work is good for: it may have some soon; it stands in for one that fails; nothing now."""


class Policy(ABC):
    """One scheme. `patience` is how long the start waits for sources that have not answered, in seconds."""

    name: ClassVar[str]
    patience: ClassVar[float] = 0.0
    watches_idle: ClassVar[bool] = False
    """Whether an idle lane is asked again as time passes, not only when something happened."""
    rebalances: ClassVar[bool] = False
    """Whether what a source does not deliver in time is delivered by others."""
    widens: bool = False
    """Whether a source may get more parallel streams while it runs."""

    def shares(self, state: State, now: float) -> Shares:
        """Ranges kept for each lane from the start; what is in none stays unassigned."""
        return {}

    @abstractmethod
    def choose(self, state: State, lane: Lane, now: float) -> Choice | None:
        """What an idle lane with an empty share does now."""

    def role(self, state: State, lane: Lane, now: float) -> Role:
        """What a lane without work is good for, once the shares are given out; some lane if bytes are unassigned."""
        return "needed" if state.unassigned else "spare"

    def delivered(self, copy: Copy, now: float) -> None:
        """Partial copy `copy` was delivered whole."""

    def explain(self, state: State, now: float) -> str:
        """One sentence for people: why this split."""
        return f"{self.name}: {len(state.lanes)} source{'s' if len(state.lanes) > 1 else ''}"


def first_unassigned(state: State) -> Take | None:
    """The first unassigned range, whole: what a failed source left, or what nobody was given."""
    return next((Take(start, end) for start, end in state.unassigned), None)


def candidates(state: State) -> list[Lane]:
    """The lanes a split is made for: all that can send ranges and are not left, pausing or waiting, maybe for long."""
    return [lane for lane in state.lanes if lane.usable and lane.ranged and lane.status not in ("pausing", "waiting")]
