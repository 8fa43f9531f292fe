"""`adaptive`: coget's own strategy. Each source gets one contiguous share; idle sources steal from the slowest one.

At the start the shares are such that all sources finish together, according to their forecast set-up times and rates.
A source without a forecast gets no share before it answers; then it steals one, if that is worth its set-up.
A source that has delivered its share steals from the source that would finish last: the tail of its undelivered bytes,
by the rule in `schedule.steal_size`. If that would save less than the thief's set-up, the source stays idle and tries
again a moment later.
If the victim would keep almost nothing, or is silent, all its bytes are fetched by the thief too: as a race while
RACE_BUDGET allows fetching bytes twice, otherwise as a steal. A request that has no answer yet is always raced: the
first answer ends the others, so that no bytes come twice. So a slow source gets fewer bytes, a dead one costs only
the bytes in flight, and the end of a transfer is delayed by set-up times at most, not by the slowest source.
"""

from coalloc.schedule.policies.base import Choice, Policy, Race, Role, Shares, Steal, candidates, first_unassigned
from coalloc.schedule.shares import cut, fill_shares
from coalloc.schedule.sources import ScheduledSource
from coalloc.schedule.state import State
from coalloc.schedule.steal_size import LEAST_STEAL, Thief, Victim, saves_all, seconds_together, stolen

__all__ = ["Adaptive"]

LEAST_SHARE = 256 * 1024
"""Smallest share in bytes at the start: a source that would get fewer gets none."""
RACE_BUDGET = 0.01
"""Largest fraction of the file that may be fetched twice."""
CONNECTING = 0.05
"""Seconds added to the set-up time of a source that is still connecting."""


class Adaptive(Policy):
    """Shares by set-up time and rate, rebalanced while the transfer runs.

    :param widens: whether distant sources may get more parallel streams
    """

    name = "adaptive"
    watches_idle = True
    rebalances = True

    def __init__(self, *, widens: bool = True) -> None:
        self.widens = widens

    def shares(self, state: State, now: float) -> Shares:
        sources = [each for each in candidates(state) if each.status == "idle" or each.estimate.rate]
        if not sources:
            return {}
        setups = [state.setup(source) + (0.0 if source.status == "idle" else CONNECTING) for source in sources]
        rates = [max(state.rate(source, now), 1.0) for source in sources]
        sizes, _ = fill_shares(state.unassigned.total, setups, rates, LEAST_SHARE)
        return {source.index: part for source, part in zip(sources, cut(state.unassigned, sizes), strict=True) if part}

    def role(self, state: State, source: ScheduledSource, now: float) -> Role:
        return "needed"  # until the end, as it may steal from other sources, or race them for the last bytes

    def choose(self, state: State, source: ScheduledSource, now: float) -> Choice | None:
        if free := first_unassigned(state):
            return free
        victims = {
            other.index: state.victim(other, now)
            for other in state.sources
            if other is not source and state.backlog(other)
        }
        thief = state.thief(source, now)
        together = seconds_together(thief, victims.values())
        for index, victim in sorted(victims.items(), key=lambda item: item[1].seconds, reverse=True):
            if choice := self._steal(state, index, victim, thief, together):
                return choice
        return None

    def _steal(self, state: State, index: int, victim: Victim, thief: Thief, together: float) -> Choice | None:
        source = state.sources[index]
        copy = state.running(source)
        if copy is None:  # the victim has not begun: an idle source takes all its bytes
            return Steal(index, victim.nbytes)
        rivals = state.rivals(copy)
        if rivals and not all(other.unanswered and other.id <= copy.id for other in (copy, *rivals)):
            return None
        nbytes = stolen(victim, thief, together, thief.worth)
        whole = nbytes == victim.nbytes and not source.share
        if whole and copy.unanswered:  # if it were abandoned, the wait would begin anew elsewhere, perhaps for ever
            return Race(copy.id)
        if rivals:
            return None
        last = whole or (state.scattered(source) and saves_all(victim, thief, thief.worth))
        if last and not source.share and self._may_race(state, victim.nbytes):
            return Race(copy.id)
        return Steal(index, nbytes) if nbytes else None

    @staticmethod
    def _may_race(state: State, backlog: int) -> bool:
        return state.raced_bytes + backlog <= max(RACE_BUDGET * state.size, LEAST_STEAL)

    def explain(self, state: State, now: float) -> str:
        sources = candidates(state)
        known = sum(1 for source in sources if source.estimate.rate)
        basis = f"forecasts for {known} of {len(sources)} sources" if known else "equal rates, as nothing is known yet"
        return f"adaptive: shares by set-up and rate from {basis}, and free sources take over ranges"
