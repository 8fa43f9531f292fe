"""Queries for checksums of bytes that have not arrived yet, so that the answers come before the last byte.

A query after the last byte would delay the end by at least a round trip, perhaps to a distant server, as the nearest
one may be the sender of the bytes. Since the sender is not known in advance, two replicas are asked about the same
ranges: at least one of them is not the sender.
"""

import asyncio
from collections.abc import Sequence
from functools import reduce

from coalloc.model.checksums import Extent
from coalloc.util.checksums import adler32_combine
from coalloc.util.intervals import Intervals
from coalloc.verify.witnesses import WitnessServers

__all__ = ["PATIENCE", "SLOWER", "Foresight", "combined"]

MARGIN, ROUNDS = 0.1, 2.0
"""Time before the expected end at which queries are sent: seconds plus a multiple of the expected answer time."""
MOST = 64 << 20
"""Maximum bytes that may be missing when the queries are sent, as servers need time to read them."""
SHORT = 16 << 20
"""The same while the answer time is unknown, which then includes connecting."""
WITNESSES = 2
PATIENCE, SLOWER = 0.05, 3.0
"""Time limit for an answer at the end: the longer of this many seconds and this multiple of the expected time."""


class Foresight:
    """One round of queries for the bytes without an answer, and the check of the pieces that arrive against them."""

    def __init__(self, servers: WitnessServers) -> None:
        self._servers = servers
        self._ranges: Sequence[tuple[int, int]] = ()
        self._answers: dict[int, asyncio.Task[list[str | None]]] = {}
        self.alone: set[int] = set()
        """Senders of bytes that only their own replica confirmed."""

    def due(self, left: int, rate: float) -> bool:
        """Return whether it is time to send the queries.

        :param left: bytes that are missing
        :param rate: bytes per second at which they arrive
        """
        witnesses = self._witnesses
        if not all(map(self._servers.has_answered, witnesses)):
            return left <= SHORT
        return left <= min(MOST, rate * (MARGIN + ROUNDS * max(map(self._servers.expected, witnesses), default=0.0)))

    @property
    def _witnesses(self) -> list[int]:
        return sorted(self._servers.members, key=lambda i: (self._servers.expected(i), i))[:WITNESSES]

    def ask(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Query these disjoint ranges."""
        self._ranges = ranges
        for witness in self._witnesses:
            self._answers[witness] = asyncio.create_task(self._servers.digests(witness, "adler32", ranges))

    async def confirmed(self, pieces: Sequence[Extent]) -> Intervals:
        """Return the queried ranges whose bytes were confirmed by a replica that did not deliver them.

        Waits for pending answers as long as the slowest may need, as new queries would be queued behind them.

        :param pieces: all pieces in the queried ranges, in order
        """
        late = [self._servers.expected(witness) for witness, task in self._answers.items() if not task.done()]
        until = asyncio.get_running_loop().time() + max(PATIENCE, SLOWER * max(late, default=0.0))
        while True:
            right = self._right(pieces)
            pending = [task for task in self._answers.values() if not task.done()]
            left = until - asyncio.get_running_loop().time()
            if not pending or left <= 0 or all(right.covers(*each) for each in self._ranges):
                return right
            await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    def _right(self, pieces: Sequence[Extent]) -> Intervals:
        """Return the queried ranges that the answers so far confirm."""
        right = Intervals()
        for i, (start, end) in enumerate(self._ranges):
            within = [piece for piece in pieces if start <= piece.start and piece.end <= end]
            if sum(piece.end - piece.start for piece in within) == end - start:
                ours = combined(within)
                witnesses = {who for who, task in self._answers.items() if task.done() and task.result()[i] == ours}
                if self._suffice(witnesses, within):
                    right.add(start, end)
        return right

    def _suffice(self, witnesses: set[int], pieces: Sequence[Extent]) -> bool:
        """Return whether each sender has another replica as a witness; if there is only one replica, any witness."""
        senders = {self._servers.holder(piece.source) for piece in pieces}
        if all(witnesses - {sender} for sender in senders):
            return True
        alone = not set(self._servers.members) - senders and len(senders) == 1
        if alone and witnesses:
            self.alone |= {piece.source for piece in pieces}
        return alone and bool(witnesses)

    def cancel(self) -> None:
        """Cancel the queries, because the result is no longer needed."""
        for task in self._answers.values():
            task.cancel()


def combined(pieces: Sequence[Extent]) -> str:
    """Return the adler32 of consecutive pieces.

    >>> from zlib import adler32
    >>> combined([Extent(0, 2, 0, adler32(b"ab")), Extent(2, 3, 1, adler32(b"c"))]) == f"{adler32(b'abc'):08x}"
    True
    """
    whole = reduce(
        lambda before, piece: adler32_combine(before, piece.adler32 or 0, piece.end - piece.start), pieces, 1
    )
    return f"{whole:08x}"
