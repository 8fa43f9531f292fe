"""Collecting with guaranteed rates for classes of files. Files go directly, without relays.

First only files of classes are fetched, so that their servers are measured; then each class is promised its rate, or
the job is refused. From then on, a server sends the class with the highest share that is less than `AHEAD` seconds
ahead of its rate, otherwise the files without a class, otherwise classes that are ahead. While a class is about to be
late, files without a class wait at all servers, as these may share a link, but only if this helps.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import ClassVar

from coalloc.collect.methods.actions import Action, CollectRefuse, Piece, Send
from coalloc.collect.methods.events import Arrived, CollectStarted, Event, Gone, HopFailed, HopMoved, LinkHeld, Refused
from coalloc.collect.methods.travelling import Travelling, Trip
from coalloc.collect.values import GuaranteedClass
from coalloc.guarantees.admission import CONFIDENCE
from coalloc.guarantees.class_admission import ClassNeed, admit_classes
from coalloc.guarantees.class_pace import ClassPace
from coalloc.guarantees.samples import PathSamples
from coalloc.model.promises import RateReport, RateView, ReadingRate
from coalloc.planner.network import Demand, File, Network

__all__ = ["Guaranteed"]

TICK = 0.25
"""Seconds between two looks: half a window, as `PathSamples.add` wants it."""
PATIENCE = 10.0
"""Seconds after the first byte for which rates are measured before a class is refused."""
AHEAD, LOW = 6.0, 3.0
"""Seconds of its rate that a class is kept ahead; those below which files without a class wait at all servers."""
HELPS, AGAIN, NOTICED = 5.0, 30.0, 0.1
"""Seconds after which a wait must have helped; those until the next one if it has not; the part of its rate by which
the class must have become faster."""
PIECE_SECONDS, LEAST, MOST = 1.0, 256 * 1024, 64 << 20
"""Length of a piece, its minimum and its maximum bytes."""
QUEUED = 2
"""Pieces in flight or waiting at each server: the next one begins without a pause."""


class _FileClass:
    """The state of one class.

    :ivar first: what was promised; None before
    """

    def __init__(self, wanted: GuaranteedClass, clock: float) -> None:
        self.wanted = wanted
        self.rate = ReadingRate(wanted.rate, wanted.share)
        self.size = self.arrived = 0
        self.left: Counter[tuple[str, ...]] = Counter()
        self.pace: ClassPace | None = None
        self.view = RateView(self.rate, clock)

    def add(self, file: File) -> None:
        """Count a file that belongs to the class."""
        self.size += file.size
        self.left[file.holders] += file.size

    def count(self, file: File, nbytes: int) -> None:
        """Count bytes of a file that have arrived, or with a negative number, that are lost again."""
        self.arrived += nbytes
        self.left[file.holders] -= nbytes

    def ahead(self, now: float) -> float:
        """Return the seconds by which the class is ahead; 0 before it is promised."""
        return self.pace.ahead(now) if self.pace else 0.0


class _Wait:
    """The wait of files without a class for one that is about to be late."""

    def __init__(self) -> None:
        self.is_on = False
        self._past: deque[tuple[float, float]] = deque()
        self._before = self._next = 0.0

    def look(self, ahead: float, now: float) -> None:
        """Begin or end the wait; `ahead` is that of the class that is least ahead."""
        self._past.append((now, ahead))
        while now - self._past[0][0] > HELPS:
            self._past.popleft()
        began, at_first = self._past[0]
        gain = (ahead - at_first) / (now - began) if now > began else 0.0
        if not self.is_on:
            if ahead < LOW and now >= self._next:
                self.is_on, self._before, self._next = True, gain, now + HELPS
        elif ahead >= AHEAD:
            self.is_on = False
        elif now >= self._next:
            self.is_on = gain >= self._before + NOTICED
            self._next = now + (HELPS if self.is_on else AGAIN)


class Guaranteed(Travelling):
    """Direct transfers in which classes of files get their rates.

    :param classes: a file belongs to the first whose pattern fits
    :param clock: seconds since the epoch at second 0 of the events' clock
    """

    name: ClassVar[str] = "guaranteed"

    def __init__(
        self, network: Network, demand: Demand, classes: Sequence[GuaranteedClass], clock: float, seed: int = 0
    ) -> None:
        super().__init__(network, demand, seed)
        self.rationale = "files of classes come first, as far as their rates need it"
        self._clock = clock
        self._classes = [_FileClass(each, clock) for each in classes]
        self._by_share = sorted(self._classes, key=lambda each: -each.wanted.share)
        self._class_of: dict[str, _FileClass] = {}
        self._came: Counter[str] = Counter()
        self._queues: defaultdict[tuple[str, _FileClass | None], deque[str]] = defaultdict(deque)
        self._cut: dict[str, int] = {}
        """Bytes of each file that were given to trips; files without bytes left are not in it."""
        self._counted: dict[int, int] = {}
        self._paths: dict[str, PathSamples] = {}
        self._bytes: Counter[str] = Counter()
        self._measured: Counter[str] = Counter()
        self._rates: dict[str, float] = {}
        self._limited: set[str] = set()
        self._held: set[str] = set()
        self._first_byte: float | None = None
        self._looks_at = 0.0
        self._promised = False
        self._in_trouble = True
        self._wait = _Wait()

    def _begin(self, now: float) -> Iterator[Action]:
        for file in self.demand.files:
            if not any(self.ledger.missing(file.name, to) for to in file.destinations):
                continue
            found = next((each for each in self._classes if fnmatchcase(file.name, each.wanted.pattern)), None)
            if found:
                found.add(file)
                self._class_of[file.name] = found
            self._cut[file.name] = 0
            for host in file.holders:
                self._queues[host, found].append(file.name)
        yield from ()

    def _decide(self, event: Event, ended: Sequence[Send]) -> Iterator[Action]:
        if isinstance(event, HopMoved) and (send := self.ledger.running.get(event.hop)):
            self._count(send, event.bytes, event.at)
        elif isinstance(event, Arrived):
            self._count(ended[0], ended[0].piece.size, event.at)
        elif isinstance(event, LinkHeld):
            (self._held.discard if event.over else self._held.add)(event.source)
            self._limited.add(event.source)
        elif isinstance(event, Refused):
            self._forget(event.file)
        for send in ended:
            if isinstance(event, HopFailed | Gone):
                self._count(send, 0, event.at)
            self._counted.pop(send.hop, None)
        self._in_trouble |= isinstance(event, CollectStarted | HopFailed | Gone)
        yield from super()._decide(event, ended)

    def _count(self, send: Send, arrived: int, now: float) -> None:
        """Record how much of a piece has arrived so far."""
        file = self.ledger.files[send.piece.file]
        if send.sink not in file.destinations:
            return
        more = arrived - self._counted.get(send.hop, 0)
        self._counted[send.hop] = arrived
        self._bytes[send.source] += max(0, more)
        if more > 0 and self._first_byte is None:
            self._first_byte = now
        if found := self._class_of.get(file.name):
            found.count(file, more)
            self._came[file.name] += more

    def _forget(self, name: str) -> None:
        """Leave a file out that no server sends: its class is complete without it."""
        self._cut.pop(name, None)
        if found := self._class_of.pop(name, None):
            file = self.ledger.files[name]
            found.size -= file.size
            found.count(file, -self._came[name])
            found.left[file.holders] -= file.size
            if found.pace:
                found.pace.shrink(found.size)

    def _next(self, now: float) -> Iterator[Action]:
        looks = now >= self._looks_at
        if looks:
            self._looks_at = now + TICK
            self._measure(now)
            for each in self._classes:
                if each.pace:
                    each.pace.note(each.arrived, now)
            if not self._promised and (refused := self._admit(now)):
                yield refused
                return
            if self._promised:
                coming = {self._class_of.get(send.piece.file) for send in self.ledger.running.values()}
                self._wait.look(min((each.ahead(now) for each in coming if each), default=AHEAD), now)
        yield from self._strand(now)
        for host in dict.fromkeys(host for host, _ in self._queues):
            yield from self._fill(host, now)
        if looks and self.ledger.running:
            self._alarm(self._looks_at)

    def _measure(self, now: float) -> None:
        """Add what each server has sent since the last look, from its first bytes on."""
        for host, total in self._bytes.items():
            limited = host in self._limited or host in self._held
            more, self._measured[host] = total - self._measured[host], total
            self._paths.setdefault(host, PathSamples()).add(more, now, limited)
            self._rates[host] = (3 * self._rates.get(host, 0.0) + more / TICK) / 4
        self._limited.clear()

    def _admit(self, now: float) -> CollectRefuse | None:
        """Promise all classes their rates as soon as enough is known; return the refusal of the first that has none."""
        needs = [ClassNeed(each.wanted.rate, each.left) for each in self._by_share]
        outlooks = admit_classes(needs, self._paths)
        measured = self._first_byte is not None and now - self._first_byte >= PATIENCE
        for each, outlook in zip(self._by_share, outlooks, strict=True):
            chance, possible = outlook or (0.0, 0.0)
            if chance < CONFIDENCE and not measured:
                return None
            each.view = RateView(each.rate, self._clock + now, chance, possible if chance < CONFIDENCE else None)
            if chance < CONFIDENCE:
                return CollectRefuse(each.wanted.pattern, each.view)
        for each in self._classes:
            each.pace = ClassPace(each.wanted.rate, each.size, each.arrived, now)
        self._promised = True
        return None

    def _strand(self, now: float) -> Iterator[Action]:
        """Let the base find relays for files that no server sends directly any more, or give them up."""
        if not self._in_trouble:
            return
        self._in_trouble = False
        for name in list(self._cut):
            file = self.ledger.files[name]
            if not any(self._usable(host, file) for host in file.holders):
                piece = Piece(name, self._cut.pop(name), file.size)
                yield from self._go(Trip(piece, (file.holders[0], file.destinations[0])), now)

    def _usable(self, host: str, file: File) -> bool:
        return all(self._recovery.usable(host, to) for to in file.destinations)

    def _fill(self, host: str, now: float) -> Iterator[Action]:
        """Give a server its next pieces."""
        sending = sum(send.source == host for send in self.ledger.running.values())
        while sending < QUEUED and (name := self._choose(host, now)):
            file = self.ledger.files[name]
            to = file.destinations[0]
            if not self._usable(host, file):
                return
            if (waits := self._recovery.rests_until(host, to)) > now:
                self._alarm(waits)
                return
            yield from self._go(Trip(self._take(file, host), (host, to)), now)
            sending += 1
        if not sending:
            self._limited.add(host)

    def _choose(self, host: str, now: float) -> str | None:
        """Return the file from which a server sends next; None if it has none, or is to wait."""
        behind = [each for each in self._by_share if not each.pace or each.ahead(now) < AHEAD]
        others: list[_FileClass | None] = []
        if self._promised and not self._wait.is_on:
            others = [None, *(each for each in self._by_share if each not in behind)]
        for each in (*behind, *others):
            queue = self._queues[host, each]
            while queue and queue[0] not in self._cut:
                queue.popleft()
            if queue:
                return queue[0]
        return None

    def _take(self, file: File, host: str) -> Piece:
        """Cut the next piece off a file: about a second's bytes."""
        start = self._cut[file.name]
        size = int(min(MOST, max(LEAST, PIECE_SECONDS * self._rates.get(host, 0.0))))
        end = file.size if file.size - start < 1.5 * size else start + size
        if end == file.size:
            del self._cut[file.name]
        else:
            self._cut[file.name] = end
        return Piece(file.name, start, end)

    def guarantees(self) -> Mapping[str, RateReport]:
        return {
            each.wanted.pattern: RateReport(each.view, (), *(each.pace.result if each.pace else (0, 0)))
            for each in self._classes
        }
