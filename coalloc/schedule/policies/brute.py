"""`brute`: brute-force co-allocation (paper, section 3.2.1): S/n bytes from each of n servers."""

from coalloc.schedule.policies.base import Choice, Policy, Shares, candidates, first_unassigned
from coalloc.schedule.shares import cut, equal_shares
from coalloc.schedule.sources import ScheduledSource
from coalloc.schedule.state import State

__all__ = ["Brute"]


class Brute(Policy):
    """Equal shares, fixed at the start. The bytes of a failed source go to the first source that finishes."""

    name = "brute"
    patience = 5.0

    def shares(self, state: State, now: float) -> Shares:
        sources = candidates(state)
        parts = cut(state.unassigned, equal_shares(state.unassigned.total, len(sources))) if sources else []
        return {source.index: part for source, part in zip(sources, parts, strict=True)}

    def choose(self, state: State, source: ScheduledSource, now: float) -> Choice | None:
        return first_unassigned(state)

    def explain(self, state: State, now: float) -> str:
        return f"brute: an equal share from each of {len(candidates(state))} sources"
