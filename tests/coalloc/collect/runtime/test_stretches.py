"""Busy periods of each pair, stored in bounded number."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as some

from coalloc.collect.runtime.carrier import STRETCHES, _bounded
from coalloc.collect.values import Stretch


@given(some.lists(some.tuples(some.floats(0.001, 10), some.floats(0.001, 10)), min_size=1, max_size=3 * STRETCHES))
def test_busy_periods_with_the_shortest_pauses_are_merged(periods):
    kept, all_of_them, now = [], [], 0.0
    for pause, long in periods:
        stretch = Stretch(now + pause, now + pause + long, 10, 1)
        now = stretch.end
        all_of_them.append(stretch)
        kept = _bounded([*kept, stretch])
    assert len(kept) == min(len(periods), STRETCHES)
    assert sum(each.bytes for each in kept) == 10 * len(periods)
    assert sum(each.pieces for each in kept) == len(periods)
    assert (kept[0].begin, kept[-1].end) == (all_of_them[0].begin, now)
    assert all(a.end <= b.begin for a, b in pairwise(kept))
    if len(periods) <= STRETCHES:
        assert kept == all_of_them
