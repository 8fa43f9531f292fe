"""Ranges that are requested together: none is lost, and no byte is requested twice."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from coalloc.download.joined_ranges import NEAR, PIECE, assembled, pieces

CONTENT = bytes(range(251)) * 2000
RANGES = st.lists(st.tuples(st.integers(0, len(CONTENT)), st.integers(0, 5000)), max_size=20)


@given(RANGES, st.integers(1, 9000))
def test_pieces_have_all_bytes_of_all_ranges(given_ranges, length):
    ranges = [(start, min(start + size, len(CONTENT))) for start, size in given_ranges]
    cut = pieces(ranges, length)
    assert all(start < end <= start + length for start, end in cut)
    assert all(before[1] <= after[0] for before, after in pairwise(cut))
    arrived = {(start, end): CONTENT[start:end] for start, end in cut}
    assert assembled(ranges, arrived) == [CONTENT[start:end] for start, end in ranges]


def test_only_near_ranges_are_joined():
    assert pieces([(0, 10), (10 + NEAR, 20 + NEAR), (21 + 2 * NEAR, 22 + 2 * NEAR)]) == [
        (0, 20 + NEAR),
        (21 + 2 * NEAR, 22 + 2 * NEAR),
    ]


def test_a_long_range_is_cut_into_equal_pieces():
    assert pieces([(5, 5 + 3 * PIECE)]) == [(5 + i * PIECE, 5 + (i + 1) * PIECE) for i in range(3)]
