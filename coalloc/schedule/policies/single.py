"""`single`: the base case of the paper (section 4.3): the whole file from one server, the best by forecast."""

from collections.abc import Sequence

from coalloc.schedule.policies.base import Choice, Policy, Role, Shares, candidates, first_unassigned
from coalloc.schedule.state import SourceLane, State

__all__ = ["Single"]

STANDING_BY = ("spare", "connecting", "idle")
"""Statuses of sources of which one is held in reserve."""


class Single(Policy):
    """One source at a time; the next best only when it fails."""

    name = "single"
    patience = 5.0

    def shares(self, state: State, now: float) -> Shares:
        lanes = candidates(state)
        if not lanes:
            return {}
        return {_best(state, lanes, now).source: list(state.unassigned)}

    def choose(self, state: State, lane: SourceLane, now: float) -> Choice | None:
        if any(other.status == "fetching" for other in state.lanes) or lane is not _best(state, state.lanes, now):
            return None
        return first_unassigned(state)

    def role(self, state: State, lane: SourceLane, now: float) -> Role:
        """Return "reserve" for the next best source only; connected sources come before others."""
        if state.unassigned:
            return "needed"
        others = [each for each in state.lanes if each.status in STANDING_BY and each.ranged]
        best = max(others, default=None, key=lambda each: (STANDING_BY.index(each.status), *_rank(state, each, now)))
        return "reserve" if lane is best else "spare"

    def explain(self, state: State, now: float) -> str:
        return "single: the whole file from the source with the best forecast"


def _best(state: State, lanes: Sequence[SourceLane], now: float) -> SourceLane:
    """Return the fastest of those that can begin now, the first of equals."""
    return max(lanes, key=lambda lane: (lane.status == "idle", *_rank(state, lane, now)))


def _rank(state: State, lane: SourceLane, now: float) -> tuple[float, int]:
    return state.rate(lane, now), -lane.source
