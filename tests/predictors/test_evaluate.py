"""The replay: the data behind a forecast, and the computed figures."""

import pytest

from predictors.base import Forecaster
from predictors.errors import NothingForecastError
from predictors.evaluate import evaluate, replay
from predictors.metrics import bounds, scores
from predictors.observation import Forecast, Observation, Query, Rates

MB = 1_000_000


class Newest(Forecaster):
    """A forecaster that repeats the last rate."""

    name = "newest"

    def __init__(self) -> None:
        self.learned: list[float] = []

    def learn(self, observation: Observation) -> None:
        self.learned.append(observation.rate or 0.0)

    def forecast(self, query: Query) -> Forecast:
        rate = self.learned[-1] if self.learned else None
        return Forecast(self.name, rate and Rates(rate / 2, rate, rate * 2), None, len(self.learned), None, "newest")


def took(start: float, seconds: float, rate: float) -> Observation:
    return Observation("ftp://a", start, start + seconds, round(rate * seconds))


def test_a_transfer_informs_only_after_it_ended():
    long, short, next_one = took(0, 100, 50 * MB), took(10, 5, 10 * MB), took(20, 5, 20 * MB)
    after = took(100, 1, 30 * MB)
    pairs = list(replay([after, next_one, long, short], Newest()))
    assert [each for each, _ in pairs] == [long, short, next_one, after]
    assert [forecast.rates and forecast.rates.p50 for _, forecast in pairs] == [None, None, 10 * MB, 50 * MB]


def test_the_last_part_is_scored_and_silence_is_counted():
    log = [took(10 * i, 5, rate) for i, rate in enumerate([10 * MB] * 4 + [20 * MB] + [10 * MB] * 5)]
    found = evaluate(log, Newest(), scored=0.6)
    assert found.points.pairs == 6
    assert found.points.mdape == 0.0
    assert found.points.close == pytest.approx(4 / 6)
    assert found.low.missed == 0.0
    assert evaluate(log, Newest(), scored=1.0).silent == 1
    with pytest.raises(NothingForecastError, match="any of 1"):
        evaluate(log[:1], Newest())


def test_metrics_by_hand():
    found = scores([10.0, 40.0, 1000.0], [20.0, 20.0, 1.0])
    assert found.mdape == 1.0  # of 0.5, 1 and 999
    assert found.rmsre == pytest.approx(((1 + 1 + 100) / 3) ** 0.5)
    assert found.bias == 2.0
    low = bounds([1.0] * 600, [2.0] * 300 + [0.5] * 300)
    assert (low.missed, low.worst) == (0.5, 0.6)
    for measure in (scores, bounds):
        with pytest.raises(ValueError, match="no pair"):
            measure([], [])
