"""`history`: history-based co-allocation (paper, section 3.2.2): s_i = B_i / A * S, A = sum of B_i.

B_i is the forecast rate of server i (in the paper a moving average over time of previous transfers, here the forecast
of `coalloc.history.transfers`); a source without history counts as the median of those that have one.
"""

from coalloc.schedule.policies.base import Choice, Policy, Shares, candidates, first_unassigned
from coalloc.schedule.shares import cut, proportional_shares
from coalloc.schedule.state import SourceLane, State, median

__all__ = ["History"]


class History(Policy):
    """Shares in proportion to forecast rates, fixed at the start."""

    name = "history"
    patience = 5.0

    def shares(self, state: State, now: float) -> Shares:
        lanes = candidates(state)
        if not lanes:
            return {}
        sizes = proportional_shares(state.unassigned.total, _forecasts(lanes))
        return {lane.source: part for lane, part in zip(lanes, cut(state.unassigned, sizes), strict=True)}

    def choose(self, state: State, lane: SourceLane, now: float) -> Choice | None:
        return first_unassigned(state)

    def explain(self, state: State, now: float) -> str:
        lanes = candidates(state)
        known = sum(1 for lane in lanes if lane.estimate.rate)
        return f"history: shares by the average rates of earlier transfers, known for {known} of {len(lanes)} sources"


def _forecasts(lanes: list[SourceLane]) -> list[float]:
    known = [lane.estimate.rate for lane in lanes if lane.estimate.rate]
    middle = median(known) if known else 1.0
    return [lane.estimate.rate or middle for lane in lanes]
