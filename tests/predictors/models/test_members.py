"""Each member of the bank against its definition, recomputed from all values."""

from array import array
from itertools import pairwise
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.bank import MEMBERS, Layout, forecast_one, learn_all
from predictors.models import medians
from predictors.models.means import HOUR, MOST

BY_NAME = {member.name: member for member in MEMBERS}
RATES = st.lists(st.floats(1e3, 1e9), min_size=1, max_size=120)


class Alone:
    """One member, and one series."""

    def __init__(self, name: str) -> None:
        self._layout = Layout([BY_NAME[name]])
        self._row = array("d", self._layout.empty)

    def learn(self, value: float, at: float) -> None:
        learn_all(self._layout.kinds, self._layout.firsts, self._row, 0, [0.0, 0.0], 0, -1, value, at)

    def forecast(self, at: float) -> float:
        return forecast_one(self._layout.kinds[0], self._row, 0, at)


def forecasts_of(name: str, values: list[float], every: float = 60.0) -> list[float]:
    """Return a member's forecast after each value."""
    alone, found = Alone(name), []
    for i, value in enumerate(values):
        alone.learn(value, i * every)
        found.append(alone.forecast(i * every))
    return found


@pytest.mark.parametrize("name", BY_NAME)
def test_forecast_exists_from_the_first_value_on(name):
    alone = Alone(name)
    assert alone.forecast(0.0) != alone.forecast(0.0)  # NaN
    alone.learn(5e6, 10.0)
    assert alone.forecast(11.0) == pytest.approx(5e6)


def test_three_values_that_are_not_above_all_of_the_last_32_are_no_level_shift():
    peaks_among_low_values = ([9e6] + [5e6] * 7) * 3
    assert forecasts_of("Holt with rules", [*peaks_among_low_values, 8e6, 8e6, 8e6])[-1] > 8.1e6  # 8e6 after a shift


@pytest.mark.parametrize("name", BY_NAME)
def test_a_constant_series_is_forecast_as_it_is(name):
    assert forecasts_of(name, [7e6] * 300)[-1] == pytest.approx(7e6)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", BY_NAME)
@given(values=RATES)
def test_twice_the_values_are_twice_the_forecasts(name, values):
    assert forecasts_of(name, [2 * value for value in values]) == [2 * each for each in forecasts_of(name, values)]


@given(values=RATES)
def test_last_and_running_mean(values):
    assert forecasts_of("last", values) == values
    assert forecasts_of("running mean", values) == pytest.approx([fmean(values[: i + 1]) for i in range(len(values))])


@pytest.mark.parametrize("count", [5, 15, 25, 31])
@given(values=RATES)
def test_means_and_medians_over_the_last(count, values):
    windows = [values[max(0, i - count) : i] for i in range(1, len(values) + 1)]
    assert forecasts_of(f"mean of {count}", values) == pytest.approx([fmean(window) for window in windows])
    assert forecasts_of(f"median of {count}", values) == pytest.approx([median(window) for window in windows])


@pytest.mark.parametrize("count", [5, 15, 25, 31])
def test_values_that_left_a_mean_leave_no_rounding_error(count):
    assert forecasts_of(f"mean of {count}", [1e30] + [3e6] * 2 * count)[-1] == 3e6


@pytest.mark.parametrize("count", medians.TRIMMED)
@given(values=RATES)
def test_trimmed_means(count, values):
    def trimmed(window: list[float]) -> float:
        out = int(0.15 * len(window))
        return fmean(sorted(window)[out : len(window) - out])

    windows = [values[max(0, i - count) : i] for i in range(1, len(values) + 1)]
    assert forecasts_of(f"trimmed mean of {count}", values) == pytest.approx([trimmed(window) for window in windows])


@given(
    steps=st.lists(st.tuples(st.floats(1e3, 1e9), st.floats(0, 4 * HOUR)), min_size=1, max_size=80),
    late=st.floats(0, 9e4),
)
def test_means_over_time(steps, late):
    alone, at, seen = Alone("mean over 25 hours"), 0.0, []
    for value, after in steps:
        at += after
        alone.learn(value, at)
        seen.append((at, value))
    within = [value for ended, value in seen if ended >= at + late - 25 * HOUR]
    assert alone.forecast(at + late) == pytest.approx(fmean(within) if within else seen[-1][1])


