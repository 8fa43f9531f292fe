"""The moving average over time: which transfers count, and what it says of them."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.models import means
from predictors.models.means import DAY, HOUR, MovingAverage
from predictors.observation import Observation, Query

MB = 1_000_000
NOW = 100 * DAY


def seen(ended: float, rate: float, source: str = "ftp://a", seconds: float = 10.0, **more) -> Observation:
    return Observation(source, ended - seconds, ended, int(rate * seconds), seconds, **more)


def forecast(*observations: Observation, at: float = NOW, source: str = "ftp://a"):
    average = MovingAverage()
    for observation in observations:
        average.learn(observation)
    return average.forecast(Query(source, at))


def test_the_docstrings_hold():
    assert doctest.testmod(means).failed == 0


def test_transfers_count_the_same_whatever_their_size():
    long = seen(NOW - HOUR, 10 * MB, seconds=1000)
    short = seen(NOW - 2 * HOUR, 30 * MB, seconds=10)
    assert forecast(long, short).rate == pytest.approx(20 * MB)


def test_the_narrowest_window_that_holds_a_transfer_is_used():
    today, last_week, last_month = seen(NOW - 24 * HOUR, MB), seen(NOW - 5 * DAY, 2 * MB), seen(NOW - 30 * DAY, 6 * MB)
    assert forecast(today, last_week, last_month).rate == MB
    assert forecast(last_week, last_month).rate == 2 * MB
    oldest = forecast(last_month)
    assert oldest.rate == 6 * MB
    assert oldest.observations == 1
    assert oldest.newest_age == 30 * DAY
    assert oldest.reason == "the mean of one transfer ever, the newest 30 days ago"


def test_the_edge_of_a_window_belongs_to_it():
    assert forecast(seen(NOW - 25 * HOUR, MB), seen(NOW - 25 * HOUR - 1, 3 * MB)).rate == MB


def test_another_source_tells_nothing():
    nothing = forecast(seen(NOW - 1, MB, source="ftp://b"))
    assert (nothing.rate, nothing.setup_seconds, nothing.observations, nothing.newest_age) == (None, None, 0, None)


def test_a_small_transfer_tells_set_up_but_no_rate():
    small = Observation("ftp://a", NOW - 2, NOW - 1, 1000, 0.5, setup_seconds=0.4)
    result = forecast(small)
    assert result.rate is None
    assert result.setup_seconds == 0.4


def test_set_up_of_every_range_is_not_counted_into_the_rate():
    observation = Observation("ftp://a", NOW - 12, NOW - 1, 40 * MB, 10.0, setup_seconds=0.5, ranges=4)
    assert observation.rate == 5 * MB
    assert forecast(observation).setup_seconds == 0.5


def test_where_set_up_took_most_of_the_time_the_whole_time_counts():
    observation = Observation("ftp://a", NOW - 12, NOW - 1, 40 * MB, 10.0, setup_seconds=2.4, ranges=4)
    assert observation.rate == 4 * MB


samples = st.lists(st.tuples(st.floats(0, 200 * DAY), st.floats(1 * MB, 100 * MB)), max_size=20)


@given(samples, st.floats(0, 200 * DAY), st.randoms())
def test_the_future_and_the_order_of_learning_change_nothing(pairs, at, random):
    observations = [seen(ended, rate) for ended, rate in pairs]
    before = forecast(*[o for o in observations if o.end <= at], at=at)
    random.shuffle(observations)
    assert forecast(*observations, at=at) == before


@given(samples)
def test_a_mean_lies_between_the_least_and_the_greatest(pairs):
    observations = [seen(ended, rate) for ended, rate in pairs]
    result = forecast(*observations, at=200 * DAY)
    rates = [observation.rate for observation in observations]
    assert (result.rate is None) == (not rates)
    if rates:
        assert min(rates) * (1 - 1e-9) <= result.rate <= max(rates) * (1 + 1e-9)
