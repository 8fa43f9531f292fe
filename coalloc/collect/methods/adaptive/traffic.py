"""All hops under way, and the measurements of links that they yield. Pure; time is an argument."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from random import Random

from coalloc.collect.methods.actions import Send
from coalloc.collect.methods.adaptive.directives import Directives
from coalloc.collect.methods.adaptive.estimates import Estimates
from coalloc.collect.methods.adaptive.link_queue import MEMORY, LinkQueue, Pair

__all__ = ["HopTraffic"]

LEAST_MEMORY = 1.0
"""Minimum seconds over which rates are averaged."""
SLOWER = 3
"""Factor by which a pair must be slower than planned before its waiting hops are taken back."""


class HopTraffic:
    """The queues of a collect job.

    :param estimates: estimates that learn from the measurements
    :param chance: random numbers for the length of pauses
    """

    def __init__(self, estimates: Estimates, chance: Random) -> None:
        self.queues: defaultdict[Pair, LinkQueue] = defaultdict(LinkQueue)
        self.wanted: dict[int, str] = {}
        """The destination of each hop's piece."""
        self.memory = MEMORY
        self._estimates = estimates
        self._chance = chance

    def work(self, now: float, send: Send, to: str) -> None:
        """Begin a hop."""
        self.wanted[send.hop] = to
        self.queues[send.source, send.sink].work(now, send.hop, send.piece.size)

    def moved(self, now: float, send: Send, nbytes: int) -> None:
        """Record the bytes of a hop that have arrived so far."""
        self.queues[send.source, send.sink].moved(now, send.hop, send.piece.size - nbytes)

    def hold(self, now: float, pair: Pair, over: bool) -> None:
        """Record the beginning or the end of a pair's wait for this machine; lost hosts are ignored."""
        if queue := self.queues.get(pair):
            queue.hold(now, over)

    def over(self, send: Send) -> str:
        """Remove a hop that is not under way any more; return its piece's destination."""
        self.queues[send.source, send.sink].over(send.hop)
        return self.wanted.pop(send.hop)

    def arrived(self, now: float, send: Send) -> str:
        """Remove a hop that has arrived; return its piece's destination."""
        self.queues[send.source, send.sink].arrived(now, send.hop)
        return self.over(send)

    def failed(self, now: float, pair: Pair, reason: str, *, for_good: bool = False) -> None:
        """Record a failure of a pair. Unless it is paused already, pause it and lower its estimated capacity.

        :param for_good: whether the pair can never work
        """
        queue = self.queues[pair]
        if now >= queue.resumes_at:
            self._estimates.measured(now, pair, 0.0, self._estimates.capacity(pair))
        queue.failed(now, reason, self._chance, for_good=for_good)

    def gone(self, host: str) -> None:
        """Remove a lost host and its queues; its hops must be over."""
        self._estimates.gone(host)
        for pair in [pair for pair in self.queues if host in pair]:
            del self.queues[pair]

    def measure(self, now: float, plan: Directives, since: float) -> None:
        """Correct the estimates by the measured rates of the pairs used since time `since`."""
        moving: dict[Pair, float] = {}
        for pair in self._estimates.pairs:
            queue = self.queues.get(pair)
            if queue is None or (queue.used_at < since and not queue.hops):
                self._estimates.rested(now, pair)
            elif (rate := queue.rate(now, self.memory)) is not None:
                self._estimates.measured(now, pair, rate, plan.rates.get(pair, 0.0))
                if queue.hops:
                    moving[pair] = rate
        self._estimates.saw(moving)

    def remember(self, period: float) -> None:
        """Average rates over at most two periods, so that a change shows after two plans."""
        self.memory = min(MEMORY, max(LEAST_MEMORY, 2 * period))

    def stalled(self, now: float) -> Iterator[Pair]:
        """Yield the pairs whose transfers have stalled."""
        for pair, queue in self.queues.items():
            if queue.stalled(now, self._estimates.capacity(pair)):
                yield pair

    def overloaded(self, now: float, plan: Directives) -> dict[Pair, list[int]]:
        """Return pairs much slower than planned, with the hops at the end of their queues that would be late.

        The first hop of a queue is never among them.
        """
        found: dict[Pair, list[int]] = {}
        for pair, queue in self.queues.items():
            rate, left = queue.rate(now, self.memory), queue.under_way
            if rate is not None and rate * SLOWER < plan.rates.get(pair, 0.0):
                for hop in list(queue.hops)[:0:-1]:
                    if left > rate:
                        found.setdefault(pair, []).append(hop)
                    left -= queue.hops[hop]
        return found

    def seconds(self, now: float, pair: Pair) -> float:
        """Return the seconds that a pair still needs for its hops under way."""
        queue = self.queues[pair]
        rate = queue.rate(now, self.memory) or self._estimates.capacity(pair)
        return queue.under_way / rate if rate else float("inf")

    def unused(self, now: float) -> set[Pair]:
        """Return the pairs that are paused or given up."""
        return {pair for pair, queue in self.queues.items() if queue.given_up or now < queue.resumes_at}

    def trouble(self, sources: Collection[str], to: str) -> str:
        """Return the last known reason why the sources cannot reach a destination."""
        ends = [
            queue for (source, sink), queue in self.queues.items() if queue.reason and (sink == to or source in sources)
        ]
        return ends[-1].reason if ends else "no usable link leads there"

    def resumes_at(self, now: float) -> float:
        """Return the earliest time at which a paused pair is tried again."""
        times = (queue.resumes_at for queue in self.queues.values() if not queue.given_up and now < queue.resumes_at)
        return min(times, default=float("inf"))