def test_a_mean_over_time_holds_the_newest_and_no_rounding_adds_up():
    alone = Alone("mean over 10 days")
    for i in range(5 * MOST):
        alone.learn(1e9 if i < 4 * MOST else 1e3 * (i % 7 + 1), float(i))
    assert alone.forecast(5.0 * MOST) == pytest.approx(1e3 * fmean(i % 7 + 1 for i in range(4 * MOST, 5 * MOST)))


@given(values=RATES)
def test_an_adaptive_median_is_the_median_of_a_window_within_its_limits(values):
    for name, (least, most) in zip(("adaptive median 5-21", "adaptive median 21-51"), medians.ADAPTIVE, strict=True):
        windows = range(least, most + 1, 2)
        for i, forecast in enumerate(forecasts_of(name, values), 1):
            assert any(forecast == pytest.approx(median(values[max(0, i - window) : i])) for window in windows)


def test_an_adaptive_window_shortens_where_the_series_moves():
    moving = [1e6 * 1.05**i for i in range(60)]
    assert forecasts_of("adaptive median 5-21", moving)[-1] == pytest.approx(median(moving[-5:]))


def test_exponential_smoothing_reproduces_the_table_of_a_textbook():
    """NIST/SEMATECH e-Handbook of Statistical Methods, section 6.4.3.1, with alpha 0.1."""
    values = [71.0, 70, 69, 68, 64, 65, 72, 78, 75, 75, 75, 70]
    table = [71.0, 70.9, 70.71, 70.44, 69.80, 69.32, 69.58, 70.43, 70.88, 71.29, 71.67]
    forecasts = forecasts_of("smoothing 0.10", values)[:-1]
    assert [round(each, 2) for each in forecasts] == table
    errors = [(value - forecast) ** 2 for value, forecast in zip(values[1:], forecasts, strict=True)]
    assert fmean(errors) == pytest.approx(19.0, abs=0.02)


def test_an_autoregression_finds_the_weights_of_its_series():
    value, values = 10e6, []
    for i in range(400):
        value = 2e6 + 0.7 * value + (1e5 if i % 3 else -2e5)
        values.append(value)
    errors = [
        abs(forecast - after) / after
        for forecast, (_, after) in zip(forecasts_of("AR(1)", values), pairwise(values), strict=False)
    ]
    assert max(errors[200:]) < 0.03
    lasts = [abs(before - after) / after for before, after in pairwise(values)]
    assert fmean(forecasts_of("AR(5)", values)[-1:]) == pytest.approx(
        2e6 + 0.7 * value - 2e5 * (400 % 3 == 0), rel=0.05
    )
    assert fmean(errors[200:]) < fmean(lasts[200:])


@given(values=RATES)
def test_an_autoregression_stays_within_what_was_seen(values):
    for i, forecast in enumerate(forecasts_of("AR(5)", values)):
        assert min(values[: i + 1]) <= forecast <= max(values[: i + 1])


def test_holt_follows_a_trend():
    rising = [10e6 + i * 1e6 for i in range(100)]
    assert forecasts_of("Holt", rising)[-1] == pytest.approx(rising[-1] + 1e6)


def test_the_rules_forget_what_was_before_a_level_shift():
    shifted = [50e6, 51e6, 49e6, 50e6, 52e6, 50e6, 49e6, 51e6, 10e6, 11e6, 10e6]
    assert forecasts_of("Holt with rules", shifted)[-1] == pytest.approx(10e6, rel=0.1)
    assert forecasts_of("running mean", shifted)[-1] > 35e6


def test_the_rules_leave_an_outlier_out():
    steady = [50e6, 51e6, 49e6, 50e6, 52e6, 50e6, 5e6, 50e6]
    assert forecasts_of("Holt with rules", steady)[-1] == pytest.approx(50e6, rel=0.05)
    assert forecasts_of("Holt", steady)[-1] != pytest.approx(50e6, rel=0.05)


def test_seasonal_member_distinguishes_night_from_day():
    every, alone = 1800.0, Alone("Holt-Winters")
    for i in range(40 * 48):
        alone.learn(80e6 if i * every % 86400 < 43200 else 20e6, i * every)
    midnight = 40 * 86400.0
    assert alone.forecast(midnight + 6 * HOUR) > 2 * alone.forecast(midnight + 18 * HOUR)
