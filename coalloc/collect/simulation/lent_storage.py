"""The storage that hosts lend to others, and its use."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from coalloc.collect.methods.actions import Piece

__all__ = ["LentStorage"]


class LentStorage:
    """The pieces that occupy space, by host: staged at the host, or in flight to be staged there.

    :param storage: bytes that each host lends; hosts without an entry have no limit
    """

    def __init__(self, storage: Mapping[str, int]) -> None:
        self._storage = storage
        self._uses: defaultdict[str, Counter[Piece]] = defaultdict(Counter)
        self._staged: defaultdict[str, set[Piece]] = defaultdict(set)
        self._bytes: Counter[str] = Counter()
        self._times: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)

    @property
    def times(self) -> Mapping[str, Sequence[tuple[float, int]]]:
        """The bytes occupied at each host over time, as pairs (second, bytes from then on)."""
        return self._times

    def has_room(self, host: str, piece: Piece) -> bool:
        """Return whether a host has room for a piece."""
        limit = self._storage.get(host)
        return limit is None or piece in self._uses[host] or self._bytes[host] + piece.size <= limit

    def expect(self, now: float, host: str, piece: Piece) -> None:
        """Reserve room for a piece in flight to a host."""
        self._use(now, host, piece, 1)

    def put(self, now: float, host: str, piece: Piece) -> None:
        """Record the arrival of an expected piece."""
        if piece in self._staged[host]:
            self._use(now, host, piece, -1)
        self._staged[host].add(piece)

    def forget(self, now: float, host: str, piece: Piece) -> None:
        """Release the room of an expected piece that does not arrive."""
        self._use(now, host, piece, -1)

    def drop(self, now: float, host: str, piece: Piece) -> None:
        """Delete a staged piece."""
        self._staged[host].remove(piece)
        self._use(now, host, piece, -1)

    def lose(self, now: float, host: str) -> None:
        """Delete all staged pieces of a host."""
        for piece in list(self._staged[host]):
            self.drop(now, host, piece)

    def _use(self, now: float, host: str, piece: Piece, more: int) -> None:
        uses = self._uses[host]
        before = uses[piece]
        uses[piece] += more
        if not uses[piece]:
            del uses[piece]
        if change := (uses[piece] > 0) - (before > 0):
            self._bytes[host] += change * piece.size
            self._times[host].append((now, self._bytes[host]))
