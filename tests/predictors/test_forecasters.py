"""The strength of each kind of forecaster, on transfers made for it."""

from array import array
from dataclasses import replace
from math import exp
from random import Random

import pytest

from predictors.bank import MEMBERS
from predictors.evaluate import evaluate
from predictors.evaluate import replay as evaluated
from predictors.models.kernel import Kernel
from predictors.models.regression import FEATURES, Regression
from predictors.observation import Observation, Query, query_of
from predictors.registry import make
from predictors.selection import WINDOWS, Selected, account_of, pick, step
from predictors.selection import replay as replay_all

MB = 1_000_000


def took(start: float, rate: float, source: str = "ftp://a.one.org", size: int = 100 * MB, **more) -> Observation:
    return Observation(source, start, start + size / rate, size, **more)


def learned(forecaster, log):
    for observation in log:
        forecaster.learn(observation)
    return forecaster


def by_size_and_load(count: int = 600) -> list[Observation]:
    """Return rates that grow with the size, fall with the load, and vary a little."""
    chance, found = Random(3), []
    for i in range(count):
        size, load = int(exp(chance.uniform(15, 22))), chance.randrange(6)
        rate = 1e6 * (size / 1e7) ** 0.5 / (1 + load) * chance.lognormvariate(0, 0.1)
        found.append(took(3600.0 * i, rate, size=size, concurrency=load))
    return found


@pytest.mark.parametrize("name", ["kernel", "regression", "hedge"])
def test_forecasters_that_know_size_and_load_use_them(name):
    log = by_size_and_load()
    assert evaluate(log, make(name)).points.mdape < 0.25 < 0.5 < evaluate(log, make("median of 25")).points.mdape


def test_the_kernel_knows_nothing_of_what_ended_after_the_moment_it_is_asked_for():
    log = by_size_and_load(100)
    half = learned(Kernel(), log[:50])
    whole = learned(Kernel(), log)
    query = query_of(log[50])
    assert whole.forecast(query).rates.p50 == pytest.approx(half.forecast(query).rates.p50, rel=0.05)
    assert whole.forecast(query._replace(at=-1.0)).rates is None


