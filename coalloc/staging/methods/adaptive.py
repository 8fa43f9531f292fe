"""Adaptive, the default: a plan of relays that follows what is measured (Confluence, 3 and 4.1).

The rule, in prose. A plan of least time says how much each host sends to each other one. Whenever a pair can take more,
about a second's worth at a time, it gets the next piece that its source has: what is staged first. What can go several
ways goes one of those that can take it, by chance, in proportion to what they still have to carry. Every period all
that is not under way is planned again, with capacities corrected by what was measured, and with the choice of sending
what is staged from where it is or from where it came. When no plan with relays beats the straight one, all goes
straight. At the end, what is slow is sent a second time over another way, if that is sooner.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import ClassVar

from coalloc.errors import UsageError
from coalloc.intervals import Intervals
from coalloc.planner.network import Demand, Network
from coalloc.staging.actions import Action, Cancel, Drop, GiveUp, Piece, Send, Wake
from coalloc.staging.blocks import LEAST, Stock
from coalloc.staging.directives import SETUP, WORTH, Directives, Lot, directives, reachable
from coalloc.staging.dispatch import Dispatch
from coalloc.staging.estimates import PEERS, Estimates, overlay
from coalloc.staging.events import Arrived, Event, Failed, Gone, Moved, Started
from coalloc.staging.lanes import Pair
from coalloc.staging.methods.base import Method
from coalloc.staging.traffic import Traffic

__all__ = ["Adaptive"]

PERIOD, PERIODS = 15.0, 20
"""Seconds between plans at most, and how many plans a collection should see."""
SHORTEST = 1.0
"""Seconds between plans at least: less cannot be measured."""
LATE, SOONER = 1.5, 0.7
"""Seconds that what is under way takes, from which on another way is looked for at the end, and the part of them in
which it must be done there."""
LOOKS = 8
"""How often it is looked for in this time."""
TWICE = 0.05
"""Part of all bytes that may be sent a second time."""


class Adaptive(Method):
    """Confluence's protocol.

    :param peers: how many random hosts each one may send to, besides those where files are wanted
    :param period: seconds between plans; inf for one plan only. If not given, a twentieth of what all should take, from
        1 s to 15 s
    :raises UsageError: when there is a budget, or a file that comes later: plans that are made again know of neither
    """

    name: ClassVar[str] = "adaptive"

    def __init__(
        self, network: Network, demand: Demand, seed: int = 0, *, peers: int = PEERS, period: float | None = None
    ) -> None:
        super().__init__(network, demand, seed)
        if demand.budget is not None:
            raise UsageError("adaptive keeps to no budget", "choose another method, or give none")
        if later := [file.name for file in demand.files if file.available]:
            raise UsageError(f"adaptive cannot wait for {later[0]}", "choose path-sync or path-delay, or begin later")
        self._destinations = list(dict.fromkeys(to for file in demand.files for to in file.destinations))
        self._estimates = Estimates(overlay(network, self._destinations, self._random, peers))
        self._traffic = Traffic(self._estimates, self._random)
        self._stock = Stock(self.ledger)
        self._dispatch = Dispatch(network, self.ledger, self._stock, self._traffic, self._estimates, self._random)
        self._plan = Directives()
        self._look: set[str] = set()
        self._began = self._planned_at = self._due = 0.0
        self._fixed, self._period = period, period or SHORTEST
        self._twice = 0
        self._relayed = False
        self._hopeless = ""

    def _decide(self, event: Event, ended: Sequence[Send]) -> Iterator[Action]:
        now, due = event.at, self._due
        if isinstance(event, Started):
            self._began = self._due = now
        elif isinstance(event, Moved):
            self._traffic.moved(now, self.ledger.running[event.hop], event.bytes)
        elif isinstance(event, Arrived):
            yield from self._arrived(now, ended[0])
        elif isinstance(event, Failed):
            self._failed(now, ended[0], event)
        elif isinstance(event, Gone):
            self._gone(event, ended)
        if now >= self._due and not self._hopeless:
            yield from self._recompute(now)
        yield from self._hand_out(now)
        yield from self._unstick(now)
        if self._hopeless:
            yield GiveUp(self._hopeless)
        elif self._due != due:
            yield Wake(self._due)

    # what happened

    def _arrived(self, now: float, send: Send) -> Iterator[Action]:
        to, piece = self._traffic.arrived(now, send), send.piece
        if piece not in self.ledger.staged[send.source]:
            self._stock.left(send.source, piece)
        if self._wanted(piece, send.sink):
            self._stock.delivered(piece, send.sink)
            if self._twice:
                yield from self._tidy(piece.file, send.sink)
        if to is not None and to != send.sink:
            self._stock.stage(send.sink, piece, to)
        self._look |= {send.source, send.sink, *self._dispatch.senders(send.source)}

    def _wanted(self, piece: Piece, host: str) -> bool:
        return host in self.ledger.files[piece.file].destinations

    def _failed(self, now: float, send: Send, event: Failed) -> None:
        to, pair = self._traffic.over(send), (send.source, send.sink)
        if event.full and not self._wanted(send.piece, send.sink):
            self._dispatch.limit(send.sink, self.ledger.occupied(send.sink))
        else:
            self._traffic.failed(now, pair)
        if to is not None:
            self._dispatch.returned(send, to)
        self._soon(now)

    def _gone(self, event: Gone, ended: Sequence[Send]) -> None:
        for send in ended:
            self._traffic.over(send)
        self._traffic.gone(event.host)
        wanting = (file.name for file in self.demand.files if event.host in file.destinations)
        if name := next((name for name in wanting if self.ledger.missing(name, event.host)), None):
            self._hopeless = f"{event.host}, where {name} is wanted, is gone: {event.reason}"
        self._due = event.at

    def _soon(self, now: float) -> None:
        self._due = min(self._due, max(now, self._planned_at + SHORTEST))

    # plans

    def _recompute(self, now: float) -> Iterator[Action]:
        self._traffic.measure(now, self._plan, self._planned_at)
        for pair in list(self._traffic.stalled(now)):
            yield from self._take_back(list(self._traffic.lanes[pair].hops))
            self._traffic.failed(now, pair)
        slow = self._traffic.overloaded(now, self._plan)
        yield from self._take_back([hop for hops in slow.values() for hop in hops])
        self._stock.count(self._traffic.counted)
        self._planned_at, self._due = now, self._traffic.resumes_at(now)
        if not self._stock:
            yield from self._race(now)
        elif not self._give_up():
            network, lots = self._usable(now, slow)
            yield from self._adopt(now, directives(network, lots, self._traffic.lanes))

    def _usable(self, now: float, slow: Collection[Pair]) -> tuple[Network, Mapping[Lot, int]]:
        """The network without what is left alone now, and what can be sent over it.

        What was taken back from slow pairs is not given to them again at once, unless it is theirs alone.
        """
        unused, lots = self._traffic.unused(now), self._lots()
        network = self._estimates.network(unused | set(slow))
        if slow and reachable(network, lots) != lots:
            network = self._estimates.network(unused)
        return network, reachable(network, lots)

    def _take_back(self, hops: Sequence[int]) -> Iterator[Action]:
        for hop in hops:
            self._traffic.over(self.ledger.running[hop])
            yield Cancel(hop)

    def _lots(self) -> Counter[Lot]:
        """All that is missing: what is on its way to an intermediate as if it were there, and home as if not begun."""
        lots = self._stock.lots()
        for hop, to in self._traffic.counted.items():
            send = self.ledger.running[hop]
            lot = Lot((send.source,), "", to) if send.sink == to else self._stock.lot(send.sink, send.piece, to)
            lots[lot] += max(1, send.piece.size)
        return lots

    def _give_up(self) -> bool:
        if self._stock.lost:
            self._hopeless = f"nobody holds all of {self._stock.lost} any more"
        else:
            lots = self._stock.lots()
            lost = lots.keys() - reachable(self._estimates.network(self._traffic.hopeless), lots).keys()
            for lot in sorted(lost):
                self._hopeless = f"nothing can be sent from {' or '.join(lot.holders)} to {lot.to} any more"
        return bool(self._hopeless)

    def _adopt(self, now: float, plan: Directives) -> Iterator[Action]:
        self._plan = plan
        if self._fixed is None:
            self._period = max(SHORTEST, min(PERIOD, (now - self._began + plan.seconds) / PERIODS))
        self._due = min(self._due, now + self._period)
        self._traffic.remember(self._period)
        counted = self._traffic.counted
        self._dispatch.follow(
            plan, self._period, [send for hop, send in self.ledger.running.items() if counted.get(hop) == send.sink]
        )
        self._explain(now)
        for lot, nbytes in plan.recalled.items():
            yield from self._drop([(lot.staged, piece) for piece in self._stock.recall(lot, nbytes)])
        self._look.update(self.network.hosts)

    def _explain(self, now: float) -> None:
        """By the first plan, and the first one that has relays if that is not the same."""
        plan = self._plan
        if plan.is_direct and not self.rationale:
            self.rationale = f"straight, {plan.seconds:.3g} s: no way over other hosts is {float(WORTH):.0%} faster"
        elif not plan.is_direct and not self._relayed:
            self._relayed = True
            over = sorted({path[0] for path in plan.rates} & {path[1] for path in plan.rates})
            straight = "" if plan.direct_seconds is None else f" instead of {plan.direct_seconds:.3g} s straight"
            words = f"over {', '.join(over)}: {plan.seconds:.3g} s{straight}"
            self.rationale = f"{self.rationale}; after {now - self._began:.3g} s {words}" if self.rationale else words

    # pieces

    def _hand_out(self, now: float) -> Iterator[Action]:
        while self._look and not self._hopeless:
            look, self._look = sorted(self._look), set()
            for host in look:
                for to in self._destinations:
                    while found := self._dispatch.next(now, host, to):
                        send = self._send(host, *found)
                        self._traffic.hand(now, send, to)
                        self._look |= self._dispatch.senders(host)
                        yield send
        if self._dispatch.stranded:
            self._soon(now)

    # the end

    def _race(self, now: float) -> Iterator[Action]:
        """All is under way. What is so slow that another way is sooner is sent once more over that one."""
        waits = {p: self._traffic.seconds(now, p) for p, lane in self._traffic.lanes.items() if lane.hops}
        longest = max(waits.values(), default=0.0)
        self._due = min(self._due, now + min(self._period, max(SHORTEST, longest / LOOKS)))
        slow = [pair for pair, seconds in waits.items() if seconds > LATE]
        hops = [hop for pair in slow for hop in self._traffic.lanes[pair].hops if hop not in self._traffic.again]
        twice = sum(self.ledger.running[hop].piece.size for hop in hops)
        if not hops or self._twice + twice > max(TWICE * self.demand.size, LEAST):
            return
        self._traffic.again.update(hops)
        self._stock.count(self._traffic.counted)
        network = self._estimates.network(self._traffic.unused(now).union(slow))
        lots = self._lots()
        usable = reachable(network, lots)
        plan = directives(network, usable, self._traffic.lanes)
        if usable == lots and plan.seconds + float(SETUP) <= SOONER * longest:
            self._twice += twice
            running, wanted = self.ledger.running, self._traffic.wanted
            yield from self._take_back([hop for hop in hops if running[hop].sink != wanted[hop]])
            yield from self._adopt(now, plan)
        else:
            self._traffic.again.difference_update(hops)
            self._stock.count(self._traffic.counted)

    def _tidy(self, name: str, to: str) -> Iterator[Action]:
        """Nothing need come a second time that is there."""
        wanted = Intervals((piece.start, piece.end) for piece in self.ledger.missing(name, to))

        def needless(piece: Piece, wanted_at: str | None) -> bool:
            return piece.file == name and wanted_at == to and not wanted.within(piece.start, piece.end)

        running = self.ledger.running
        yield from self._take_back(
            [hop for hop, send in running.items() if needless(send.piece, self._traffic.wanted[hop])]
        )
        staged = [(host, piece) for host, pieces in self.ledger.staged.items() for piece in sorted(pieces)]
        yield from self._drop([key for key in staged if needless(key[1], self._stock.staged.get(key, to))])
        self._stock.count(self._traffic.counted)

    def _unstick(self, now: float) -> Iterator[Action]:
        """Nothing is under way and nothing can be: pieces wait for each other's space. They begin anew."""
        for begin_anew in (False, True):
            if self._moves(now):
                return
            if begin_anew:
                yield from self._drop([key for key in self._stock.staged if self._stock.origins(key[1].file)])
            yield from self._recompute(now)
            yield from self._hand_out(now)
        if not self._moves(now):
            self._hopeless = "nothing that is missing can be sent"

    def _moves(self, now: float) -> bool:
        if self.ledger.running or not self._stock or self._hopeless:
            return True
        return self._traffic.resumes_at(now) < inf

    def _drop(self, pieces: Iterable[tuple[str, Piece]]) -> Iterator[Action]:
        for host, piece in pieces:
            sending = any(send.source == host and send.piece == piece for send in self.ledger.running.values())
            if piece in self.ledger.staged[host] and not sending:
                yield Drop(host, piece)
