"""Blocks of an open file are requested before they are needed: those of a file that is read in order, or regularly."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise

__all__ = ["BlocksAhead"]

MOST_BYTES = 8 << 20
"""Maximum number of bytes requested ahead. That of bytes in order doubles with each block that is read in order."""
RUN = 1 << 20
"""Maximum number of bytes of neighbouring blocks that one request asks for."""
REMEMBERED = 128
"""Number of blocks that were read last, which are not requested ahead again: a cache has them."""


class BlocksAhead:
    """The blocks requested ahead, in one event loop.

    :param read: `await read(start, end)`: bytes of the file
    :param size: size of the file
    :param block: size of a block
    """

    def __init__(self, read: Callable[[int, int], Awaitable[bytes]], size: int, block: int) -> None:
        self.loop = asyncio.get_running_loop()
        self._read = read
        self._size = size
        self._block = block
        self._runs: dict[int, tuple[int, asyncio.Task[bytes]]] = {}
        self._next = -1
        self._most = 0
        self._had: deque[int] = deque(maxlen=REMEMBERED)

    async def read(self, start: int, end: int, until: int = 0, expected: Iterable[tuple[int, int]] = ()) -> bytes:
        """Return the bytes of the block [start, end), and request those that will probably follow.

        :param until: end of what the caller reads now, if that is after the block
        :param expected: ranges that will probably be read soon; other requests ahead are cancelled
        """
        number = start // self._block
        self._forget_failed(number)  # earlier, when nothing waited for it
        in_order = number == self._next
        self._most = min(max(1, 2 * self._most), max(1, MOST_BYTES // self._block)) if in_order else 0
        self._next = number + 1
        now = list(self._blocks(start, max(end, until)))
        ahead = set(islice(self._wanted(number, expected), max(1, MOST_BYTES // self._block)))
        for gone in self._runs.keys() - ahead - set(now):
            self._forget(gone)
        for wanted in (now, sorted(ahead)):  # what is needed now does not wait for what comes later
            fresh = [each for each in wanted if each not in self._runs and (each == number or each not in self._had)]
            for run in self._joined(fresh):
                self._begin(run)
        first, task = self._runs[number]
        try:
            data = await asyncio.shield(task)  # if this read is cancelled, other blocks of the run are still wanted
        except BaseException:
            self._forget_failed(number)  # the next read of a block tries again
            if self._runs.get(number) == (first, task):
                self._forget(number)
            raise
        self._forget(number)
        self._had.append(number)
        return data[(number - first) * self._block :][: end - start]

    def _wanted(self, number: int, expected: Iterable[tuple[int, int]]) -> Iterator[int]:
        """Yield the blocks after one in order and those of expected ranges, each once."""
        blocks = chain(self._following(number), (each for one in expected for each in self._blocks(*one)))
        yield from dict.fromkeys(blocks)

    def _following(self, number: int) -> range:
        """Return the blocks after one in order; a request is made when there are enough blocks for it."""
        if not self._most:
            return range(0)
        together = max(1, RUN // self._block)
        end = number + 1 + self._most
        return range(number + 1, min(end // together * together if self._most > together else end, self._last + 1))

    @property
    def _last(self) -> int:
        return max(0, self._size - 1) // self._block

    def _blocks(self, start: int, end: int) -> Iterator[int]:
        yield from range(start // self._block, min((end - 1) // self._block, self._last) + 1)

    def _joined(self, blocks: Sequence[int]) -> Iterator[range]:
        """Yield runs of neighbours.

        >>> list(BlocksAhead._joined(type("", (), {"_block": RUN // 2}), [1, 2, 3, 7]))
        [range(1, 3), range(3, 4), range(7, 8)]
        """
        most = max(1, RUN // self._block)
        begin = 0
        for at, (one, other) in enumerate(pairwise([*blocks, -1]), 1):
            if other != one + 1 or at - begin == most:
                yield range(blocks[begin], one + 1)
                begin = at

    def _begin(self, run: range) -> None:
        task = asyncio.ensure_future(self._call(run))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # no read may wait for it
        self._runs.update((each, (run.start, task)) for each in run)

    async def _call(self, run: range) -> bytes:
        return await self._read(run.start * self._block, min(run.stop * self._block, self._size))

    def _forget_failed(self, number: int) -> None:
        """Forget all blocks of the request for a block if it has failed."""
        _, task = self._runs.get(number, (0, None))
        if task and task.done() and (task.cancelled() or task.exception()):
            for each in [each for each, (_, own) in self._runs.items() if own is task]:
                self._forget(each)

    def _forget(self, number: int) -> None:
        """Forget a block; cancel the request if it is for no other block."""
        _, task = self._runs.pop(number, (0, None))
        if task is not None and all(each is not task for _, each in self._runs.values()):
            task.cancel()

    def cancel(self) -> None:
        """Cancel what was requested ahead."""
        for number in list(self._runs):
            self._forget(number)
