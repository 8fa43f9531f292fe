"""The decision to ask a second replica: from the newest reads of a server, within a budget."""

import pytest

from coalloc.download.read_forecasts import FEW, NEWEST, SHARE, HedgeBudget, ReadForecasts
from coalloc.model.forecasts import Estimate

SIZE = 64 << 10


def learned(*seconds: float, nbytes: int = SIZE) -> ReadForecasts:
    forecasts = ReadForecasts()
    for each in seconds:
        forecasts.learn("a:80", nbytes, each)
    return forecasts


def test_rare_stalls_do_not_move_the_end_of_the_interval():
    steady = [0.020 + 0.0001 * (i % 10) for i in range(NEWEST)]
    stalling = [1.0 if i % 20 == 7 else each for i, each in enumerate(steady)]
    assert learned(*stalling).forecast("a:80", SIZE).late == pytest.approx(learned(*steady).forecast("a:80", SIZE).late)


def test_a_server_that_stalls_is_expected_to_take_longer_than_one_that_does_not():
    steady, stalling = learned(*[0.02] * 20), learned(*[0.02] * 19, 0.045)
    assert stalling.forecast("a:80", SIZE).usual > 1.2 * steady.forecast("a:80", SIZE).usual


def test_the_interval_follows_a_server_that_becomes_slower():
    assert learned(*[0.02] * NEWEST, *[0.2] * NEWEST).forecast("a:80", SIZE).late > 0.2


def test_reads_of_other_sizes_count_if_there_are_none_of_this_size():
    forecasts = learned(*[0.5] * FEW, nbytes=1 << 20)
    assert forecasts.forecast("a:80", SIZE).late > 0.5
    forecasts.learn("a:80", SIZE, 0.01)
    assert forecasts.forecast("a:80", SIZE).usual == pytest.approx(0.01)
    assert forecasts.forecast("a:80", 1 << 20).usual == pytest.approx(0.5)


def test_nothing_is_forecast_for_an_unknown_server():
    assert learned(0.1).forecast("b:80", SIZE) is None


def test_the_first_reads_are_judged_by_earlier_transfers():
    prior = Estimate(setup_seconds=0.1, rate=1e6, bounds=(5e5, 2e6))
    assert learned().forecast("a:80", 1_000_000, prior).usual == pytest.approx(1.1)
    assert learned(*[0.01] * (FEW - 1)).forecast("a:80", 1_000_000, prior).late == pytest.approx(2.3)
    assert learned(*[0.01] * FEW).forecast("a:80", 1_000_000, prior).late < 0.1


def test_the_budget_for_bytes_that_arrive_twice_is_a_share_of_those_requested():
    budget, twice = HedgeBudget(), 0
    for _ in range(1000):
        budget.request(SIZE)
        twice += SIZE * budget.take(SIZE)
    assert SHARE - 0.001 < twice / (1000 * SIZE) < 0.05
