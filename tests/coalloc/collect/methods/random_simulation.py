"""A simulation for methods in which events come in any order, with its own record of all bytes."""

from collections import deque
from collections.abc import Collection
from heapq import heappop, heappush
from random import Random

from coalloc.collect.methods.actions import Action, Cancel, CollectDone, CollectGiveUp, CollectWake, Drop, Send
from coalloc.collect.methods.base import Method
from coalloc.collect.methods.events import Arrived, CollectStarted, CollectTick, Event, Gone, HopFailed, HopFault
from coalloc.collect.methods.ledger import Ledger
from coalloc.planner.network import Demand

__all__ = ["RandomSimulation"]

MANY = 20_000


class RandomSimulation:
    """Hops take random times, one after the other on each pair; some fail; hosts die.

    :param failures: how many hops fail
    :param chance: of each of them to fail until then
    :param deaths: when hosts die
    :param refusing: hosts that refuse to send a file, or any piece of it that is staged there
    :param apart: pairs of hosts that cannot send to each other, which the network does not know
    """

    def __init__(
        self,
        method: Method,
        demand: Demand,
        seed: int,
        failures: int = 0,
        deaths: dict[str, float] | None = None,
        chance: float = 0.3,
        refusing: Collection[tuple[str, str]] = (),
        apart: Collection[tuple[str, str]] = (),
    ) -> None:
        self.method = method
        self.demand = demand
        self.ledger = Ledger(demand)
        self.sends: list[tuple[float, Send]] = []
        self.arrivals: dict[int, float] = {}
        self._random = Random(seed)
        self._failures = failures
        self._chance = chance
        self._refusing = refusing
        self._apart = apart
        self.refused_at: dict[tuple[str, str], float] = {}
        self._queues: dict[tuple[str, str], deque[Send]] = {}
        self._events: list[tuple[float, int, Event]] = []
        self._wake: float | None = None
        self._number = 0
        for host, at in (deaths or {}).items():
            self._at(at, Gone(at, host, f"{host} died"))

    def run(self) -> CollectDone | CollectGiveUp:
        """Return the method's final report."""
        actions = self.method.handle(CollectStarted(0.0))
        now = 0.0
        for _ in range(MANY):
            for action in actions:
                if isinstance(action, CollectDone | CollectGiveUp):
                    return action
                self._do(now, action)
            event = self._soonest()
            now = event.at
            actions = self.method.handle(event) if self._happens(event) else []
        raise AssertionError("it does not end")

    def _soonest(self) -> Event:
        if self._wake is not None and (not self._events or self._wake <= self._events[0][0]):
            at, self._wake = self._wake, None
            return CollectTick(at)
        assert self._events, "nothing happens any more, and the method waits"
        return heappop(self._events)[2]

    def _at(self, at: float, event: Event) -> None:
        self._number += 1
        heappush(self._events, (at, self._number, event))

    def _happens(self, event: Event) -> bool:
        """Return whether the method can start more hops; finished hops make room for the next of their pair."""
        if isinstance(event, Arrived | HopFailed):
            if event.hop not in self.ledger.running:
                return False
            send = self.ledger.running[event.hop]
            if isinstance(event, Arrived):
                self.arrivals[event.hop] = event.at
                self.ledger.arrived(event.hop)
            else:
                self.ledger.ended(event.hop)
                if event.fault is HopFault.FILE:
                    self.refused_at.setdefault((send.source, send.piece.file), event.at)
            self._leaves(event.at, send)
        elif isinstance(event, Gone):
            for send in self.ledger.gone(event.host):
                self._queues.pop((send.source, send.sink), None)
        return True

    def _leaves(self, now: float, send: Send) -> None:
        queue = self._queues[send.source, send.sink]
        first = queue[0] is send
        queue.remove(send)
        if first and queue:
            self._carry(now, queue[0])

    def _do(self, now: float, action: Action) -> None:
        if isinstance(action, Send):
            self._check(now, action)
            self.ledger.send(action)
            self.sends.append((now, action))
            queue = self._queues.setdefault((action.source, action.sink), deque())
            queue.append(action)
            if len(queue) == 1:
                self._carry(now, action)
        elif isinstance(action, Cancel):
            self._leaves(now, self.ledger.ended(action.hop))
        elif isinstance(action, Drop):
            coming = {(send.sink, send.piece) for send in self.ledger.running.values()}
            assert (action.host, action.piece) not in coming, "it is dropped while it arrives"
            self.ledger.drop(action)
        elif isinstance(action, CollectWake):
            assert action.at >= now
            self._wake = action.at

    def _check(self, now: float, send: Send) -> None:
        file = self.ledger.files[send.piece.file]
        assert now >= file.available
        assert send.source != send.sink
        same = [each for each in self.ledger.running.values() if (each.sink, each.piece) == (send.sink, send.piece)]
        assert not same, "it is on its way there already"

    def _carry(self, now: float, send: Send) -> None:
        until = now + self._random.expovariate(1.0)
        if (send.source, send.sink) in self._apart:
            self._at(until, HopFailed(until, send.hop, "they do not fit", HopFault.NO_LINK))
        elif (send.source, send.piece.file) in self._refusing:
            self._at(until, HopFailed(until, send.hop, "it is not sent", HopFault.FILE))
        elif self._failures and self._random.random() < self._chance:
            self._failures -= 1
            full = self._random.random() < 0.3
            self._at(until, HopFailed(until, send.hop, "the weather", HopFault.SINK if full else HopFault.LINK))
        else:
            self._at(until, Arrived(until, send.hop))
