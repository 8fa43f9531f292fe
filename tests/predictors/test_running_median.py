"""Running medians: close to the exact one, and led by the newest numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.running_median import RunningMedian

NUMBERS = st.lists(st.floats(1e-4, 20.0), min_size=1, max_size=60)


def median_of(numbers):
    running = RunningMedian()
    for number in numbers:
        running.add(number)
    return running.value


@given(NUMBERS)
def test_half_of_the_numbers_are_on_either_side(numbers):
    found = median_of(numbers)
    assert sum(number < found / 1.06 for number in numbers) <= len(numbers) / 2 + 1
    assert sum(number > found * 1.06 for number in numbers) <= len(numbers) / 2 + 1


@given(st.lists(st.sampled_from([0.0, 1e-300, 5e-324, 29.9, 1e300, float("inf")]), min_size=1, max_size=9))
def test_numbers_beyond_the_bins_count_in_the_first_and_the_last_one(numbers):
    assert 0 < median_of(numbers) < 40


def test_newer_numbers_count_more():
    assert median_of([0.1] * 4000 + [1.0] * 2000) == pytest.approx(1.0, rel=0.06)
    assert median_of([0.1] * 4000 + [1.0] * 500) == pytest.approx(0.1, rel=0.06)


def test_weights_stay_finite():
    assert median_of([0.1, 0.3] * 25_000 + [0.3] * 3000) == pytest.approx(0.3, rel=0.06)


def test_without_numbers():
    assert RunningMedian().value == 0
