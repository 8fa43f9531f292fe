"""Methods that assign each piece a path from a holder to its destination, and another path after a failure.

The methods choose the paths, and the times at which a piece starts and continues. This module does the rest: a hop
begins only after its piece has arrived, failed pieces get other paths, and the final error names a missing file.
"""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from coalloc.collect.methods.actions import Action, CollectGiveUp, CollectWake, Drop, Piece, Send
from coalloc.collect.methods.base import Method
from coalloc.collect.methods.events import Arrived, CollectStarted, CollectTick, Event, Gone, HopFailed
from coalloc.collect.methods.recovery import Recovery
from coalloc.planner.network import Demand, File, Network

__all__ = ["Travelling", "Trip", "whole"]


@dataclass(eq=False)
class Trip:
    """A piece on its path: it is at `path[at]`, or in flight from there. A timetable starts it in step `start`."""

    piece: Piece
    path: tuple[str, ...]
    start: int = 0
    at: int = 0

    @property
    def to(self) -> str:
        """The destination."""
        return self.path[-1]

    @property
    def here(self) -> str:
        """The host that holds the piece."""
        return self.path[self.at]


def whole(file: File) -> Piece:
    """Return all of a file as one piece."""
    return Piece(file.name, 0, file.size)


class Travelling(Method):
    """A method that defines trips, and may delay them; `_go` continues a trip."""

    def __init__(self, network: Network, demand: Demand, seed: int = 0) -> None:
        super().__init__(network, demand, seed)
        self._recovery = Recovery(network, self.ledger)
        self._under_way: dict[int, list[Trip]] = {}
        self._trips: defaultdict[Piece, list[Trip]] = defaultdict(list)
        self._alarms: list[tuple[float, int, Trip | None]] = []
        self._order = count()
        self._began = 0.0
        self._wakes_at: float | None = None
        self._missing = ""

    @abstractmethod
    def _begin(self, now: float) -> Iterator[Action]:
        """Start the trips that begin at once."""

    def _onward(self, trip: Trip, now: float) -> Iterator[Action]:
        """Continue a trip after a hop that was not its last."""
        yield from self._go(trip, now)

    def _left(self, trip: Trip) -> None:
        """Handle a trip that leaves its path."""

    def _over(self, trip: Trip) -> None:
        """Handle a trip that has arrived, or cannot arrive."""

    def _next(self, now: float) -> Iterator[Action]:
        """Start or continue trips after any event."""
        yield from ()

    def _direct(self) -> Iterator[Trip]:
        """Yield a trip per file and destination: directly from a holder, the first if it can; else over relays."""
        for file in self.demand.files:
            for to in file.destinations:
                if self.ledger.missing(file.name, to):
                    path = self._recovery.path(whole(file), to, file.holders[0])
                    yield Trip(whole(file), path or (file.holders[0], to))

    def _decide(self, event: Event, ended: Sequence[Send]) -> Iterator[Action]:
        now = event.at
        if isinstance(event, CollectStarted):
            self._began = now
            yield from self._begin(now)
        elif isinstance(event, Gone):
            self._recovery.gone(event)
        elif isinstance(event, HopFailed) and not self.ledger.needs_nothing(ended[0]):
            self._recovery.failed(ended[0], event)
        elif isinstance(event, Arrived):
            self._recovery.arrived(ended[0])
        elif isinstance(event, CollectTick):
            self._wakes_at = None
        for send in ended:
            for trip in self._under_way.pop(send.hop):
                yield from self._ended(event, send, trip)
        while self._alarms and self._alarms[0][0] <= now:
            due = heappop(self._alarms)[2]
            if due:
                yield from self._go(due, now)
        yield from self._next(now)
        yield from self._rest()

    def _ended(self, event: Event, send: Send, trip: Trip) -> Iterator[Action]:
        if isinstance(event, Arrived):
            trip.at += 1
            if trip.here == trip.to:
                self._finish(trip)
            else:
                yield from self._onward(trip, event.at)
        elif isinstance(event, HopFailed | Gone):
            yield from self._reroute(trip, event.at, event.reason)

    def _finish(self, trip: Trip) -> None:
        self._trips[trip.piece].remove(trip)
        self._over(trip)

    def _rest(self) -> Iterator[Action]:
        """Schedule the next alarm, or give up if nothing is under way."""
        if self._alarms and self._alarms[0][0] != self._wakes_at:
            self._wakes_at = self._alarms[0][0]
            yield CollectWake(self._wakes_at)
        if not self.ledger.running and not self._alarms:
            yield CollectGiveUp(self._missing or "no piece is in flight any more")

    def _alarm(self, at: float, trip: Trip | None = None) -> None:
        """Set an alarm; the trip, if any, continues then."""
        heappush(self._alarms, (at, next(self._order), trip))

    def _go(self, trip: Trip, now: float) -> Iterator[Action]:
        """Begin the next hop of a trip as soon as possible."""
        if trip not in self._trips[trip.piece]:
            self._trips[trip.piece].append(trip)
        here, sink = trip.here, trip.path[trip.at + 1]
        there = self._began + self.ledger.files[trip.piece.file].available
        waits = max(there, self._recovery.rests_until(here, sink))
        if self.ledger.is_complete(trip.piece.file, trip.to):
            yield from self._reroute(trip, now, "the file was given up")
        elif not self.ledger.holds(here, trip.piece):
            yield from self._reroute(trip, now, f"{here} does not have it any more")
        elif not self._recovery.usable(here, sink) or (sink != trip.to and not self._recovery.relays(sink)):
            yield from self._reroute(trip, now, self._recovery.trouble(here, sink))
        elif now < waits:
            self._alarm(waits, trip)
        elif not self._joins(trip, sink):
            send = self._send(here, sink, trip.piece)
            self._under_way[send.hop] = [trip]
            yield send

    def _joins(self, trip: Trip, sink: str) -> bool:
        """Return whether the piece is already in flight to `sink`, for another destination.

        The trip then joins that hop, so that no piece is staged twice.
        """
        for hop, send in self.ledger.running.items() if len(self._trips[trip.piece]) > 1 else ():
            if (send.sink, send.piece) == (sink, trip.piece):
                self._under_way[hop].append(trip)
                return True
        return False

    def _reroute(self, trip: Trip, now: float, reason: str) -> Iterator[Action]:
        self._left(trip)
        complete = self.ledger.is_complete(trip.piece.file, trip.to)
        left, path = trip.here, None if complete else self._recovery.path(trip.piece, trip.to, trip.here)
        if path:
            trip.path, trip.at = path, 0
        elif complete:
            self._finish(trip)
        else:
            self._missing = f"{trip.piece.file} cannot reach {trip.to}: {reason}"
            self._finish(trip)
        if self._idle(left, trip.piece):
            yield Drop(left, trip.piece)
        if path:
            yield from self._go(trip, now)

    def _idle(self, host: str, piece: Piece, besides: Sequence[Trip] = ()) -> bool:
        """Return whether a piece is staged at a host, and no trip (except `besides`) still has to pass this host."""
        needed = any(host in trip.path[trip.at :] for trip in self._trips[piece] if trip not in besides)
        return piece in self.ledger.staged[host] and not needed

    def _purge(self, send: Send) -> Iterator[Drop]:
        if self._idle(send.source, send.piece, besides=self._under_way[send.hop]):
            yield from super()._purge(send)
