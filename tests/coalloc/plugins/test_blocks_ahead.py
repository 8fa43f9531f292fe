"""Blocks requested ahead, in virtual time."""

import asyncio
import random
from contextlib import nullcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.plugins.blocks_ahead import MOST_BYTES, BlocksAhead
from coalloc.plugins.read_pattern import ReadPattern
from coalloc.testing.virtual_clock import run

LENGTH = 1 << 18
SIZE = 105 * LENGTH + 7
MOST = MOST_BYTES // LENGTH
CONTENT = random.Random(1).randbytes(SIZE)


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
        return content(start, end)


def content(start, end):
    return CONTENT[start:end]


def test_a_file_that_is_read_in_order_waits_little():
    async def main():
        reads, clock = Reads(), asyncio.get_running_loop().time
        ahead = BlocksAhead(reads, SIZE, LENGTH)
        for at in range(0, SIZE, LENGTH):
            end = min(at + LENGTH, SIZE)
            assert await ahead.read(at, end) == content(at, end)
        asked = [at for start, end in reads.asked for at in range(start, end, LENGTH)]
        assert sorted(asked) == list(range(0, SIZE, LENGTH))
        assert reads.most <= MOST + 1
        assert clock() < 20

    run(main())


def test_reads_at_random_request_nothing_ahead_and_leave_nothing():
    async def main():
        reads = Reads()
        ahead = BlocksAhead(reads, SIZE, LENGTH)
        for block in (50, 0, 1, 2, 70, 3):
            await ahead.read(block * LENGTH, (block + 1) * LENGTH)
        assert [(start // LENGTH, end // LENGTH) for start, end in reads.asked][:3] == [(50, 51), (0, 1), (1, 2)]
        await asyncio.sleep(0)
        assert reads.under_way == 0

    run(main())


def test_expected_ranges_are_requested_together_and_once():
    async def main():
        reads, clock = Reads(), asyncio.get_running_loop().time
        ahead = BlocksAhead(reads, SIZE, LENGTH)
        expected = [(20 * LENGTH + 5, 20 * LENGTH + 9)]
        for block in (0, 1, 2, 20):
            start, end = block * LENGTH, (block + 1) * LENGTH
            assert await ahead.read(start, end, 3 * LENGTH, expected) == content(start, end)
        assert reads.asked[:2] == [(0, 3 * LENGTH), (20 * LENGTH, 21 * LENGTH)]
        assert clock() == 1
        await ahead.read(0, LENGTH)
        await asyncio.sleep(0)
        assert reads.under_way == 0, "what is not expected any more is cancelled"

    run(main())


def test_what_failed_ahead_is_requested_again_when_its_block_is_read():
    asked, left = [], []

    async def fail(start, end):
        asked.append(start // LENGTH)
        if start == 2 * LENGTH and left:
            left.pop()
            raise OSError("lost")
        return content(start, end)

    async def main():
        for failures, read in ((1, nullcontext()), (2, pytest.raises(OSError, match="lost"))):
            asked.clear()
            left.extend(range(failures))
            ahead = BlocksAhead(fail, SIZE, LENGTH)
            await ahead.read(0, LENGTH)
            await ahead.read(LENGTH, 2 * LENGTH)
            await asyncio.sleep(1)
            assert asked.count(2) == 1, "it was requested ahead"
            with read:
                assert await ahead.read(2 * LENGTH, 3 * LENGTH) == content(2 * LENGTH, 3 * LENGTH)
            assert await ahead.read(2 * LENGTH, 3 * LENGTH) == content(2 * LENGTH, 3 * LENGTH)
            ahead.cancel()

    run(main())


def test_chunks_at_regular_distances_are_expected_beside_the_nodes_of_an_index():
    pattern, far = ReadPattern(1 << 30), 25 << 20
    expected = []
    for number in range(8):
        chunk = number * far + number % 2 * 3000
        assert number < 3 or any(start <= chunk and chunk + 250_000 - 6000 <= end for start, end in expected)
        pattern.following(number**2 * 999, number**2 * 999 + 3136)
        expected = [(start - 6000, end + 6000) for start, end in pattern.following(chunk, chunk + 250_000)]


@settings(deadline=None)
@given(reads=st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from([1, 8, 4096, 250_000])), max_size=30))
def test_what_is_expected_is_bounded_and_in_the_file(reads):
    pattern = ReadPattern(10**6)
    for start, length in reads:
        found = pattern.following(start, start + length)
        assert all(0 <= begin < end <= 10**6 for begin, end in found)
        assert sum(end - begin for begin, end in found) <= MOST_BYTES


def test_interleaved_strides_are_expected_together_within_the_limit():
    pattern, lengths = ReadPattern(1 << 40), [(400 << 10) + i for i in range(4)]
    for number in range(20):
        for stream, length in enumerate(lengths):
            start = (stream << 32) + number * (10 << 20)
            expected = pattern.following(start, start + length)
    assert sum(end - start for start, end in expected) <= MOST_BYTES
    assert {start >> 32 for start, _ in expected} == {0, 1, 2, 3}


def test_the_newest_stride_comes_first_when_not_all_fit():
    pattern, length = ReadPattern(1 << 40), MOST_BYTES // 2 + 1
    for stream in range(2):
        for number in range(5):
            start = (stream << 32) + number * (10 << 20)
            expected = pattern.following(start, start + length + stream)
    assert [start >> 32 for start, _ in expected] == [1]


def test_blocks_of_expected_ranges_are_limited_too():
    async def main():
        reads = Reads()
        ahead = BlocksAhead(reads, SIZE, LENGTH)
        small = [(block * LENGTH, block * LENGTH + 1) for block in range(50, 100)]
        await ahead.read(0, LENGTH, expected=small)
        asked = [at // LENGTH for start, end in reads.asked for at in range(start, end, LENGTH)]
        assert sorted(asked) == [0, *range(50, 50 + MOST)]
        ahead.cancel()

    run(main())
