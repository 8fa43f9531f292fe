"""Tests of contracts, of what is forecast for them, and of what they teach when they have ended."""

from math import exp
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.guarantees.contracts import (
    LEAST,
    PRIOR,
    SMALLEST,
    Contract,
    ContractErrors,
    RateForecast,
    contract_rate,
    forecast_rate,
    misses,
)
from coalloc.guarantees.samples import WindowRate
from coalloc.guarantees.streams import Stream

ERRORS = ContractErrors()
RATES = st.lists(st.floats(0, 1e9), min_size=LEAST, max_size=80)
PROBABILITIES = st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99, 1.0])


def forecast_of(rates: list[float], probability: float = 0.95, windows: int = 30) -> RateForecast:
    found = forecast_rate(rates, probability, windows)
    assert found is not None
    return found


def contract(rate: float = 1e6, windows: int = 20, probability: float = 0.9) -> Contract:
    stream = Stream("a", rate, probability, window=2.0)
    return Contract(stream, since=100.0, seconds=2.0 * windows, forecast=RateForecast(1.2e6, 0.3))


@given(RATES, PROBABILITIES)
def test_the_rate_that_a_contract_could_have_had_is_the_highest_that_enough_windows_have(rates, probability):
    allowed, possible = misses(probability, len(rates)), contract_rate(rates, probability)
    assert sum(rate < possible for rate in rates) <= allowed
    assert sum(rate < possible * 1.0001 + 1e-9 for rate in rates) > allowed


def test_nothing_is_forecast_from_few_windows_and_nothing_promised_on_a_dead_path():
    assert forecast_rate([1e6] * (LEAST - 1), 0.95, 30) is None
    assert forecast_of([0.0] * 50).promise(0.9, ERRORS) == 0.0
    assert forecast_of([0.0] * 50).chance(1.0, ERRORS) == 0.0
    assert forecast_of([0.0] * 50).chance(0.0, ERRORS) == 1.0


def test_a_steady_path_is_promised_almost_whole_and_a_noisy_one_less():
    chance = Random(2)
    steady = forecast_of([chance.gauss(1e6, 1e4) for _ in range(240)])
    noisy = forecast_of([1e6 * exp(chance.gauss(0, 0.5)) for _ in range(240)])
    assert steady.rate == pytest.approx(0.98e6, rel=0.02)
    assert steady.promise(0.9, ERRORS) > 0.8e6
    assert noisy.promise(0.9, ERRORS) < 0.5e6


def test_windows_that_come_in_runs_make_a_longer_contract_less_certain():
    chance, level, rates = Random(3), 0.0, []
    for _ in range(240):
        level = 0.97 * level + chance.gauss(0, 0.15)
        rates.append(1e6 * exp(level))
    shuffled = Random(1).sample(rates, len(rates))
    assert forecast_of(rates, windows=20).spread > 1.5 * forecast_of(shuffled, windows=20).spread


@pytest.mark.parametrize("correlation", [0.0, 0.8, 0.97])
def test_contracts_are_kept_as_often_as_stated_however_long_the_runs_of_slow_windows(correlation: float):
    kept = by_percentile = 0
    for seed in range(200):
        chance, level, rates = Random(seed), 0.0, []
        for _ in range(300):
            level = correlation * level + chance.gauss(0, 0.4 * (1 - correlation**2) ** 0.5)
            rates.append(1e6 * exp(level))
        known, possible = rates[:240], contract_rate(rates[240:], 0.95)
        kept += forecast_of(known, 0.95, 60).promise(0.9, ERRORS) <= possible
        by_percentile += contract_rate(known, 0.95) <= possible
    assert kept >= 176
    assert by_percentile < 150