def test_the_kernel_knows_by_what_began_last_whether_the_system_is_slow_now():
    """Return bursts of ten consecutive transfers."""
    chance, found, at = Random(5), [], 0.0
    for i in range(600):
        rate = (1e6 if i // 10 % 2 else 1e7) * chance.lognormvariate(0, 0.05)
        found.append(took(at, rate))
        at = found[-1].end + 1.0
    assert (
        evaluate(found, Kernel()).points.log_error < 0.4 < 0.6 < evaluate(found, make("median of 25")).points.log_error
    )


def test_bounds_are_missed_as_often_as_they_should_be_where_many_are_under_way():
    """Transfers that begin meanwhile learn of a miss late."""
    chance, log, level = Random(1), [], 0.0
    for i in range(2000):
        level = 0.95 * level + chance.gauss(0, 0.15)
        log.append(took(10.0 * i, 1e6 * exp(level), size=300 * MB))
    assert evaluate(log, make("hedge", fast=True)).low.missed == pytest.approx(0.1, abs=0.03)


def test_the_member_with_the_least_error_is_picked():
    """The bound equals a plain count of all errors, for each window."""
    forecaster, errors = Selected(), []
    row, account = array("d", forecaster._layout.empty), account_of(len(MEMBERS))
    kinds, firsts = forecaster._layout.kinds, forecaster._layout.firsts
    chance = Random(6)
    for i in range(300):
        value = chance.lognormvariate(15, 1) if i < 150 else 1e6 * i
        forecasts = [forecaster._one(kind, row, first, 60.0 * i) for kind, first in zip(kinds, firsts, strict=True)]
        if i:
            errors.append([abs(each - value) for each in forecasts])
        step(kinds, firsts, row, 0, account, 0, value, 60.0 * i)
        for window in (0, *WINDOWS):
            for power in (1, 2) if errors else ():
                totals = [sum(error**power for error in column[-window:]) for column in zip(*errors, strict=True)]
                chosen = pick(len(MEMBERS), account, 0, window, power == 2)
                assert totals[chosen] == pytest.approx(min(totals))


def test_forecast_names_its_forecaster_reason_and_duration():
    log = [took(100.0 * i, 10 * MB, setup_seconds=2.0, ranges=1) for i in range(5)]
    forecast = learned(make("least MAE"), log).forecast(Query("ftp://a.one.org", 1000.0, 80 * MB))
    assert forecast.forecaster == "least MAE"
    assert forecast.observations == 5
    assert forecast.newest_age == 1000.0 - log[-1].end
    assert forecast.seconds(100 * MB) == pytest.approx(2.0 + 100 * MB / forecast.rates.p50)
    assert forecast.reason.startswith(
        "the last value, the most accurate of 32 so far, of 5 transfers, the newest 10 minutes"
    )


def test_hedge_names_its_most_trusted_member():
    log = by_size_and_load(200)
    forecast = [forecast for _, forecast in evaluated(log, make("hedge"))][-1]
    assert forecast.forecaster == "hedge"
    assert forecast.leader == "kernel"
    assert "kernel: the mean of transfers similar in size" in forecast.reason


@pytest.mark.parametrize(("high", "seed"), [(2.0, 1), (30.0, 2)])
def test_hedge_follows_the_last_value_where_levels_last(high, seed):
    """A mean between two levels has a small mean error, but is close to no transfer."""
    chance = Random(seed)
    log, level = [], 1.0
    for hour in range(800):
        level = level if chance.random() < 0.7 else high + 1.0 - level
        log.append(Observation("ftp://a.one.org", 3600.0 * hour, 3600.0 * hour + 60.0, round(6e7 * level)))
    found = {name: evaluate(log, make(name)).points for name in ("hedge", "last")}
    assert found["hedge"].mdape <= found["last"].mdape + 0.01
    assert found["hedge"].log_error <= 1.03 * found["last"].log_error


def test_a_regression_shows_what_its_fit_is_worth():
    forecaster = learned(Regression(), by_size_and_load())
    assert forecaster.diagnostics(Query("ftp://nowhere", 0.0)) is None
    found = forecaster.diagnostics(Query("ftp://a.one.org", 0.0))
    assert found.transfers == 500
    assert tuple(found.coefficients) == FEATURES
    assert found.coefficients["log size"] == pytest.approx(0.5, abs=0.02)
    assert found.p_values["log size"] < 1e-6
    assert found.r2 > 0.95
    assert found.durbin_watson == pytest.approx(2.0, abs=0.3)
    assert 0 < found.normal < 1
    assert found.deviation == pytest.approx(0.1, abs=0.1)


def test_small_and_failed_transfers_give_no_rate_but_a_setup_time():
    log = [took(0.0, 10 * MB), took(100.0, 1e5, size=50_000, setup_seconds=0.25), took(200.0, 1e5, outcome="failed")]
    for name in ("last", "kernel", "hierarchy", "percentile", "hedge", "regression"):
        forecast = learned(make(name), log).forecast(Query("ftp://a.one.org", 5000.0, 100 * MB))
        assert forecast.rates.p50 == pytest.approx(10 * MB), name
        assert forecast.setup_seconds == 0.25
        assert forecast.observations == 1


def test_a_log_at_once_is_what_it_is_step_by_step():
    log = by_size_and_load(300)
    log = [
        replace(each, end=each.start + 40 * (each.end - each.start), busy_seconds=1.0 + i % 7)
        for i, each in enumerate(log)
    ]
    step_by_step = [forecast.rates.p50 if forecast.rates else None for _, forecast in evaluated(log, make("least MAE"))]
    layout, into = Selected()._layout, [0.0] * len(log)
    starts, ends = [each.start for each in log], [each.end for each in log]
    order = sorted(range(len(log)), key=lambda i: ends[i])
    replay_all(
        *(layout.kinds, layout.firsts, array("d", layout.empty), account_of(len(MEMBERS), 0), [0] * len(log)),
        *(starts, ends),
        *([each.rate for each in log], list(range(len(log))), order, into),
    )
    assert [None if each != each else each for each in into] == step_by_step
