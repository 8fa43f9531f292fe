"""Properties that every forecaster must have: each check makes its own transfers and tests the forecasts.

The idea is from river, which runs the same `checks` on every model. A check that fails raises AssertionError with
the reason.
"""

from collections.abc import Callable
from dataclasses import replace
from math import isclose, isfinite
from random import Random

from predictors.base import Forecaster
from predictors.evaluate import replay
from predictors.observation import Forecast, Observation, Query, query_of

__all__ = ["CHECKS", "Make"]

Make = Callable[[], Forecaster]
"""Function that makes a new forecaster that has learned nothing."""

MINUTE = 60.0


def _log(count: int = 200, seed: int = 1) -> list[Observation]:
    """Return overlapping transfers on three paths, with sizes and rates that differ by orders of magnitude."""
    chance, at = Random(seed), 1e9
    found = []
    for i in range(count):
        at += chance.expovariate(1 / MINUTE)
        size, rate = int(10 ** chance.uniform(6.5, 9.5)), 10 ** chance.uniform(6, 8)
        found.append(
            Observation(
                f"ftp://{'abc'[i % 3]}",
                at,
                at + size / rate,
                size,
                setup_seconds=chance.uniform(0.0, 0.2),
                direction="read" if i % 2 else "write",
                file_class="xy"[i % 2],
                concurrency=i % 4,
                streams=1 + i % 2,
            )
        )
    return found


def _all(make: Make, log: list[Observation]) -> list[Forecast]:
    return [forecast for _, forecast in replay(log, make())]


def _learned(make: Make, log: list[Observation]) -> Forecaster:
    forecaster = make()
    for observation in sorted(log, key=lambda each: each.end):
        forecaster.learn(observation)
    return forecaster


def the_future_changes_no_earlier_forecast(make: Make) -> None:
    """Check that there is no look-ahead: earlier forecasts stay exactly the same."""
    log = _log()
    changed = [replace(each, bytes=each.bytes * 7) if i >= 100 else each for i, each in enumerate(log)]
    early = [i for i in range(len(log)) if log[i].start <= log[100].start]
    before, after = _all(make, log), _all(make, changed)
    assert all(before[i].rates == after[i].rates for i in early[:-1]), "a forecast knew what came after it"


def a_forecast_changes_nothing(make: Make) -> None:
    forecaster = _learned(make, _log())
    query = Query("ftp://a", 2e9, 10**8)
    first = forecaster.forecast(query)
    for source in ("ftp://a", "ftp://nowhere"):
        forecaster.forecast(Query(source, 2e9 + 1e6, 10**9))
    assert forecaster.forecast(query) == first, "a query changed a later forecast"


def an_observation_is_not_changed(make: Make) -> None:
    log = _log(20)
    original = [replace(each) for each in log]
    _learned(make, log)
    assert log == original, "an observation was changed"


def no_rates_without_history(make: Make) -> None:
    forecast = make().forecast(Query("ftp://a", 0.0))
    assert forecast.rates is None, "a rate without any observation"
    assert forecast.observations == 0
    assert forecast.reason, "no reason"


def one_observation_is_enough(make: Make) -> None:
    forecaster = make()
    forecaster.learn(Observation("ftp://a", 0.0, 10.0, 10**8))
    forecast = forecaster.forecast(Query("ftp://a", 20.0, 10**8))
    assert forecast.rates is not None, "no rate after one observation"
    assert isclose(forecast.rates.p50, 1e7, rel_tol=1e-6), f"{forecast.rates.p50} after one of 1e7"


def a_constant_series_is_forecast_as_it_is(make: Make) -> None:
    log = [Observation("ftp://a", 100.0 * i, 100.0 * i + 10, 10**8) for i in range(1, 100)]
    forecast = _learned(make, log).forecast(Query("ftp://a", 2e4, 10**8))
    assert forecast.rates is not None
    assert all(isclose(rate, 1e7, rel_tol=1e-3) for rate in forecast.rates), f"{forecast.rates} of a series of 1e7"


def rates_are_positive_and_in_order(make: Make) -> None:
    for forecast in _all(make, _log()):
        if forecast.rates is not None:
            assert all(isfinite(rate) and rate > 0 for rate in forecast.rates), f"{forecast.rates}"
            assert forecast.rates.p10 <= forecast.rates.p50 <= forecast.rates.p90, f"{forecast.rates} not in order"


def twice_the_rate_is_forecast_as_twice_the_rate(make: Make) -> None:
    """Check scale equivariance: only the rates are scaled, by a power of two, so that no digit is lost."""
    plain = [replace(each, busy_seconds=each.end - each.start, setup_seconds=None) for each in _log()]
    faster = [replace(each, busy_seconds=(each.busy_seconds or 0.0) / 2) for each in plain]
    query = query_of(plain[0])._replace(at=2e9)
    one, two = (_learned(make, each).forecast(query).rates for each in (plain, faster))
    assert one is not None
    assert two is not None
    assert all(isclose(2 * a, b, rel_tol=1e-6) for a, b in zip(one, two, strict=True)), f"{one} became {two}"


def duplicates_gaps_and_a_clock_that_goes_back_are_survived(make: Make) -> None:
    log = _log(50)
    later = [replace(each, start=each.start + 1e8, end=each.end + 1e8) for each in log]
    forecaster = make()
    for observation in [*log, *log, *later, *reversed(log)]:
        forecaster.learn(observation)
    forecast = forecaster.forecast(query_of(log[0])._replace(at=later[-1].end))
    assert forecast.rates is not None, "no rate after these observations"
    before = forecaster.forecast(query_of(log[0])._replace(at=0.0))
    assert all(each.newest_age is None or each.newest_age >= 0 for each in (forecast, before)), "an age below zero"


CHECKS: tuple[Callable[[Make], None], ...] = (
    the_future_changes_no_earlier_forecast,
    a_forecast_changes_nothing,
    an_observation_is_not_changed,
    no_rates_without_history,
    one_observation_is_enough,
    a_constant_series_is_forecast_as_it_is,
    rates_are_positive_and_in_order,
    twice_the_rate_is_forecast_as_twice_the_rate,
    duplicates_gaps_and_a_clock_that_goes_back_are_survived,
)
