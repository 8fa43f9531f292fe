"""`adaptive`: our own scheme. One contiguous share per source; an idle source steals from the one that would finish
last.

The rule in words: At the start each source is given the share with which, by its forecast set-up time and rate, all
finish together. A source that has delivered its share looks at the source that would finish last, and steals the tail
of what that one still has to deliver: as much as lets it finish when all could finish together, its own set-up
included, no more than it can deliver by then, and no bytes that are on their way already. If that would save less than
its set-up, it does nothing and looks again a moment later.

A victim that would be left with next to nothing, or is silent, loses all its bytes: by a race, which either may win,
while the budget for double bytes lasts, and afterwards outright. So a slow source is given less, a dead one costs the
bytes it had in flight, and the tail of a transfer is bounded by set-up times, not by the slowest rate.
"""

from collections.abc import Iterable
from math import inf

from coalloc.schedule.policies.base import Choice, Policy, Race, Role, Shares, Steal, candidates, first_unassigned
from coalloc.schedule.shares import cut, fill_shares
from coalloc.schedule.state import RunningCopy, SourceLane, State

__all__ = ["Adaptive"]

LEAST_SHARE = 256 * 1024
"""Bytes below which a source is not worth its set-up at the start."""
LEAST_STEAL = 64 * 1024
"""Bytes below which a range is not split any further."""
LEAST_GAIN = 0.02
"""Least seconds that the transfer must end earlier for a range to be moved, if the thief's set-up is not longer: a
new connection is slow at first, by an unknown amount.
"""
RACE_BUDGET = 0.005
"""Largest part of the file that may be fetched twice."""
CONNECTING = 0.05
"""Seconds that a source that has not answered yet is assumed to be behind one that has."""


class Adaptive(Policy):
    """Shares by set-up and rate, moved while the transfer runs.

    :param widens: whether distant sources may get more parallel streams
    """

    name = "adaptive"
    watches_idle = True
    rebalances = True

    def __init__(self, *, widens: bool = True) -> None:
        self.widens = widens

    def shares(self, state: State, now: float) -> Shares:
        lanes = candidates(state)
        if not lanes:
            return {}
        setups = [state.setup(lane) + (0.0 if lane.status == "idle" else CONNECTING) for lane in lanes]
        rates = [max(state.rate(lane, now), 1.0) for lane in lanes]
        sizes, _ = fill_shares(state.unassigned.total, setups, rates, LEAST_SHARE)
        return {lane.source: part for lane, part in zip(lanes, cut(state.unassigned, sizes), strict=True) if part}

    def role(self, state: State, lane: SourceLane, now: float) -> Role:
        return "needed"  # to the end: it may steal from others, and race them for the last bytes

    def choose(self, state: State, lane: SourceLane, now: float) -> Choice | None:
        if free := first_unassigned(state):
            return free
        others = [other for other in state.lanes if other is not lane and state.backlog(other)]
        together = self._together(state, others, lane, now)
        for victim in sorted(others, key=lambda other: state.finish_seconds(other, now), reverse=True):
            if choice := self._relieve(state, victim, lane, together, now):
                return choice
        return None

    def _relieve(
        self, state: State, victim: SourceLane, thief: SourceLane, together: float, now: float
    ) -> Choice | None:
        copy, backlog = state.running(victim), state.backlog(victim)
        if copy is None:  # it has not even begun: any source that can work takes all
            return Steal(victim.source, backlog)
        mine, theirs = state.rate(thief, now), state.rate(victim, now)
        if mine <= 0 or state.raced(copy):
            return None
        setup, finish = state.setup(thief), state.finish_seconds(victim, now)
        worth = max(LEAST_GAIN, setup)
        too_much = backlog - int(theirs * max(0.0, together - _without(state, victim, now)))
        takes = int(mine * (together - setup - state.ending_seconds(thief)))
        nbytes = max(0, min(backlog - state.on_its_way(victim, now), too_much, takes))
        wholly = finish - state.fetch_seconds(thief, backlog, now) >= worth
        if backlog - nbytes < LEAST_STEAL:
            return self._relieve_wholly(state, copy, backlog) if wholly else None
        gaps = state.lacking(copy)
        if not victim.share and (len(gaps) > 1 or victim.widening.streams > 1):
            if wholly and self._may_race(state, backlog):
                return Race(copy.id)
            nbytes = min(nbytes, gaps[-1][1] - gaps[-1][0])  # parallel streams have the bytes before it on their way
        if nbytes < LEAST_STEAL:
            return None
        end = max(together, state.fetch_seconds(thief, nbytes, now))
        return Steal(victim.source, nbytes) if finish - end >= worth else None

    @staticmethod
    def _together(state: State, others: Iterable[SourceLane], thief: SourceLane, now: float) -> float:
        """Return the seconds until the end if all sources with bytes to deliver, and `thief`, end together."""
        rate = state.rate(thief, now)
        total, work = rate, rate * (state.setup(thief) + state.ending_seconds(thief))
        for lane in others:
            rate = state.rate(lane, now)
            total, work = total + rate, work + state.backlog(lane) + rate * _without(state, lane, now)
        return work / total if total else inf

    def _relieve_wholly(self, state: State, copy: RunningCopy, backlog: int) -> Choice:
        if not state.lanes[copy.source].share and self._may_race(state, backlog):
            return Race(copy.id)
        return Steal(copy.source, backlog)

    @staticmethod
    def _may_race(state: State, backlog: int) -> bool:
        return state.raced_bytes + backlog <= max(RACE_BUDGET * state.size, LEAST_STEAL)

    def explain(self, state: State, now: float) -> str:
        lanes = candidates(state)
        known = sum(1 for lane in lanes if lane.estimate.rate)
        basis = f"forecasts for {known} of {len(lanes)} sources" if known else "equal rates, as nothing is known yet"
        return f"adaptive: shares by set-up and rate from {basis}, and free sources take over ranges"


def _without(state: State, lane: SourceLane, now: float) -> float:
    """Return for how many seconds until its end a lane delivers nothing, if all others are counted at its rate."""
    return state.wait_seconds(lane, now) + state.ending_seconds(lane)
