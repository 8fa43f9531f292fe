"""Which piece a host sends next, and where to, by the directives of a plan (Confluence, 3.3, 3.4 and 4.1). Pure."""

from collections import Counter
from collections.abc import Iterable
from random import Random

from coalloc.planner.network import Network
from coalloc.staging.actions import Piece, Send
from coalloc.staging.blocks import LEAST, MOST, QUEUE, WINDOW, Stock, piece_size
from coalloc.staging.directives import Directives
from coalloc.staging.estimates import Estimates
from coalloc.staging.lanes import Pair
from coalloc.staging.ledger import Ledger
from coalloc.staging.traffic import Traffic

__all__ = ["Dispatch"]

AHEAD = 2.0
"""Seconds of what an intermediate should send on that may wait there. More only occupies space."""
ROOM = 4 * LEAST
"""Bytes of space below which a host is not worth being a relay."""


class Dispatch:
    """Hands out what is in stock.

    :param network: whose hosts lend storage
    :param chance: for choices between ways
    """

    def __init__(
        self, network: Network, ledger: Ledger, stock: Stock, traffic: Traffic, estimates: Estimates, chance: Random
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
        """A host keeps no more than so many bytes for others."""
        self._room[host] = room
        if room < ROOM:
            self._estimates.relays_no_more(host)

    def follow(self, plan: Directives, period: float, home: Iterable[Send]) -> None:
        """Another plan, and for how many seconds.

        :param home: hops under way to where their pieces are wanted: the plan counts them as not begun
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
        """The hosts that send to one by the plan: when there is room again, they may go on."""
        return self._senders.get(host, set())

    def returned(self, send: Send, to: str) -> None:
        """A hop brought nothing: its piece is in stock again, and has still to be sent."""
        self._stock.put(send.source, send.piece, to)
        self._left.setdefault((send.source, to), Counter())[send.sink] += send.piece.size

    def next(self, now: float, host: str, to: str) -> tuple[str, Piece] | None:
        """What a host sends next of what is wanted at `to`, and to which host; taken out of the stock."""
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
        """Whether an intermediate has a piece, or gets it, for another destination: one after the other."""
        if len(self._ledger.files[piece.file].destinations) == 1:
            return False
        coming = ((send.sink, send.piece) for send in self._ledger.running.values())
        return piece in self._ledger.staged[sink] or (sink, piece) in coming

    def _receiver(self, now: float, host: str, to: str) -> str | None:
        """Where the next piece goes: Pr[y] of 3.3, among those that can take it and should carry half of it at least.

        By the paper a piece waits for the one that chance names, even where another one is idle.
        """
        size = self._stock.next_size(host, to)
        left = {sink: nbytes for sink, nbytes in self._left.get((host, to), {}).items() if nbytes > 0}
        if not left:
            return self._stranded(now, host, to, size)
        worth = {sink: nbytes for sink, nbytes in left.items() if nbytes >= size / 2} or left
        free = {sink: nbytes for sink, nbytes in worth.items() if self._takes(now, host, sink, to)}
        return self._chance.choices(list(free), list(free.values()))[0] if free else None

    def _stranded(self, now: float, host: str, to: str, size: int) -> str | None:
        """Where a piece goes that no plan counts on: home if the end is near (final_computation, 3.4).

        Before, it goes where most goes from there, as what was rounded off; where nothing goes it waits for a plan.
        """
        planned = self._left.get((host, to))
        sink = max(planned, key=lambda each: self._plan.rates.get((host, each), 0.0)) if planned else None
        within = self._estimates.capacity((host, to)) * self._period
        if self._plan.seconds <= self._period and 0 < within >= size:
            sink = to
        return sink if sink and self._takes(now, host, sink, to) else None

    def _takes(self, now: float, host: str, sink: str, to: str) -> bool:
        """Whether a pair may have another piece: about a second's worth, and no more than fits at an intermediate."""
        lane = self._traffic.lanes[host, sink]
        enough = lane.under_way >= self._plan.rates.get((host, sink), 0.0) * WINDOW and len(lane.hops) > 1
        if enough or len(lane.hops) >= QUEUE or lane.given_up or now < lane.resumes_at:
            return False
        if sink == to:
            return True
        ahead = max(AHEAD * self._outward[sink], 2 * LEAST)
        return self._stock.backlog[sink] <= ahead and self._largest(sink) >= self._stock.next_size(host, to)

    def _largest(self, sink: str) -> int:
        """Bytes of the largest piece that an intermediate may be sent, so that it fits there and wherever it goes."""
        room = self._room.get(sink)
        largest = min((room // 4 for room in self._room.values() if room >= ROOM), default=MOST)
        return largest if room is None else min(largest, room - self._ledger.occupied(sink))
