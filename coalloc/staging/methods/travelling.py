"""Methods whose pieces travel: each has its way from a holder to where it is wanted, and another when that fails.

What the methods decide is which ways there are, and when a piece sets out and goes on. All else is common: no hop
before its piece is there, other ways around what failed, and an end that says what is missing.
"""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from coalloc.planner.network import Demand, File, Network
from coalloc.staging.actions import Action, Drop, GiveUp, Piece, Send, Wake
from coalloc.staging.events import Arrived, Event, Failed, Gone, Started, Tick
from coalloc.staging.methods.base import Method
from coalloc.staging.recovery import Recovery

__all__ = ["Travelling", "Trip", "whole"]


@dataclass(eq=False)
class Trip:
    """A piece on its way: it is at `way[at]`, or on its way from there. In step `start` it sets out, by a timetable."""

    piece: Piece
    way: tuple[str, ...]
    start: int = 0
    at: int = 0

    @property
    def to(self) -> str:
        """Where it is wanted."""
        return self.way[-1]

    @property
    def here(self) -> str:
        """Who holds it."""
        return self.way[self.at]


def whole(file: File) -> Piece:
    """All of a file."""
    return Piece(file.name, 0, file.size)


class Travelling(Method):
    """A method says which trips there are, and may hold them back; `_go` lets them go on."""

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
        """Let go what goes at once."""

    def _onward(self, trip: Trip, now: float) -> Iterator[Action]:
        """A hop is over, and there are more."""
        yield from self._go(trip, now)

    def _left(self, trip: Trip) -> None:
        """A trip leaves the way that it had."""

    def _over(self, trip: Trip) -> None:
        """A trip is where it is wanted, or cannot get there."""

    def _next(self, now: float) -> Iterator[Action]:
        """Let go what may go now, after anything that happened."""
        yield from ()

    def _direct(self) -> Iterator[Trip]:
        """Every file from its first holder straight to where it is wanted; over others only where there is no link."""
        for file in self.demand.files:
            for to in file.destinations:
                if self.ledger.missing(file.name, to):
                    way = self._recovery.way(whole(file), to, file.holders[0])
                    yield Trip(whole(file), way or (file.holders[0], to))

    def _decide(self, event: Event, ended: Sequence[Send]) -> Iterator[Action]:
        now = event.at
        if isinstance(event, Started):
            self._began = now
            yield from self._begin(now)
        elif isinstance(event, Gone):
            self._recovery.gone(event)
        elif isinstance(event, Failed):
            self._recovery.failed(ended[0], event)
        elif isinstance(event, Arrived):
            self._recovery.arrived(ended[0])
        elif isinstance(event, Tick):
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
        elif isinstance(event, Failed | Gone):
            yield from self._reroute(trip, event.at, event.reason)

    def _finish(self, trip: Trip) -> None:
        self._trips[trip.piece].remove(trip)
        self._over(trip)

    def _rest(self) -> Iterator[Action]:
        """Wait for what comes, or say that nothing does."""
        if self._alarms and self._alarms[0][0] != self._wakes_at:
            self._wakes_at = self._alarms[0][0]
            yield Wake(self._wakes_at)
        if not self.ledger.running and not self._alarms:
            yield GiveUp(self._missing or "nothing is on its way any more")

    def _alarm(self, at: float, trip: Trip | None = None) -> None:
        """Come back at some time; a trip goes on then."""
        heappush(self._alarms, (at, next(self._order), trip))

    def _go(self, trip: Trip, now: float) -> Iterator[Action]:
        """The next hop of a trip, as soon as there is what it takes."""
        if trip not in self._trips[trip.piece]:
            self._trips[trip.piece].append(trip)
        here, sink = trip.here, trip.way[trip.at + 1]
        there = self._began + self.ledger.files[trip.piece.file].available
        waits = max(there, self._recovery.rests_until(here, sink))
        if not self.ledger.holds(here, trip.piece):
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
        """Whether the piece is on its way there already, for another destination: nothing is staged twice."""
        for hop, send in self.ledger.running.items() if len(self._trips[trip.piece]) > 1 else ():
            if (send.sink, send.piece) == (sink, trip.piece):
                self._under_way[hop].append(trip)
                return True
        return False

    def _reroute(self, trip: Trip, now: float, reason: str) -> Iterator[Action]:
        self._left(trip)
        left, way = trip.here, self._recovery.way(trip.piece, trip.to, trip.here)
        if way:
            trip.way, trip.at = way, 0
        else:
            self._missing = f"{trip.piece.file} cannot get to {trip.to}: {reason}"
            self._finish(trip)
        if self._idle(left, trip.piece):
            yield Drop(left, trip.piece)
        if way:
            yield from self._go(trip, now)

    def _idle(self, host: str, piece: Piece, besides: Sequence[Trip] = ()) -> bool:
        """Whether a piece is staged at a host, and nobody's way leads on from there."""
        needed = any(host in trip.way[trip.at :] for trip in self._trips[piece] if trip not in besides)
        return piece in self.ledger.staged[host] and not needed

    def _purge(self, send: Send) -> Iterator[Drop]:
        if self._idle(send.source, send.piece, besides=self._under_way[send.hop]):
            yield from super()._purge(send)
