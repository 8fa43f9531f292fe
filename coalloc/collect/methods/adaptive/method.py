"""Adaptive, the default method: a plan with relays that follows measurements (Confluence, 3 and 4.1).

A plan of least makespan determines how much each host sends to each other host. Each pair keeps about a second's worth
of pieces under way; when it has less, it gets its source's next piece, staged pieces first. If several next hosts can
take a piece, one is drawn at random, in proportion to the bytes that they still have to carry. Every period, all data
not under way are planned again, with capacities corrected by measurements; staged pieces may then be sent from their
relays or again from their origins. If no plan with relays is faster than the direct one, all data are sent directly. At
the end, slow hops are sent over another path, if that is faster.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import ClassVar

from coalloc.collect.methods.actions import Action, Cancel, CollectGiveUp, CollectWake, Drop, Piece, Send
from coalloc.collect.methods.adaptive.blocks import Stock
from coalloc.collect.methods.adaptive.directives import SETUP, WORTH, Directives, Lot, directives, reachable
from coalloc.collect.methods.adaptive.dispatch import Dispatch
from coalloc.collect.methods.adaptive.estimates import PEERS, Estimates, overlay
from coalloc.collect.methods.adaptive.link_queue import Pair
from coalloc.collect.methods.adaptive.traffic import HopTraffic
from coalloc.collect.methods.base import Method
from coalloc.collect.methods.events import (
    Arrived,
    CollectStarted,
    Event,
    Gone,
    HopFailed,
    HopFault,
    HopMoved,
    LinkHeld,
    Refused,
)
from coalloc.errors import UsageError
from coalloc.planner.network import Demand, Network

__all__ = ["AdaptiveCollecting"]

PERIOD, PERIODS = 15.0, 20
"""Maximum seconds between plans, and the desired number of plans for a collect job."""
SHORTEST = 1.0
"""Minimum seconds between plans; rates cannot be measured in less."""
LATE, SOONER = 1.5, 0.7
"""Remaining seconds of a pair above which a faster path is sought at the end, and the fraction that it may take."""
LOOKS = 8
"""Number of searches for a faster path within the remaining time."""


class AdaptiveCollecting(Method):
    """Confluence's protocol.

    :param peers: number of random hosts to which each host may send, besides destinations
    :param period: seconds between plans; inf for one plan only. By default a twentieth of the expected time, from 1 s
        to 15 s
    :raises UsageError: when there is a budget, which repeated plans cannot respect
    """

    name: ClassVar[str] = "adaptive"

    def __init__(
        self, network: Network, demand: Demand, seed: int = 0, *, peers: int = PEERS, period: float | None = None
    ) -> None:
        super().__init__(network, demand, seed)
        if demand.budget is not None:
            raise UsageError(
                "the method adaptive does not support a budget", "choose another method, or leave out the budget"
            )
        self._destinations = list(dict.fromkeys(to for file in demand.files for to in file.destinations))
        self._estimates = Estimates(overlay(network, self._destinations, self._random, peers))
        if len(self._destinations) > 1:  # a destination that relays could not tell its own data from others'
            for to in self._destinations:
                self._estimates.relays_no_more(to)
        self._traffic = HopTraffic(self._estimates, self._random)
        self._stock = Stock(self.ledger)
        self._dispatch = Dispatch(network, self.ledger, self._stock, self._traffic, self._estimates, self._random)
        self._plan = Directives()
        self._look: set[str] = set()
        self._began = self._planned_at = self._due = 0.0
        self._fixed, self._period = period, period or SHORTEST
        self._relayed = False
        self._gone: dict[str, str] = {}
        self._refusals: dict[str, str] = {}
        """The last reason why a host refused a file, by file."""

    def _decide(self, event: Event, ended: Sequence[Send]) -> Iterator[Action]:
        now, due = event.at, self._due
        if isinstance(event, CollectStarted):
            self._began = self._due = now
        elif isinstance(event, HopMoved):
            self._traffic.moved(now, self.ledger.running[event.hop], event.bytes)
        elif isinstance(event, LinkHeld):
            self._traffic.hold(now, (event.source, event.sink), event.over)
        elif isinstance(event, Arrived):
            self._arrived(now, ended[0])
        elif isinstance(event, HopFailed):
            self._failed(event, ended[0])
        elif isinstance(event, Gone):
            self._remove_host(event, ended)
        elif isinstance(event, Refused):
            self._due = now  # the next count of the stock leaves the file out
        if now >= self._due:
            yield from self._recompute(now)
        yield from self._hand_out(now)
        yield from self._unstick(now)
        if self._due != due and self._due < inf:
            yield CollectWake(self._due)
        if not self._goes_on(now):
            name, to = min(self._stock.missing())
            yield CollectGiveUp(f"{name} cannot reach {to}: {self._trouble(name, to)}")

    # Events

    def _arrived(self, now: float, send: Send) -> None:
        to = self._traffic.arrived(now, send)
        self._stock.left(send.source, send.piece)
        if to != send.sink:
            self._stock.stage(send.sink, send.piece, to)
        self._look |= {send.source, send.sink, *self._dispatch.senders(send.source)}

    def _failed(self, event: HopFailed, send: Send) -> None:
        to = self._traffic.over(send)
        if self.ledger.needs_nothing(send):  # the file was refused, which is no failure of the pair
            self._soon(event.at)
            return
        if send.piece not in self.ledger.staged[send.source]:
            self._stock.left(send.source, send.piece)
        if event.fault is HopFault.FILE and send.source in self.ledger.files[send.piece.file].holders:
            self._refusals[send.piece.file] = event.reason
            self._stock.refused(send.source, send.piece.file)
        elif event.fault is HopFault.SINK and to != send.sink:
            self._dispatch.limit(send.sink, self.ledger.occupied(send.sink))
        else:
            for_good = event.fault is HopFault.NO_LINK
            self._traffic.failed(event.at, (send.source, send.sink), event.reason, for_good=for_good)
        self._dispatch.returned(send, to)
        self._soon(event.at)

    def _remove_host(self, event: Gone, ended: Sequence[Send]) -> None:
        for send in ended:
            self._traffic.over(send)
        self._traffic.gone(event.host)
        self._gone[event.host] = event.reason
        self._due = event.at

    def _soon(self, now: float) -> None:
        self._due = min(self._due, max(now, self._planned_at + SHORTEST))

    # Plans

    def _recompute(self, now: float) -> Iterator[Action]:
        self._traffic.measure(now, self._plan, self._planned_at)
        for pair in list(self._traffic.stalled(now)):
            yield from self._take_back(list(self._traffic.queues[pair].hops))
            self._traffic.failed(now, pair, f"{pair[0]} sends no more data")
        slow = self._traffic.overloaded(now, self._plan)
        yield from self._take_back([hop for hops in slow.values() for hop in hops])
        yield from self._take_back([hop for hop, to in self._traffic.wanted.items() if to in self._gone])
        self._stock.count(self._traffic.wanted, now - self._began)
        self._planned_at = now
        self._due = min(self._traffic.resumes_at(now), self._began + self._stock.later)
        network, lots = self._usable(now, slow)
        if reachable(network, self._stock.lots()):
            yield from self._adopt(now, directives(network, lots, self._traffic.queues))
        else:
            yield from self._hurry(now)

    def _usable(self, now: float, slow: Collection[Pair]) -> tuple[Network, Mapping[Lot, int]]:
        """Return the network without paused pairs, and the lots that can be sent over it.

        Slow pairs are left out too, so that the hops taken back from them go elsewhere, unless only they can send some
        of the data.
        """
        unused, lots = self._traffic.unused(now), self._lots(self._traffic.wanted)
        network = self._estimates.network(unused | set(slow))
        if slow and reachable(network, lots) != lots:
            network = self._estimates.network(unused)
        return network, reachable(network, lots)

    def _take_back(self, hops: Sequence[int]) -> Iterator[Action]:
        for hop in hops:
            self._traffic.over(self.ledger.running[hop])
            yield Cancel(hop)

    def _lots(self, under_way: Mapping[int, str]) -> Counter[Lot]:
        """Return all missing data; pieces in flight count as at their next host, or, on the last hop, as not begun."""
        lots = self._stock.lots()
        for hop, to in under_way.items():
            send = self.ledger.running[hop]
            lot = Lot((send.source,), "", to) if send.sink == to else self._stock.lot(send.sink, send.piece, to)
            lots[lot] += max(1, send.piece.size)
        return lots

    def _adopt(self, now: float, plan: Directives) -> Iterator[Action]:
        self._plan = plan
        if self._fixed is None:
            self._period = max(SHORTEST, min(PERIOD, (now - self._began + plan.seconds) / PERIODS))
        self._due = min(self._due, now + self._period)
        self._traffic.remember(self._period)
        running, wanted = self.ledger.running.values(), self._traffic.wanted
        self._dispatch.follow(plan, self._period, [send for send in running if wanted[send.hop] == send.sink])
        self._explain(now)
        for lot, nbytes in plan.recalled.items():
            yield from self._drop([(lot.staged, piece) for piece in self._stock.recall(lot, nbytes)])
        self._look.update(self.network.hosts)

    def _explain(self, now: float) -> None:
        """Describe the first plan, and the first plan with relays if that is a later plan."""
        plan = self._plan
        if plan.is_direct and not self.rationale:
            self.rationale = f"direct, {plan.seconds:.3g} s: no path over other hosts is {float(WORTH):.0%} faster"
        elif not plan.is_direct and not self._relayed:
            self._relayed = True
            over = sorted({path[0] for path in plan.rates} & {path[1] for path in plan.rates})
            direct = "" if plan.direct_seconds is None else f" instead of {plan.direct_seconds:.3g} s direct"
            words = f"over {', '.join(over)}: {plan.seconds:.3g} s{direct}"
            self.rationale = f"{self.rationale}; after {now - self._began:.3g} s {words}" if self.rationale else words

    # Pieces

    def _hand_out(self, now: float) -> Iterator[Action]:
        while self._look:
            look, self._look = sorted(self._look), set()
            for host in look:
                for to in self._destinations:
                    while found := self._dispatch.next(now, host, to):
                        send = self._send(host, *found)
                        self._traffic.work(now, send, to)
                        self._look |= self._dispatch.senders(host)
                        yield send

    # The end

    def _hurry(self, now: float) -> Iterator[Action]:
        """Move the hops of slow pairs to another path if that is faster. Called when all data are under way."""
        waits = {p: self._traffic.seconds(now, p) for p, queue in self._traffic.queues.items() if queue.hops}
        if not waits:
            return
        longest = max(waits.values())
        self._due = min(self._due, now + min(self._period, max(SHORTEST, longest / LOOKS)))
        slow = [pair for pair, seconds in waits.items() if seconds > LATE]
        if hops := [hop for pair in slow for hop in self._traffic.queues[pair].hops]:
            others = {hop: to for hop, to in self._traffic.wanted.items() if hop not in hops}
            self._stock.count(others, now - self._began)
            network = self._estimates.network(self._traffic.unused(now).union(slow))
            lots = self._lots(others)
            usable = reachable(network, lots)
            plan = directives(network, usable, self._traffic.queues)
            if usable == lots and plan.seconds + float(SETUP) <= SOONER * longest:
                yield from self._take_back(hops)
                yield from self._adopt(now, plan)
            else:
                self._stock.count(self._traffic.wanted, now - self._began)

    def _unstick(self, now: float) -> Iterator[Action]:
        """Plan again if nothing is under way; if that does not help, first drop staged pieces that origins can resend.

        Such pieces may wait for each other's space.
        """
        for begin_anew in (False, True):
            if self._goes_on(now):
                return
            if begin_anew:
                yield from self._drop([key for key in self._stock.staged if self._stock.origins(key[1].file)])
            yield from self._recompute(now)
            yield from self._hand_out(now)

    def _goes_on(self, now: float) -> bool:
        return bool(self.ledger.running) or min(self._traffic.resumes_at(now), self._stock.later) < inf

    def _trouble(self, name: str, to: str) -> str:
        holders = self.ledger.files[name].holders
        dead = [host for host in (to, *holders) if host in self._gone]
        if to in dead or len(dead) == len(holders):
            return self._gone[dead[0]]
        if name in self._refusals and not self._stock.origins(name):
            return self._refusals[name]
        return self._traffic.trouble(holders, to)

    def _drop(self, pieces: Iterable[tuple[str, Piece]]) -> Iterator[Action]:
        for host, piece in pieces:
            if piece in self.ledger.staged[host]:
                yield Drop(host, piece)
