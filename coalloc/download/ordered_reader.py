"""The reader of a file in order: it is given the bytes that have arrived, pieces with a known hash only if right."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from coalloc.download.paced_reading import PacedReading
from coalloc.download.read_ahead import ReadAhead
from coalloc.model.checksums import PieceHashes
from coalloc.util.checksums import Hasher, hasher
from coalloc.util.disk import in_thread

__all__ = ["OrderedReader", "Take"]

Take = Callable[[memoryview], Awaitable[None]]
"""`await take(data)`: the reader has taken the next bytes; `data` is valid only until it returns."""

STEP = 8
"""Part of the room that must be free before further bytes are requested, so that requests are not too small."""
WORTH_A_THREAD = 256 << 10
"""Bytes for whose digest the event loop should not wait."""
MOST_TAKEN = 4 << 20
"""Maximum bytes that the reader is given at once."""


class OrderedReader:
    """One reader, and the checks of what it is given.

    :param ahead: the bytes ahead of the reader
    :param size: bytes in the file
    :param digests: digests of all that the reader is given
    :param take: called with the next bytes, again and again
    :param hashes: hashes of pieces, which are checked before they are given
    :param paced: the rate that the reader is promised; None to read as fast as possible
    :param reject: called with the range of a wrong piece, which must be revoked and fetched again
    :param opened: called when there is room for more bytes, with their number from the first one of the file on
    """

    def __init__(
        self,
        ahead: ReadAhead,
        size: int,
        digests: Sequence[Hasher],
        take: Take,
        hashes: PieceHashes | None,
        paced: PacedReading | None,
        reject: Callable[[int, int], None],
        opened: Callable[[int], None],
    ) -> None:
        self._ahead = ahead
        self._size = size
        self._digests = digests
        self._take = take
        self._hashes = hashes
        self._paced = paced
        self._reject = reject
        self._opened = opened
        self._arrived = asyncio.Event()
        self._checked = 0
        """End of the pieces that have the right hash."""
        self._loop = asyncio.get_running_loop()

    def notice(self) -> None:
        """Look for further bytes, as some have arrived."""
        self._arrived.set()

    async def read(self) -> None:
        """Give the reader all bytes, in order."""
        ahead, asked = self._ahead, self._ahead.opened
        if self._paced:
            await self._paced.begin()
        while ahead.front < self._size:
            until = await self._readable()
            most = min(MOST_TAKEN, await self._paced.due()) if self._paced else MOST_TAKEN
            await self._give(ahead.views(ahead.front, min(until, ahead.front + most))[0])
            if ahead.opened - asked >= ahead.room // STEP or (ahead.opened == self._size and asked < self._size):
                self._opened(ahead.opened)
                asked = ahead.opened
        if self._paced:
            self._paced.end()

    async def _give(self, data: memoryview) -> None:
        for digest in self._digests:
            await _update(digest, data)
        began = self._loop.time()
        await self._take(data)
        self._ahead.take(self._ahead.front + len(data))
        if self._paced:
            self._paced.gave(len(data), began)

    async def _readable(self) -> int:
        """Return the end of the bytes that the reader may have, once there are some."""
        ahead, hashes = self._ahead, self._hashes
        while True:
            self._arrived.clear()
            if hashes is None and ahead.reach > ahead.front:
                return ahead.reach
            if hashes and self._checked > ahead.front:
                return self._checked
            if hashes and ahead.reach >= (end := min(self._checked + hashes.length, self._size)):
                await self._check_piece(hashes, end)
                continue
            if self._paced:
                self._paced.lack()
            await self._arrived.wait()

    async def _check_piece(self, hashes: PieceHashes, end: int) -> None:
        """Compare a piece with its hash."""
        start, value = self._checked, hasher(hashes.algorithm)
        for view in self._ahead.views(start, end):
            await _update(value, view)
        if value.hexdigest() == hashes.values[start // hashes.length]:
            self._checked = end
        else:
            self._reject(start, end)


async def _update(digest: Hasher, data: memoryview) -> None:
    if len(data) < WORTH_A_THREAD:
        digest.update(data)
    else:
        await in_thread(digest.update, data)
