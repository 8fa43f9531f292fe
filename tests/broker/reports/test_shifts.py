"""The rank sum test: published values, those of another implementation, and limits."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some
from scipy.stats import mannwhitneyu

from broker.reports.significance import shifted

DAYS = some.lists(some.floats(0, 3), min_size=1, max_size=7)


@given(before=DAYS, after=DAYS)
@settings(max_examples=60, deadline=None)
def test_without_equal_values_it_says_what_scipy_says(before, after):
    if len({*before, *after}) == len(before) + len(after):
        theirs = mannwhitneyu(after, before, alternative="greater", method="exact").pvalue
        assert shifted(before, after) == pytest.approx(theirs)


@given(before=DAYS, after=DAYS)
@example(before=[0.0], after=[5e-324])
@settings(max_examples=60, deadline=None)
def test_it_is_a_probability_that_no_order_and_no_scale_changes(before, after):
    p = shifted(before, after)
    assert 0 < p <= 1
    assert shifted(sorted(before), after[::-1]) == p
    # Exact for each of them; a quarter of the least float would be zero.
    assert shifted([each * 4 for each in before], [each * 4 for each in after]) == p


def test_of_what_is_always_the_same_nothing_is_said():
    assert shifted([1.0] * 7, [1.0] * 7) == 1.0


def test_the_least_of_two_weeks():
    assert shifted([0.1 * i for i in range(7)], [1 + 0.1 * i for i in range(7)]) == pytest.approx(1 / 3432)


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (9, 8)])
def test_what_cannot_be_compared_is_refused(sizes):
    with pytest.raises(ValueError, match="cannot be compared"):
        shifted([1.0] * sizes[0], [1.0] * sizes[1])
