"""The bytes ahead of a reader: whatever order they arrive in, it is given each once, and they never need more room."""

from hypothesis import given
from hypothesis import strategies as st

from coalloc.download.read_ahead import ReadAhead


@given(
    content=st.binary(min_size=1, max_size=60),
    room=st.integers(1, 80),
    steps=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30), st.integers(0, 2), st.booleans()), max_size=60),
)
def test_the_reader_gets_the_file_in_order(content, room, steps):
    ahead, taken, fresh = ReadAhead(len(content), room), bytearray(), 0
    end = [(at, len(content), 0, True) for at in range(len(content))]
    for start, length, source, reads in [*steps, *end]:
        stop = min(start + length, ahead.opened)
        if start < stop:
            extents = ahead.put(source, start, memoryview(content)[start:stop])
            assert all(max(start, ahead.front) <= each.start < each.end <= stop for each in extents)
            fresh += sum(each.end - each.start for each in extents)
        held = sum(piece.end - piece.start for piece in ahead.pieces())
        assert held <= min(room, len(content))
        assert ahead.opened <= ahead.front + room
        if reads:
            taken += b"".join(ahead.views(ahead.front, ahead.reach))
            ahead.take(ahead.reach)
        assert taken == content[: ahead.front]
    assert taken == content
    assert fresh == len(content)


def test_revoked_bytes_are_taken_from_the_next_sender():
    ahead = ReadAhead(10, 10)
    ahead.put(0, 0, memoryview(b"wrong"))
    ahead.revoke(0, 5)
    assert ahead.reach == 0
    assert [each[:3] for each in ahead.put(1, 0, memoryview(b"right"))] == [(0, 5, 1)]
    assert b"".join(ahead.views(0, 5)) == b"right"
