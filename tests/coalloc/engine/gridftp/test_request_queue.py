"""Consecutive ranges on one connection: each byte reaches its range, in any order of arrival."""

from concurrent.futures import Future
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.engine.gridftp.blocks import BlockReader
from coalloc.engine.gridftp.request_queue import RangeRequests
from coalloc.engine.range_request import RangeRequest
from coalloc.engine.span import Span
from coalloc.errors import ServerSays

CONTENT = bytes(range(256)) * 4
EOF, EOD, CLOSE = BlockReader.EOF, BlockReader.EOD, BlockReader.CLOSE


def header(descriptor, count=0, offset=0):
    return BlockReader.HEADER.pack(descriptor, count, offset)


def sent(start, end, cuts=(), apart=False):
    """Return the server's bytes for a range: blocks in any order, then the end of file and data, together or not."""
    edges = sorted({start, end, *(start + cut for cut in cuts if start + cut < end)})
    blocks = [header(0, b - a, a - start) + CONTENT[a:b] for a, b in pairwise(edges)]
    ends = [header(EOD), header(EOF, offset=1)] if apart else [header(EOF | EOD, offset=1)]
    return b"".join(blocks[1::2] + blocks[::2] + ends[::-1])


class Asked:
    """A requested range and its result; its end is lowered to `lowered` at the first delivery."""

    def __init__(self, turns, start, end, lowered=None):
        self.start, self.end = start, end
        self.span = Span(start, end)
        self.lowered = lowered
        self.here = {}
        self.over = Future()
        self.turn = RangeRequest(self.span, self.deliver, self.over)
        turns.ask(self.turn)

    def deliver(self, start, end, data):
        assert not self.over.done()
        assert self.start <= start < end <= self.span.end
        self.here.update((start + i, byte) for i, byte in enumerate(data))
        if self.lowered is not None:
            self.span.end = min(self.span.end, self.lowered)

    @property
    def right(self):
        wanted = range(self.start, self.span.end)
        return self.here.keys() >= set(wanted) and all(CONTENT[at] == byte for at, byte in self.here.items())


def ranges():
    """Draw a start, an end, an end that is lowered or not, cuts between blocks, and the form of the end markers."""
    starts = st.integers(0, len(CONTENT) - 1)
    return st.tuples(
        starts, st.integers(1, 300), st.none() | st.integers(0, 300), st.sets(st.integers(1, 300)), st.booleans()
    )


@given(st.lists(ranges(), min_size=1, max_size=5), st.lists(st.integers(1, 200)))
def test_each_byte_is_delivered_to_its_range(asked, sizes):
    turns, wire, all_asked = RangeRequests(), b"", []
    for start, length, lowered, cuts, apart in asked:
        end = min(start + length, len(CONTENT))
        all_asked.append(Asked(turns, start, end, None if lowered is None else start + lowered))
        wire += sent(start, end, cuts, apart)
    at = 0
    for size in [*sizes, len(wire)]:
        turns.feed(memoryview(wire[at : at + size]))
        at += size
    assert all(each.right for each in all_asked)
    assert [each.over.result(0) for each in all_asked] == [None] * len(asked)
    assert (turns.left, turns.first, turns.wanted, turns.ended) == (0, None, False, len(asked))


def test_bytes_of_ended_ranges_are_skipped():
    turns = RangeRequests()
    first, second = Asked(turns, 0, 100), Asked(turns, 500, 600)
    first.turn.end()
    assert (turns.left, turns.wanted) == (200, True)
    turns.feed(memoryview(sent(0, 100) + sent(500, 600)))
    assert first.here == {}
    assert second.right


def test_a_range_that_ends_short_is_over_and_incomplete():
    turns = RangeRequests()
    asked, after = Asked(turns, 0, 100), Asked(turns, 200, 300)
    turns.feed(memoryview(sent(0, 60) + sent(200, 300)))
    assert asked.over.result(0) is None
    assert not asked.turn.complete
    assert after.right


def test_error_of_deliver_ends_only_its_own_range():
    turns, over = RangeRequests(), Future()

    def fail(start, end, data):
        raise OSError("disk full")

    turns.ask(RangeRequest(Span(0, 100), fail, over))
    after = Asked(turns, 200, 300)
    turns.feed(memoryview(sent(0, 100, [50]) + sent(200, 300)))
    assert str(over.exception(0)) == "disk full"
    assert after.right


def test_end_of_the_queue_fails_all_its_requests():
    turns, error = RangeRequests(), ValueError()
    asked = [Asked(turns, 0, 100), Asked(turns, 100, 200)]
    turns.end(error)
    turns.end()
    assert [each.over.exception(0) for each in asked] == [error, error]


@pytest.mark.parametrize("wire", [sent(0, 10), header(EOD), header(0, 5) + b"x"])
def test_unrequested_bytes_are_an_error(wire):
    with pytest.raises(ServerSays, match="not requested"):
        RangeRequests().feed(memoryview(wire))


def test_close_flag_marks_the_connection_as_closed():
    turns = RangeRequests()
    asked = Asked(turns, 0, 10)
    turns.feed(memoryview(header(0, 10) + CONTENT[:10] + header(EOF | EOD | CLOSE, offset=1)))
    assert asked.right
    assert turns.closed
