"""Tests of the rates of a path in windows of many lengths."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.guarantees.samples import MOST, PathSamples, WindowRate


def recorded(rates: list[float], length: float = 0.5, limited: bool = False) -> PathSamples:
    """Return the windows of a path with these rates, looked at twice in each window."""
    samples, now = PathSamples(length), 0.0
    samples.add(0, now)
    for number, rate in enumerate(rates):
        for half in (0.5, 1.0):
            now = (number + half) * length
            samples.add(rate * length / 2, now, limited)
    return samples


def sample_rates(samples: PathSamples, seconds: float) -> list[float]:
    return [window.rate for _, window in sorted(samples.windows(seconds).items()) if not window.limited]


def test_windows_have_the_rates_that_were_recorded():
    samples = recorded([1e6, 2e6, 3e6, 4e6])
    assert sample_rates(samples, 0.5) == pytest.approx([1e6, 2e6, 3e6, 4e6])
    assert sample_rates(samples, 1.0) == pytest.approx([1.5e6, 3.5e6])
    assert sample_rates(samples, 2.0) == pytest.approx([2.5e6])
    assert sample_rates(samples, 1.5) == pytest.approx([2e6])


def test_five_hundred_limited_transfers_leave_the_distribution_as_it_was():
    chance = Random(1)
    samples = recorded([chance.lognormvariate(16, 0.4) for _ in range(200)])
    before = {seconds: sample_rates(samples, seconds) for seconds in (0.5, 1, 2, 10)}
    now = 200 * 0.5
    for _ in range(500):
        now += 3.25
        samples.add(0, now)
        limit, path = chance.uniform(1e5, 1e7), chance.lognormvariate(16, 0.4)
        for _ in range(20):  # whether or not the limit is reached
            now += 0.25
            samples.add(min(limit, path) * 0.25, now, limited=True)
    assert samples.count > 4000
    assert {seconds: sample_rates(samples, seconds) for seconds in (0.5, 1, 2, 10)} == before


def test_a_window_that_was_limited_for_a_moment_is_a_lower_bound_and_so_is_each_that_contains_it():
    samples = PathSamples(1.0)
    samples.add(0, 0.0)
    for step in range(1, 33):
        samples.add(1e5, step / 4, limited=step == 11)
    assert samples.windows(1.0)[2] == WindowRate(4e5, limited=True)
    assert [index for index, window in samples.windows(1.0).items() if window.limited] == [2]
    assert [index for index, window in samples.windows(2.0).items() if window.limited] == [1]
    assert [index for index, window in samples.windows(4.0).items() if window.limited] == [0]


def test_a_silence_and_a_clock_that_jumps_back_or_forth_leave_windows_out():
    samples = recorded([1e6] * 4)
    samples.add(9e9, 40.0)
    samples.add(1e6, 39.0)
    for step in range(1, 9):
        samples.add(0.25e6, 39.0 + step / 4)
    assert set(samples.windows(0.5).values()) == {WindowRate(1e6)}
    assert sorted(samples.windows(0.5)) == [0, 1, 2, 3, 78, 79, 80, 81]


def test_a_time_that_was_recorded_already_is_not_recorded_again():
    samples = recorded([1e6] * 4)
    samples.add(0, 0.0)
    for step in range(1, 9):
        samples.add(9e6, step / 4)
    assert sample_rates(samples, 0.5) == pytest.approx([1e6] * 4)


def test_windows_shorter_than_those_recorded_are_refused():
    with pytest.raises(ValueError, match=r"for windows of 0\.5 s"):
        recorded([1e6]).windows(0.25)


def test_memory_is_bounded_and_long_windows_reach_far_back():
    samples = recorded([1e6] * (5 * MOST))
    assert len(samples.windows(0.5)) == MOST
    assert len(samples.windows(4.0)) == 5 * MOST // 8


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0.01, 1.3), st.booleans()), min_size=1, max_size=60))
def test_bytes_are_neither_lost_nor_invented(steps: list[tuple[float, float, bool]]):
    samples, now = PathSamples(), 0.0
    samples.add(0, now)
    for nbytes, seconds, limited in steps:
        now += seconds
        samples.add(nbytes, now, limited)
    total = sum(nbytes for nbytes, _, _ in steps)
    for seconds in (0.5, 1.0, 1.5, 4.0):
        assert sum(window.rate * seconds for window in samples.windows(seconds).values()) <= total * (1 + 1e-4) + 1e-6
