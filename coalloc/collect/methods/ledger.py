"""The positions of all pieces: at origins, staged, in flight, delivered. Actions that would lose bytes are refused."""

from collections import Counter, defaultdict
from collections.abc import Mapping

from coalloc.collect.methods.actions import Drop, Piece, Send
from coalloc.planner.network import Demand, File
from coalloc.util.intervals import Intervals

__all__ = ["IllegalActionError", "Ledger"]


class IllegalActionError(Exception):
    """An impossible action requested by a method, which is a bug of the method."""


class Ledger:
    """The pieces of one collect job.

    :param demand: the files; an empty file counts as delivered when an empty piece has arrived
    """

    def __init__(self, demand: Demand) -> None:
        self.files: Mapping[str, File] = {file.name: file for file in demand.files}
        self.running: dict[int, Send] = {}
        self.staged: defaultdict[str, set[Piece]] = defaultdict(set)
        self.peak: Counter[str] = Counter()
        """Largest number of bytes that were staged, or in flight to be staged, at each host."""
        self.duplicate_bytes = 0
        self._delivered = {(file.name, to): Intervals() for file in demand.files for to in file.destinations}
        self._touched: set[tuple[str, str]] = set()
        for file in demand.files:
            for to in {*file.destinations} & {*file.holders}:
                self._delivered[file.name, to].add(0, file.size)
                self._touched.add((file.name, to))
        self._open = {key for key in self._delivered if self.missing(*key)}
        self._reading: Counter[tuple[str, Piece]] = Counter()
        self._writing: Counter[tuple[str, Piece]] = Counter()
        self._occupied: Counter[str] = Counter()
        self._dead: set[str] = set()
        self._refused: set[tuple[str, str]] = set()

    @property
    def done(self) -> bool:
        """Return whether every file is at its destinations."""
        return not self._open

    def missing(self, file: str, destination: str) -> list[Piece]:
        """Return the pieces of a file that have not arrived at a destination yet."""
        size = self.files[file].size
        if not size:
            return [] if (file, destination) in self._touched else [Piece(file, 0, 0)]
        return [Piece(file, start, end) for start, end in self._delivered[file, destination].gaps(0, size)]

    def holds(self, host: str, piece: Piece) -> bool:
        """Return whether a host has all of a piece: as an origin, as a destination, or staged as this same piece."""
        if host in self._dead:
            return False
        file = self.files[piece.file]
        delivered = self._delivered.get((piece.file, host))
        there = delivered is not None and delivered.covers(piece.start, piece.end)
        sends = host in file.holders and (host, piece.file) not in self._refused
        return sends or piece in self.staged[host] or there

    def send(self, send: Send) -> None:
        """Begin a hop.

        :raises IllegalActionError: when the source does not hold the piece, the sink is gone, or the number is in use
        """
        if send.hop in self.running:
            raise IllegalActionError(f"hop {send.hop} exists already: {self.running[send.hop]}")
        if not self.holds(send.source, send.piece):
            raise IllegalActionError(f"{send.source} does not hold {send.piece}")
        if send.sink in self._dead:
            raise IllegalActionError(f"{send.sink} is gone")
        self.running[send.hop] = send
        self._reading[send.source, send.piece] += 1
        if not self._wanted(send):
            self._occupy(send.sink, send.piece)
            self._writing[send.sink, send.piece] += 1
        self.peak[send.sink] = max(self.peak[send.sink], self.occupied(send.sink))

    def occupied(self, host: str) -> int:
        """Return the bytes that are staged at a host, or in flight to be staged."""
        return self._occupied[host]

    def sends(self, host: str, piece: Piece) -> bool:
        """Return whether a piece is in flight from a host."""
        return self._reading[host, piece] > 0

    def _occupy(self, host: str, piece: Piece, sign: int = 1) -> None:
        """Add a piece's size to (or subtract it from) the host's occupied bytes, unless it counts there otherwise."""
        if piece not in self.staged[host] and not self._writing[host, piece]:
            self._occupied[host] += sign * piece.size

    def _wanted(self, send: Send) -> bool:
        return send.sink in self.files[send.piece.file].destinations

    def arrived(self, hop: int) -> Send:
        """Record the arrival of a hop."""
        send = self.running[hop]
        piece = send.piece
        if self._wanted(send):
            delivered = self._delivered[piece.file, send.sink]
            fresh = sum(end - start for start, end in delivered.gaps(piece.start, piece.end))
            self.duplicate_bytes += piece.size - fresh
            delivered.add(piece.start, piece.end)
            self._touched.add((piece.file, send.sink))
            if not self.missing(piece.file, send.sink):
                self._open.discard((piece.file, send.sink))
        else:
            self.staged[send.sink].add(piece)
        return self.ended(hop)

    def ended(self, hop: int) -> Send:
        """Remove a hop that failed, or was cancelled."""
        send = self.running.pop(hop)
        self._reading[send.source, send.piece] -= 1
        if not self._wanted(send):
            self._writing[send.sink, send.piece] -= 1
            self._occupy(send.sink, send.piece, -1)
        return send

    def drop(self, drop: Drop) -> None:
        """Delete a staged piece. :raises IllegalActionError: when it is not staged there, or is being sent on"""
        if drop.piece not in self.staged[drop.host]:
            raise IllegalActionError(f"{drop.piece} is not staged at {drop.host}")
        if self.sends(drop.host, drop.piece):
            raise IllegalActionError(f"{drop.piece} is being sent from {drop.host}")
        self.staged[drop.host].remove(drop.piece)
        self._occupy(drop.host, drop.piece, -1)

    def needs_nothing(self, send: Send) -> bool:
        """Return whether the sink is a destination that needs no more bytes of the file."""
        return self.is_complete(send.piece.file, send.sink)

    def is_complete(self, file: str, destination: str) -> bool:
        """Return whether a destination needs no more bytes of a file."""
        key = file, destination
        return key in self._delivered and key not in self._open

    def refused(self, holder: str, file: str) -> None:
        """Exclude a holder that refuses to send a file."""
        self._refused.add((holder, file))

    def give_up(self, file: str) -> None:
        """Count a file as delivered, as it cannot be had."""
        for to in self.files[file].destinations:
            self._delivered[file, to].add(0, self.files[file].size)
            self._touched.add((file, to))
            self._open.discard((file, to))

    def gone(self, host: str) -> list[Send]:
        """Remove a lost host with its staged pieces and its hops; return the hops."""
        self._dead.add(host)
        for piece in self.staged.pop(host, ()):
            self._occupy(host, piece, -1)
        ended = [hop for hop, send in self.running.items() if host in (send.source, send.sink)]
        return [self.ended(hop) for hop in ended]
