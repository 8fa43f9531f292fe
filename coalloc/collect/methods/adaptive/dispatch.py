"""The next piece of each host and its next hop, by the directives of a plan (Confluence, 3.3, 3.4 and 4.1). Pure."""

from collections import Counter
from collections.abc import Iterable
from random import Random

from coalloc.collect.methods.actions import Piece, Send
from coalloc.collect.methods.adaptive.blocks import LEAST, MOST, QUEUE, WINDOW, Stock, piece_size
from coalloc.collect.methods.adaptive.directives import Directives
from coalloc.collect.methods.adaptive.estimates import Estimates
from coalloc.collect.methods.adaptive.link_queue import Pair
from coalloc.collect.methods.adaptive.traffic import HopTraffic
from coalloc.collect.methods.ledger import Ledger
from coalloc.planner.network import Network

__all__ = ["Dispatch"]

AHEAD = 2.0
"""Maximum seconds of data that wait at a relay to be sent on; more would only occupy space."""
ROOM = 4 * LEAST
"""Minimum bytes of space that a relay needs."""


class Dispatch:
    """An assigner of pieces from the stock to hops.

    :param network: network whose hosts limit their storage for relayed data
    :param chance: random numbers for the choice of next hops
    """

    def __init__(
        self, network: Network, ledger: Ledger, stock: Stock, traffic: HopTraffic, estimates: Estimates, chance: Random
    ) -> None:
        self._ledger, self._stock, self._traffic, self._estimates = ledger, stock, traffic, estimates
        self._chance = chance
        self._plan = Directives()
        self._period = 0.0
        self._left: dict[Pair, Counter[str]] = {}
        self._senders: dict[str, set[str]] = {}
        self._outward: Counter[str] = Counter()
        self._room: dict[str, int] = {}
        for name, host in network.hosts.items():
            if host.storage is not None:
                self.limit(name, host.storage)

    def limit(self, host: str, room: int) -> None:
        """Limit the bytes that a host may stage."""
        self._room[host] = room
        if room < ROOM:
            self._estimates.relays_no_more(host)

    def follow(self, plan: Directives, period: float, home: Iterable[Send]) -> None:
        """Follow a new plan.

        :param period: seconds until the next plan
        :param home: hops in flight to their pieces' destinations; the plan treats them as not begun
        """
        self._plan, self._period = plan, period
        self._left = {pair: Counter(left) for pair, left in plan.left.items()}
        for send in home:
            self._left.setdefault((send.source, send.sink), Counter())[send.sink] -= send.piece.size
        self._senders, self._outward = {}, Counter()
        for (source, sink), rate in plan.rates.items():
            self._senders.setdefault(sink, set()).add(source)
            self._outward[source] += int(rate)

    def senders(self, host: str) -> set[str]:
        """Return the hosts that send to `host` by the plan; they may continue when it has room again."""
        return self._senders.get(host, set())

    def returned(self, send: Send, to: str) -> None:
        """Put the piece of a failed hop back into the stock, to be sent again."""
        self._stock.put(send.source, send.piece, to)
        self._left.setdefault((send.source, to), Counter())[send.sink] += send.piece.size

    def next(self, now: float, host: str, to: str) -> tuple[str, Piece] | None:
        """Take the next piece of a host for `to` out of the stock; return it with its next host, or None."""
        sink = self._receiver(now, host, to) if self._stock.has(host, to) else None
        if sink is None:
            return None
        left = self._left.setdefault((host, to), Counter())
        rate = self._plan.rates.get((host, sink)) or self._estimates.capacity((host, sink))
        size = piece_size(rate, max(left[sink], 0), self._plan.seconds)
        piece = self._stock.take(host, to, size, MOST if sink == to else self._largest(sink))
        if self._is_there(sink, piece):
            self._stock.put(host, piece, to)
            return None
        left[sink] -= piece.size
        return sink, piece

    def _is_there(self, sink: str, piece: Piece) -> bool:
        """Return whether a relay has or receives this piece for another destination; the piece must then wait."""
        if len(self._ledger.files[piece.file].destinations) == 1:
            return False
        coming = ((send.sink, send.piece) for send in self._ledger.running.values())
        return piece in self._ledger.staged[sink] or (sink, piece) in coming

    def _receiver(self, now: float, host: str, to: str) -> str | None:
        """Return the next host of a piece, drawn by Pr[y] of 3.3 from the hosts that can take it now.

        Hosts planned to carry less than half of the piece are skipped, unless this is so for all. In the paper, unlike
        here, a piece waits for the host that was drawn, even if another host is idle.
        """
        size = self._stock.next_size(host, to)
        left = {sink: nbytes for sink, nbytes in self._left.get((host, to), {}).items() if nbytes > 0}
        if not left:
            return self._stranded(now, host, to, size)
        worth = {sink: nbytes for sink, nbytes in left.items() if nbytes >= size / 2} or left
        free = {sink: nbytes for sink, nbytes in worth.items() if self._takes(now, host, sink, to)}
        return self._chance.choices(list(free), list(free.values()))[0] if free else None

    def _stranded(self, now: float, host: str, to: str, size: int) -> str | None:
        """Return the next host of a piece outside the plan, such as a rounding remainder; None to wait.

        Near the end of the job it is the destination (final_computation, 3.4). Before, it is the host to which `host`
        sends at the highest rate; if there is none, the piece waits for a plan.
        """
        planned = self._left.get((host, to))
        sink = max(planned, key=lambda each: self._plan.rates.get((host, each), 0.0)) if planned else None
        within = self._estimates.capacity((host, to)) * self._period
        if self._plan.seconds <= self._period and 0 < within >= size:
            sink = to
        return sink if sink and self._takes(now, host, sink, to) else None

    def _takes(self, now: float, host: str, sink: str, to: str) -> bool:
        """Return whether a pair may get another piece: its queue is short, and its sink has room.

        A queue is short if it has at most one piece, or lasts less than `WINDOW` seconds.
        """
        queue = self._traffic.queues[host, sink]
        enough = queue.under_way >= self._plan.rates.get((host, sink), 0.0) * WINDOW and len(queue.hops) > 1
        if enough or len(queue.hops) >= QUEUE or queue.given_up or now < queue.resumes_at:
            return False
        if sink == to:
            return True
        ahead = max(AHEAD * self._outward[sink], 2 * LEAST)
        return self._stock.backlog[sink] <= ahead and self._largest(sink) >= self._stock.next_size(host, to)

    def _largest(self, sink: str) -> int:
        """Return the bytes of the largest piece that fits at this relay now, and at any other relay later."""
        room = self._room.get(sink)
        largest = min((room // 4 for room in self._room.values() if room >= ROOM), default=MOST)
        return largest if room is None else min(largest, room - self._ledger.occupied(sink))
