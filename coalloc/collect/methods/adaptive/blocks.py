"""The pieces of a collect job that are not under way: at their origins, not cut yet, or staged at a relay. Pure."""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator, Mapping
from math import inf

from coalloc.collect.methods.actions import Piece
from coalloc.collect.methods.adaptive.directives import Lot
from coalloc.collect.methods.adaptive.link_queue import Pair
from coalloc.collect.methods.ledger import Ledger
from coalloc.util.intervals import Intervals

__all__ = ["LEAST", "MOST", "WINDOW", "Stock", "piece_size"]

WINDOW = 1.0
"""Seconds of data, at the planned rate, that are assigned to a pair at a time (4.1)."""
LEAST, MOST = 64 * 1024, 64 * 1024 * 1024
"""Minimum and maximum bytes of a piece: large enough to make its commands cheap, small enough to arrive soon."""
SHORTEST, LONGEST = 0.2, 0.5
"""Minimum and maximum seconds for a piece: the delay of each hop, as relays receive a piece before they send it."""
PIECES = 400
"""Desired number of pieces per pair, within the limits above."""
TAIL = 8
"""Minimum number of pieces into which a pair's remaining bytes are cut, so that all pairs end together."""
QUEUE = 16
"""Maximum number of a pair's pieces under way at once."""


def piece_size(rate: float, left: int, seconds: float) -> int:
    """Return the bytes of the next piece of a pair.

    >>> piece_size(10e6, 800_000_000, 80.0), piece_size(10e6, 8_000_000, 80.0), piece_size(10e3, 10**9, 80.0)
    (2000000, 1000000, 65536)

    :param rate: planned rate in bytes per second
    :param left: bytes that the pair has to send by the plan
    :param seconds: planned duration of the collect job
    """
    whole = rate * min(max(seconds / PIECES, SHORTEST), LONGEST)
    return int(min(max(min(whole, left / TAIL), rate * WINDOW / QUEUE, LEAST), MOST))


