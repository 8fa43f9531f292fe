"""What is under way between all hosts, and what that tells of their links. Pure; time is an argument."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from random import Random

from coalloc.staging.actions import Send
from coalloc.staging.directives import Directives
from coalloc.staging.estimates import Estimates
from coalloc.staging.lanes import Lane, Pair
from coalloc.staging.rates import MEMORY

__all__ = ["Traffic"]

LEAST_MEMORY = 1.0
"""Seconds over which rates are averaged, at least."""
SLOWER = 3
"""How many times slower than planned a pair must be for what waits in its queue to be taken back."""


class Traffic:
    """The lanes of a collection.

    :param estimates: learn from what is measured
    :param chance: for the length of pauses
    """

    def __init__(self, estimates: Estimates, chance: Random) -> None:
        self.lanes: defaultdict[Pair, Lane] = defaultdict(Lane)
        self.wanted: dict[int, str] = {}
        """Where the piece of each hop is wanted."""
        self.memory = MEMORY
        self._estimates = estimates
        self._chance = chance

    def hand(self, now: float, send: Send, to: str) -> None:
        """A hop begins."""
        self.wanted[send.hop] = to
        self.lanes[send.source, send.sink].hand(now, send.hop, send.piece.size)

    def moved(self, now: float, send: Send, nbytes: int) -> None:
        """Of a hop, so many bytes have arrived."""
        self.lanes[send.source, send.sink].moved(now, send.hop, send.piece.size - nbytes)

    def over(self, send: Send) -> str:
        """A hop is not under way any more; where its piece is wanted."""
        self.lanes[send.source, send.sink].over(send.hop)
        return self.wanted.pop(send.hop)

    def arrived(self, now: float, send: Send) -> str:
        """A hop is over, as `over`, and well."""
        self.lanes[send.source, send.sink].arrived(now, send.hop)
        return self.over(send)

    def failed(self, now: float, pair: Pair, reason: str) -> None:
        """What two hosts do together fails: not now, and then less."""
        lane = self.lanes[pair]
        if now >= lane.resumes_at:
            self._estimates.measured(now, pair, 0.0, self._estimates.capacity(pair))
        lane.failed(now, reason, self._chance)

    def gone(self, host: str) -> None:
        """A host is not there any more; its hops are over."""
        self._estimates.gone(host)
        for pair in [pair for pair in self.lanes if host in pair]:
            del self.lanes[pair]

    def measure(self, now: float, plan: Directives, since: float) -> None:
        """What was used since some time corrects what is thought of it."""
        moving: dict[Pair, float] = {}
        for pair in self._estimates.pairs:
            lane = self.lanes.get(pair)
            if lane is None or (lane.used_at < since and not lane.hops):
                self._estimates.rested(now, pair)
            elif (rate := lane.rate(now, self.memory)) is not None:
                self._estimates.measured(now, pair, rate, plan.rates.get(pair, 0.0))
                if lane.hops:
                    moving[pair] = rate
        self._estimates.saw(moving)

    def remember(self, period: float) -> None:
        """Average over no more than two periods: what changed is then seen in the next but one."""
        self.memory = min(MEMORY, max(LEAST_MEMORY, 2 * period))

    def stalled(self, now: float) -> Iterator[Pair]:
        """Pairs that move nothing any more."""
        for pair, lane in self.lanes.items():
            if lane.stalled(now, self._estimates.capacity(pair)):
                yield pair

    def overloaded(self, now: float, plan: Directives) -> dict[Pair, list[int]]:
        """Pairs that are much slower than planned, and the last hops in their queues; never the first one."""
        found: dict[Pair, list[int]] = {}
        for pair, lane in self.lanes.items():
            rate, left = lane.rate(now, self.memory), lane.under_way
            if rate is not None and rate * SLOWER < plan.rates.get(pair, 0.0):
                for hop in list(lane.hops)[:0:-1]:
                    if left > rate:
                        found.setdefault(pair, []).append(hop)
                    left -= lane.hops[hop]
        return found

    def seconds(self, now: float, pair: Pair) -> float:
        """How long what is under way between two hosts still takes."""
        lane = self.lanes[pair]
        rate = lane.rate(now, self.memory) or self._estimates.capacity(pair)
        return lane.under_way / rate if rate else float("inf")

    def unused(self, now: float) -> set[Pair]:
        """Pairs that are left alone now."""
        return {pair for pair, lane in self.lanes.items() if lane.given_up or now < lane.resumes_at}

    def trouble(self, sources: Collection[str], to: str) -> str:
        """Why nothing gets from some hosts to another one, as far as they have tried."""
        ends = [
            lane for (source, sink), lane in self.lanes.items() if lane.reason and (sink == to or source in sources)
        ]
        return ends[-1].reason if ends else "no link that is of use leads there"

    def resumes_at(self, now: float) -> float:
        """When the first pair that is left alone is tried again."""
        times = (lane.resumes_at for lane in self.lanes.values() if not lane.given_up and now < lane.resumes_at)
        return min(times, default=float("inf"))
