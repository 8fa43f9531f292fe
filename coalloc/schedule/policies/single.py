"""`single`: the base case of the paper (section 4.3): the whole file from one server, the best by forecast."""

from collections.abc import Sequence

from coalloc.schedule.policies.base import Choice, Policy, Role, Shares, candidates, first_unassigned
from coalloc.schedule.sources import ScheduledSource
from coalloc.schedule.state import State

__all__ = ["Single"]

STANDING_BY = ("spare", "connecting", "idle")
"""Statuses of sources that can be held in reserve, the least preferred first."""


class Single(Policy):
    """One source at a time, the best by forecast; the next best only if that one fails."""

    name = "single"
    patience = 5.0

    def shares(self, state: State, now: float) -> Shares:
        sources = candidates(state)
        if not sources:
            return {}
        return {_best(state, sources, now).index: list(state.unassigned)}

    def choose(self, state: State, source: ScheduledSource, now: float) -> Choice | None:
        if any(other.status == "fetching" for other in state.sources) or source is not _best(state, state.sources, now):
            return None
        return first_unassigned(state)

    def role(self, state: State, source: ScheduledSource, now: float) -> Role:
        """Return "reserve" for the next best source only; prefer connected sources."""
        if state.unassigned:
            return "needed"
        others = [each for each in state.sources if each.status in STANDING_BY and each.ranged]
        best = max(others, default=None, key=lambda each: (STANDING_BY.index(each.status), *_rank(state, each, now)))
        return "reserve" if source is best else "spare"

    def explain(self, state: State, now: float) -> str:
        return "single: the whole file from the source with the best forecast"


def _best(state: State, sources: Sequence[ScheduledSource], now: float) -> ScheduledSource:
    """Return the fastest source; prefer those that can begin now, and the first of equally fast ones."""
    return max(sources, key=lambda source: (source.status == "idle", *_rank(state, source, now)))


def _rank(state: State, source: ScheduledSource, now: float) -> tuple[float, int]:
    return state.rate(source, now), -source.index
