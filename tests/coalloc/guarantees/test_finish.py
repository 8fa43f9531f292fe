"""Tests of the distribution of a transfer's finish time."""

from math import exp, inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.guarantees.finish import PRIOR, FinishErrors, FinishForecast

PROBABILITY = st.floats(0.01, 0.99)


def test_a_bound_holds_as_often_as_it_says_for_errors_like_the_known_ones() -> None:
    chance = Random(1)
    errors = FinishErrors([chance.gauss(0, 1) for _ in range(2000)])
    forecast = FinishForecast(100.0, 0.3)
    actual = [100.0 * exp(0.3 * chance.gauss(0, 1)) for _ in range(4000)]
    for probability in (0.1, 0.5, 0.9, 0.95):
        kept = sum(seconds <= forecast.within(probability, errors) for seconds in actual) / len(actual)
        assert kept == pytest.approx(probability, abs=0.03)
        assert forecast.chance(forecast.within(probability, errors), errors) == pytest.approx(probability, abs=0.02)


def test_own_errors_count_more_the_more_there_are() -> None:
    few, many = FinishErrors([5.0] * 3), FinishErrors([5.0] * 300)
    assert FinishErrors().quantile(0.9) < 2 < 5 == many.quantile(0.9)
    assert few.quantile(0.5) < 1 < 5 == many.quantile(0.5)


def test_half_of_the_forecasts_without_own_errors_are_too_high() -> None:
    assert FinishForecast(60.0, 0.4).within(0.5, FinishErrors()) == pytest.approx(60.0, rel=0.05)


def test_what_has_arrived_is_there_in_time() -> None:
    assert FinishForecast(0.0, 1.0).chance(0.0, FinishErrors()) == 1.0


def test_no_time_and_no_rate_are_no_chance() -> None:
    errors = FinishErrors()
    assert FinishForecast(10.0, 0.3).chance(0.0, errors) == 0.0
    assert FinishForecast(10.0, 0.3).chance(-5.0, errors) == 0.0
    assert FinishForecast(inf, 1.0).chance(1e9, errors) == 0.0


@given(st.lists(st.floats(-20, 20), max_size=50), PROBABILITY, PROBABILITY, st.floats(0.02, 3), st.floats(1e-3, 1e7))
def test_more_probability_needs_more_time(own: list[float], a: float, b: float, spread: float, seconds: float) -> None:
    errors, forecast = FinishErrors(own), FinishForecast(seconds, spread)
    low, high = sorted((a, b))
    assert forecast.within(low, errors) <= forecast.within(high, errors)
    assert errors.chance(-100) < 1e-9
    assert 1 - 1e-9 < errors.chance(100) <= 1


@given(st.lists(st.floats(-20, 20), max_size=50), PROBABILITY)
def test_the_chance_of_a_bound_is_its_probability(own: list[float], probability: float) -> None:
    errors = FinishErrors(own)
    assert errors.chance(errors.quantile(probability)) >= probability - 1e-6
    if len(set(own) | set(PRIOR)) == len(own) + len(PRIOR):
        assert errors.chance(errors.quantile(probability)) == pytest.approx(probability, abs=1e-6)


def test_nothing_is_certain() -> None:
    """The largest known error has been exceeded before."""
    errors = FinishErrors()
    assert 0.995 < errors.chance(3.5) < 0.9999
    assert errors.quantile(0.999) > errors.quantile(0.995) > 2


def test_an_error_leads_back_to_the_actual_duration() -> None:
    forecast = FinishForecast(40.0, 0.25)
    assert 40.0 * exp(0.25 * forecast.error(55.0)) == pytest.approx(55.0)
