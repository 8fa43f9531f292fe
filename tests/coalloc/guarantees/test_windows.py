"""Tests of the rates of windows, and of how far forecasts from them err."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.guarantees.windows import LEAST, MOST, UNKNOWN, RateWindows


def fed(rates: list[float], step: float = 0.125) -> RateWindows:
    """Return windows of a transfer with these rates, a second each, looked at every `step` seconds."""
    windows, total, now = RateWindows(), 0.0, 100.0
    windows.add(total, now)
    for rate in rates:
        for _ in range(round(1 / step)):
            total, now = total + rate * step, now + step
            windows.add(total, now)
    return windows


def rate_of(windows: RateWindows) -> float:
    known = windows.forecast(10)
    assert known is not None
    return known[0]


def spread_of(windows: RateWindows, seconds: float) -> float:
    known = windows.forecast(seconds)
    assert known is not None
    return known[1]


def test_a_steady_transfer_has_its_rate_and_the_least_spread() -> None:
    windows = fed([5e6] * 200)
    assert rate_of(windows) == pytest.approx(5e6)
    assert spread_of(windows, 10) < 0.15


def test_nothing_is_known_before_the_first_window_ends() -> None:
    windows = RateWindows()
    windows.add(0, 5.0)
    windows.add(1000, 5.5)
    assert windows.forecast(10) is None


def test_a_noisy_transfer_has_a_larger_spread_and_a_longer_forecast_a_smaller_one() -> None:
    chance = Random(3)
    noisy = fed([chance.lognormvariate(16, 0.8) for _ in range(200)])
    calm = fed([chance.lognormvariate(16, 0.05) for _ in range(200)])
    assert spread_of(noisy, 1) > 3 * spread_of(calm, 1)
    assert spread_of(noisy, 60) < spread_of(noisy, 1)


def test_the_spread_of_a_wandering_rate_grows_with_the_duration() -> None:
    chance, level, rates = Random(4), 16.0, []
    for _ in range(250):
        level += chance.gauss(0, 0.1)
        rates.append(2.718**level)
    windows = fed(rates)
    assert spread_of(windows, 60) > spread_of(windows, 2)


def test_a_long_transfer_keeps_few_windows_and_its_rate() -> None:
    windows = fed([2e6] * (5 * MOST), step=0.5)
    assert rate_of(windows) == pytest.approx(2e6)
    assert len(windows._rates) < MOST


def test_a_restart_forgets_the_rates_but_not_how_much_they_vary() -> None:
    chance = Random(5)
    windows = fed([chance.lognormvariate(16, 1.0) for _ in range(100)])
    before = spread_of(windows, 5)
    windows.restart(5)
    assert windows.forecast(5) is None
    now = 1000.0
    windows.add(0.0, now)
    windows.add(1e6, now + 1)
    assert windows.forecast(5) == (1e6, before)


def test_a_pause_is_no_reason_to_fail() -> None:
    windows = fed([1e6] * 20 + [0.0] * 20 + [1e6] * 20)
    assert LEAST < spread_of(windows, 10) <= 3.0
    assert spread_of(fed([0.0] * 10), 3) <= UNKNOWN


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=40), st.sampled_from([0.01, 0.3, 1.0, 2.5, 70.0]))
def test_bytes_are_neither_lost_nor_invented(increments: list[float], step: float) -> None:
    windows, total, now = RateWindows(), 0.0, 0.0
    windows.add(total, now)
    for each in increments:
        total, now = total + each, now + step
        windows.add(total, now)
    counted = sum(windows._rates) * windows._length
    assert counted <= total * (1 + 1e-9) + 1e-6
    known = windows.forecast(step)
    assert known is None or known[1] > 0