@given(RATES, PROBABILITIES, st.integers(1, 400), st.floats(0.5, 0.99), st.floats(1e-3, 1e3))
def test_promises_scale_with_the_rates_and_fall_with_the_confidence(rates, probability, windows, confidence, factor):
    forecast = forecast_of(rates, probability, windows)
    promised = forecast.promise(confidence, ERRORS)
    assert promised >= forecast.promise((1 + confidence) / 2, ERRORS)
    scaled = forecast_of([rate * factor for rate in rates], probability, windows)
    assert scaled.promise(confidence, ERRORS) == pytest.approx(promised * factor, rel=1e-3, abs=1e-9)
    if promised > SMALLEST * forecast.rate:
        assert confidence <= forecast.chance(promised, ERRORS) <= confidence + 0.06


@given(st.lists(st.tuples(st.floats(-3, 3), st.booleans()), max_size=60))
def test_weights_of_errors_stay_a_distribution(own: list[tuple[float, bool]]):
    errors = ContractErrors(own)
    quantiles = [errors.quantile(probability) for probability in (0.01, 0.1, 0.5, 0.9, 0.99)]
    assert quantiles == sorted(quantiles)
    assert errors.chance(-100) < 0.001 < 0.999 < errors.chance(100)


def test_own_errors_replace_those_of_others_gradually():
    assert ContractErrors([(-5.0, False)] * 30).quantile(0.2) == pytest.approx(-5.0)
    assert ContractErrors([(-5.0, False)]).quantile(0.1) == pytest.approx(ERRORS.quantile(0.1), abs=0.5)


def test_contracts_that_got_what_they_asked_for_do_not_make_promises_smaller():
    bound = ERRORS.quantile(0.1)
    learnt = ContractErrors([(bound, True)] * 100)
    assert learnt.quantile(0.1) >= bound
    assert learnt.quantile(0.5) == pytest.approx(ERRORS.quantile(0.5), abs=0.25)
    broken = ContractErrors([(bound, True)] * 60 + [(bound - 1, False)] * 40)
    assert broken.quantile(0.1) < bound - 0.5


def test_a_contract_is_kept_if_no_more_windows_miss_than_may():
    good, bad = WindowRate(1e6), WindowRate(0.5e6)
    assert contract().result([good] * 18 + [bad] * 2, now=140.0).kept
    broken = contract().result([good] * 17 + [bad] * 3, now=140.0)
    assert (broken.kept, broken.missed, broken.at_least) == (False, 3, False)
    assert broken.error == pytest.approx(RateForecast(1.2e6, 0.3).error(0.5e6))


def test_a_contract_that_was_limited_shows_only_what_the_path_had_at_least():
    held = contract().result([WindowRate(1e6, limited=True)] * 18 + [WindowRate(2e5)] * 2, now=140.0)
    assert held.kept
    assert held.at_least
    assert not contract().result([WindowRate(1e6)] * 20, now=140.0).at_least


@pytest.mark.parametrize(("now", "windows"), [(139.9, 20), (120.0, 10), (140.0, 19), (140.0, 21)])
def test_nothing_is_learnt_from_a_contract_before_it_has_ended(now: float, windows: int):
    with pytest.raises(ValueError, match="has not ended"):
        contract().result([WindowRate(1e6)] * windows, now)


def test_what_is_learnt_from_a_broken_contract_makes_the_next_promise_smaller():
    held = contract()
    before = held.forecast.promise(0.9, ERRORS)
    result = held.result([WindowRate(1e5)] * 20, now=140.0)
    errors = ERRORS
    for _ in range(5):
        errors = errors.learn(result)
    assert held.forecast.promise(0.9, errors) < before


@pytest.mark.parametrize("probability", [-1.0, 0.0, 1.0, 2.0])
def test_shares_of_windows_beyond_all_and_none_are_as_these(probability: float):
    assert contract_rate([1.0, 2.0, 3.0], probability) == (1.0 if probability >= 1 else 3.0)


def test_a_forecast_of_nothing_is_never_wrong():
    errors = ContractErrors([(RateForecast(0.0, 0.3).error(1e6), False)] * 50)
    assert forecast_of([1e6] * 50).promise(0.9, errors) > 0


def test_the_known_errors_are_in_order():
    assert list(PRIOR) == sorted(PRIOR)
