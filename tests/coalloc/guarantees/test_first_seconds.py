"""Forecasts from the first seconds: too few, the latest ones, and what makes them less sure."""

import pytest

from coalloc.guarantees.admission import CONFIDENCE
from coalloc.guarantees.first_seconds import PRIOR, ReadingErrors, forecast_from_mean

ERRORS = ReadingErrors()


def promised(rates: list[float], seconds: float = 60.0) -> float:
    forecast = forecast_from_mean(rates, 0.5, seconds)
    assert forecast is not None
    return forecast.promise(CONFIDENCE, ERRORS)


def test_four_seconds_must_be_known():
    assert forecast_from_mean([100.0] * 7, 0.5, 60.0) is None
    assert forecast_from_mean([100.0] * 8, 0.5, 60.0) is not None


def test_only_the_latest_ten_seconds_count():
    assert promised([900.0] * 50 + [100.0] * 20) == promised([100.0] * 20)


def test_less_is_promised_for_longer_after_less_and_where_the_rate_varies():
    usual = promised([100.0] * 20)
    assert 50 < usual < 100
    assert promised([100.0] * 20, seconds=600.0) < usual
    assert promised([100.0] * 8) < usual
    assert promised([50.0, 150.0] * 10) < usual


def test_a_standstill_promises_nothing():
    forecast = forecast_from_mean([0.0] * 20, 0.5, 60.0)
    assert forecast is not None
    assert forecast.promise(CONFIDENCE, ERRORS) == 0
    assert forecast.chance(1.0, ERRORS) == 0


def test_the_chance_of_what_is_promised_is_the_confidence_or_more():
    forecast = forecast_from_mean([80.0, 120.0] * 10, 0.5, 60.0)
    assert forecast is not None
    assert forecast.chance(forecast.promise(CONFIDENCE, ERRORS), ERRORS) == pytest.approx(0.91)


def test_the_known_errors_are_quantiles():
    assert len(PRIOR) == 100
    assert list(PRIOR) == sorted(PRIOR)
