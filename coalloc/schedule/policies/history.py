"""`history`: history-based co-allocation (paper, section 3.2.2): s_i = B_i / A * S, A = sum of B_i.

B_i is the forecast rate of server i: in the paper a moving average of earlier transfers, in coget the forecast of
`coalloc.history.transfers`. A source without history gets the median rate of the others.
"""

from coalloc.schedule.policies.base import Choice, Policy, Shares, candidates, first_unassigned
from coalloc.schedule.shares import cut, proportional_shares
from coalloc.schedule.sources import ScheduledSource
from coalloc.schedule.state import State, median

__all__ = ["History"]


class History(Policy):
    """Shares in proportion to forecast rates, fixed at the start."""

    name = "history"
    patience = 5.0

    def shares(self, state: State, now: float) -> Shares:
        sources = candidates(state)
        if not sources:
            return {}
        sizes = proportional_shares(state.unassigned.total, _forecasts(sources))
        return {source.index: part for source, part in zip(sources, cut(state.unassigned, sizes), strict=True)}

    def choose(self, state: State, source: ScheduledSource, now: float) -> Choice | None:
        return first_unassigned(state)

    def explain(self, state: State, now: float) -> str:
        sources = candidates(state)
        known = sum(1 for source in sources if source.estimate.rate)
        return f"history: shares by the average rates of earlier transfers, known for {known} of {len(sources)} sources"


def _forecasts(sources: list[ScheduledSource]) -> list[float]:
    known = [source.estimate.rate for source in sources if source.estimate.rate]
    middle = median(known) if known else 1.0
    return [source.estimate.rate or middle for source in sources]
