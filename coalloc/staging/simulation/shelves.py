"""What hosts keep for others, and whether there is room."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from coalloc.staging.actions import Piece

__all__ = ["Shelves"]


class Shelves:
    """By host: pieces that are staged there or on their way. Both need the room.

    :param storage: bytes that hosts lend; those that are not named have no limit
    """

    def __init__(self, storage: Mapping[str, int]) -> None:
        self._storage = storage
        self._uses: defaultdict[str, Counter[Piece]] = defaultdict(Counter)
        self._staged: defaultdict[str, set[Piece]] = defaultdict(set)
        self._bytes: Counter[str] = Counter()
        self._times: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)

    @property
    def times(self) -> Mapping[str, Sequence[tuple[float, int]]]:
        """By host: (second, bytes from then on)."""
        return self._times

    def has_room(self, host: str, piece: Piece) -> bool:
        """Whether a piece could be sent there."""
        limit = self._storage.get(host)
        return limit is None or piece in self._uses[host] or self._bytes[host] + piece.size <= limit

    def expect(self, now: float, host: str, piece: Piece) -> None:
        """It is on its way there."""
        self._use(now, host, piece, 1)

    def put(self, now: float, host: str, piece: Piece) -> None:
        """It is there, as was expected."""
        if piece in self._staged[host]:
            self._use(now, host, piece, -1)
        self._staged[host].add(piece)

    def forget(self, now: float, host: str, piece: Piece) -> None:
        """It does not come."""
        self._use(now, host, piece, -1)

    def drop(self, now: float, host: str, piece: Piece) -> None:
        """It is deleted."""
        self._staged[host].remove(piece)
        self._use(now, host, piece, -1)

    def lose(self, now: float, host: str) -> None:
        """All that is staged there is gone."""
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
