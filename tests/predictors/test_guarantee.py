"""Bounds: how often they are missed, the lemmas on given samples, and the two notions of failure."""

from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.guarantee import Conformal, Percentile, expected_shortfall, service_probability, window_misses

SAMPLES = st.lists(st.floats(1.0, 1e9), min_size=1, max_size=60)


@given(samples=SAMPLES)
def test_a_tenth_of_the_samples_lies_below_the_percentile(samples):
    percentile = Percentile(most=40)
    for sample in samples:
        percentile.learn(sample)
    kept, bound = samples[-40:], percentile.bound()
    assert bound in kept
    assert sum(sample < bound for sample in kept) <= 0.1 * len(kept) <= sum(sample <= bound for sample in kept)


def shifting(count: int = 6000) -> list[float]:
    """Return rates whose spread and level change permanently, twice."""
    chance = Random(5)
    return [chance.lognormvariate(2 if i < 2000 else 0, 0.2 if i < 4000 else 1.0) for i in range(count)]


def test_bounds_that_correct_themselves_are_missed_as_often_as_they_should_be():
    values, bounds, before = shifting(), Conformal(), 1.0
    misses = []
    for value in values:
        misses.append(value < bounds.around(before).p10)
        bounds.learn(before, value)
        before = value
    assert fmean(misses[500:]) == pytest.approx(0.1, abs=0.01)
    assert max(fmean(misses[i : i + 500]) for i in range(500, 5500, 50)) < 0.16


def test_a_plain_percentile_is_not():
    percentile, misses = Percentile(), []
    for value in shifting():
        misses.append((bound := percentile.bound()) is not None and value < bound)
        percentile.learn(value)
    assert max(fmean(misses[i : i + 500]) for i in range(500, 5500, 50)) > 0.3


def test_both_readings_of_failure():
    bounds, actuals = [10.0] * 6, [20.0, 20, 5, 20, 20, 20]
    assert window_misses(bounds, actuals, 3) == (0.0, 0.75)
    assert window_misses(bounds, actuals, 1) == (1 / 6, 1 / 6)


@given(samples=SAMPLES, packets=st.integers(1, 1000))
def test_the_lemmas_agree_with_counting_packets_window_by_window(samples, packets):
    size, window = 1500, 0.5
    needed = packets * size / window
    late = [max(0.0, packets - sample * window / size) for sample in samples]
    assert expected_shortfall(samples, packets, size, window) == pytest.approx(fmean(late))
    assert service_probability(samples, needed) == fmean(sample >= needed for sample in samples)
