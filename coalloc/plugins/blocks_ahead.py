"""Blocks of an open file that are read in order are requested before they are needed."""

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["BlocksAhead"]

MOST_AHEAD = 8
"""Most blocks requested ahead; their number doubles with each block that is read in order."""

Block = tuple[int, int]


class BlocksAhead:
    """The blocks requested ahead, in one event loop.

    :param read: `await read(start, end)`: the bytes of a block
    :param size: size of the file
    """

    def __init__(self, read: Callable[[int, int], Awaitable[bytes]], size: int) -> None:
        self.loop = asyncio.get_running_loop()
        self._read = read
        self._size = size
        self._tasks: dict[Block, asyncio.Task[bytes]] = {}
        self._next: int | None = None
        self._most = 0

    async def read(self, start: int, end: int) -> bytes:
        """Return the bytes of a block, and request the next ones if the file is read in order."""
        self._most = min(max(1, 2 * self._most), MOST_AHEAD) if start == self._next else 0
        self._next = end
        task = self._tasks.pop((start, end), None) or self._begin((start, end))
        wanted = [(at, min(at + end - start, self._size)) for at in self._starts(start, end)]
        for block in self._tasks.keys() - set(wanted):
            self._tasks.pop(block).cancel()
        for block in wanted:
            if block not in self._tasks:
                self._tasks[block] = self._begin(block)
        try:
            return await task
        finally:
            task.cancel()

    def _starts(self, start: int, end: int) -> range:
        """Return the starts of the blocks to be requested ahead."""
        length = max(1, end - start)
        return range(end, min(end + self._most * length, self._size), length)

    def _begin(self, block: Block) -> asyncio.Task[bytes]:
        task = asyncio.ensure_future(self._call(block))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may wait for it
        return task

    async def _call(self, block: Block) -> bytes:
        return await self._read(*block)

    def cancel(self) -> None:
        """Cancel what was requested ahead."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