class Stock:
    """The data that can be sent, by the host that holds them and the destination.

    `count` recomputes it from the ledger, so that no data are forgotten after failures of hosts and hops.

    :param ledger: the positions of all pieces
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.staged: dict[tuple[str, Piece], str] = {}
        """The destination of each piece that is staged at a host."""
        self.backlog: Counter[str] = Counter()
        """Bytes that are staged at a host and wait to be sent on."""
        self.later = inf
        """Time at which the next file becomes available, in seconds from the start."""
        self._waiting: defaultdict[Pair, deque[Piece]] = defaultdict(deque)
        self._home: dict[Pair, Intervals] = {
            (name, to): Intervals() for name, file in ledger.files.items() for to in file.destinations
        }
        self._files: defaultdict[Pair, deque[str]] = defaultdict(deque)

    def count(self, under_way: Mapping[int, str], elapsed: float = inf) -> None:
        """Recompute the stock.

        :param under_way: destination of the piece of each hop that continues; the pieces of other hops are sent again
        :param elapsed: seconds from the start
        """
        self.backlog.clear()
        self._waiting.clear()
        self._files.clear()
        running = self._ledger.running
        moving = {(running[hop].source, running[hop].piece) for hop in under_way}
        self.staged = {key: to for key, to in self.staged.items() if key[1] in self._ledger.staged[key[0]]}
        self._count_home([(running[hop].piece, to) for hop, to in under_way.items()], elapsed)
        for (host, piece), to in self.staged.items():
            if (host, piece) not in moving:
                self._wait(host, piece, to)

    def _count_home(self, moving: Collection[tuple[Piece, str]], elapsed: float) -> None:
        elsewhere = {*moving, *((piece, to) for (_, piece), to in self.staged.items())}
        later = {name: file.available for name, file in self._ledger.files.items() if file.available > elapsed}
        self.later = min(later.values(), default=inf)
        for name, to in self._home:
            missing = [] if name in later else self._ledger.missing(name, to)
            self._home[name, to] = Intervals((piece.start, piece.end) for piece in missing)
        for piece, to in elsewhere:
            self._home[piece.file, to].remove(piece.start, piece.end)
        for name, to in sorted(self._home, key=self._copies):
            empty, origins = Piece(name, 0, 0), self.origins(name)
            if name not in later and self._ledger.missing(name, to) == [empty] and (empty, to) not in elsewhere:
                self._wait(origins[0] if origins else "", empty, to)
            self._offer(name, to)

    def _copies(self, cargo: Pair) -> int:
        """Return the number of holders: files with a single holder are sent first, as other hosts may send the rest."""
        return len(self._ledger.files[cargo[0]].holders)

    def _wait(self, host: str, piece: Piece, to: str) -> None:
        self._waiting[host, to].append(piece)
        self.backlog[host] += piece.size

    def _offer(self, name: str, to: str) -> None:
        for host in self.origins(name):
            if name not in self._files[host, to]:
                self._files[host, to].append(name)

    def origins(self, name: str) -> tuple[str, ...]:
        """Return the hosts that hold a file from the start, and still do."""
        file = self._ledger.files[name]
        return tuple(host for host in file.holders if self._ledger.holds(host, Piece(name, 0, file.size)))

    def lots(self) -> Counter[Lot]:
        """Return the whole stock in bytes; an empty file counts as one byte, so that a path is planned for it too."""
        lots: Counter[Lot] = Counter()
        for (name, to), home in self._home.items():
            if home:
                lots[Lot(self.origins(name), "", to)] += home.total
        for (host, to), pieces in self._waiting.items():
            for piece in pieces:
                lots[self.lot(host, piece, to)] += max(1, piece.size)
        return lots

    def lot(self, host: str, piece: Piece, to: str) -> Lot:
        """Return the lot of a piece that waits, or will wait, at a host."""
        origins = self.origins(piece.file)
        return Lot((host,), "", to) if host in origins else Lot(origins, host, to)

    def missing(self) -> Iterator[tuple[str, str]]:
        """Yield the files with data in stock, and their destinations."""
        for (_, to), pieces in self._waiting.items():
            yield from ((piece.file, to) for piece in pieces)
        yield from (cargo for cargo, home in self._home.items() if home)

    def has(self, host: str, to: str) -> bool:
        """Return whether a host can send anything for this destination."""
        return bool(self._waiting[host, to]) or self._first(host, to) is not None

    def _first(self, host: str, to: str) -> str | None:
        files = self._files[host, to]
        while files and not self._home[files[0], to]:
            files.popleft()
        return files[0] if files else None

    def __bool__(self) -> bool:
        return any(self._waiting.values()) or any(self._home.values())

    def next_size(self, host: str, to: str) -> int:
        """Return the minimum bytes of the next piece."""
        waiting = self._waiting[host, to]
        return waiting[0].size if waiting else LEAST

    def take(self, host: str, to: str, size: int, most: int) -> Piece:
        """Take a piece for a hop: a staged one first, to free its space; otherwise a new one of about `size` bytes.

        :param most: maximum bytes of a new piece
        """
        if waiting := self._waiting[host, to]:
            piece = waiting.popleft()
            self.backlog[host] -= piece.size
            return piece
        name = self._first(host, to)
        assert name is not None, f"{host} has nothing for {to}"
        home = self._home[name, to]
        start, end = next(iter(home))
        whole = end - start < 2 * size and end - start <= most
        piece = Piece(name, start, end if whole else min(end, start + min(size, most)))
        home.remove(piece.start, piece.end)
        return piece

    def put(self, host: str, piece: Piece, to: str) -> None:
        """Put back a piece that is not under way any more: at `host` if it is still there, else at its origins."""
        origins = self.origins(piece.file)
        if (host, piece) in self.staged:
            self._wait(host, piece, to)
        elif not piece.size:
            self._wait(host if host in origins else origins[0] if origins else "", piece, to)
        else:
            self._home[piece.file, to].add(piece.start, piece.end)
            self._offer(piece.file, to)

    def stage(self, host: str, piece: Piece, to: str) -> None:
        """Add a piece that has arrived at an intermediate host."""
        self.staged[host, piece] = to
        self._wait(host, piece, to)

    def left(self, host: str, piece: Piece) -> None:
        """Remove a piece that has been sent on, and is not staged any more."""
        self.staged.pop((host, piece), None)

    def refused(self, host: str, name: str) -> None:
        """Take no more of a file from a host that refuses to send it."""
        for to in self._ledger.files[name].destinations:
            if name in self._files[host, to]:
                self._files[host, to].remove(name)
            empty = Piece(name, 0, 0)
            if empty in self._waiting[host, to] and (host, empty) not in self.staged:
                self._waiting[host, to].remove(empty)
                self.put(host, empty, to)

    def recall(self, lot: Lot, nbytes: int) -> Iterator[Piece]:
        """Unstage pieces of a lot, about `nbytes` in total, so that their origins send them again; yield each."""
        waiting = self._waiting[lot.staged, lot.to]
        for piece in [piece for piece in waiting if self.lot(lot.staged, piece, lot.to) == lot]:
            if nbytes < piece.size / 2:
                return
            nbytes -= piece.size
            waiting.remove(piece)
            self.backlog[lot.staged] -= piece.size
            self.left(lot.staged, piece)
            self.put(lot.staged, piece, lot.to)
            yield piece
