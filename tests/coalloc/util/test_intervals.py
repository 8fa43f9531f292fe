from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from coalloc.util.intervals import Intervals

edge = st.integers(0, 60)
steps = st.lists(st.tuples(st.booleans(), edge, edge), max_size=30)


@given(steps, edge, edge)
def test_like_a_set_of_integers(operations, start, end):
    intervals, model = Intervals(), set()
    for adding, a, b in operations:
        if adding:
            intervals.add(a, b)
            model |= set(range(a, b))
        else:
            intervals.remove(a, b)
            model -= set(range(a, b))
    ranges = list(intervals)
    assert {i for a, b in ranges for i in range(a, b)} == model
    assert all(b < c for (_, b), (c, _) in pairwise(ranges)), "adjacent ranges are one"
    assert intervals.total == len(model)
    asked = set(range(start, end))
    assert {i for a, b in intervals.within(start, end) for i in range(a, b)} == asked & model
    assert {i for a, b in intervals.gaps(start, end) for i in range(a, b)} == asked - model
    assert intervals.reach(start) == next(i for i in range(start, 62) if i not in model)
    assert intervals.covers(start, end) == (asked <= model)
