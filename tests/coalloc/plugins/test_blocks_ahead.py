"""Blocks requested ahead, in virtual time."""

import asyncio

import pytest

from coalloc.plugins.blocks_ahead import MOST_AHEAD, BlocksAhead
from coalloc.testing.virtual_clock import run

SIZE, LENGTH = 1050, 10


class Reads:
    """A function that reads slowly, and counts."""

    def __init__(self):
        self.asked, self.under_way, self.most = [], 0, 0

    async def __call__(self, start, end):
        self.asked.append((start, end))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(1)
        finally:
            self.under_way -= 1
        return b"%d-%d" % (start, end)


def test_a_file_that_is_read_in_order_waits_little():
    async def main():
        reads, clock = Reads(), asyncio.get_running_loop().time
        ahead = BlocksAhead(reads, SIZE)
        for at in range(0, SIZE, LENGTH):
            assert await ahead.read(at, at + LENGTH) == b"%d-%d" % (at, at + LENGTH)
        assert len(reads.asked) == len(set(reads.asked)) == SIZE / LENGTH
        assert reads.most <= MOST_AHEAD + 1
        assert clock() < 20

    run(main())


def test_reads_at_random_request_nothing_ahead_and_leave_nothing():
    async def main():
        reads = Reads()
        ahead = BlocksAhead(reads, SIZE)
        for at in (500, 0, 10, 20, 700, 30):
            await ahead.read(at, at + LENGTH)
        assert reads.asked == [(500, 510), (0, 10), (10, 20), (20, 30), (700, 710), (30, 40)]
        await asyncio.sleep(0)
        assert reads.under_way == 0

    run(main())


def test_a_failure_ahead_is_raised_when_its_block_is_read():
    async def fail(start, end):
        if start == 20:
            raise OSError("lost")
        return b""

    async def main():
        ahead = BlocksAhead(fail, SIZE)
        await ahead.read(0, 10)
        await ahead.read(10, 20)
        await asyncio.sleep(1)
        with pytest.raises(OSError, match="lost"):
            await ahead.read(20, 30)
        ahead.cancel()

    run(main())
