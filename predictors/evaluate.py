"""Evaluation by walking forward through a log: each transfer is forecast at its start, and learned at its end.

A transfer that takes an hour reveals nothing for an hour. Learning transfers in the order of their starts, as if each
ended at once, would make every forecaster look better than it can be.
"""

import heapq
from collections.abc import Iterable, Iterator
from itertools import count
from typing import NamedTuple

from predictors.base import Forecaster
from predictors.errors import NothingForecastError
from predictors.experience import telling
from predictors.metrics import Bounds, Scores, bounds, scores
from predictors.observation import Forecast, Observation, query_of

__all__ = ["SCORED", "Evaluation", "evaluate", "replay"]

SCORED = 0.6
"""Share of a log, at its end, on which forecasters are judged; the earlier part is for learning only."""


class Evaluation(NamedTuple):
    """The quality of a forecaster on the last part of a log.

    `low` and `high` judge its p10 and p90, below which a tenth and nine tenths should lie. `silent` counts the scored
    transfers for which it made no forecast.
    """

    forecaster: str
    points: Scores
    low: Bounds
    high: Bounds
    silent: int


def replay(observations: Iterable[Observation], forecaster: Forecaster) -> Iterator[tuple[Observation, Forecast]]:
    """Yield each transfer, in the order of their starts, with the forecast at its start."""
    under_way: list[tuple[float, int, Observation]] = []
    number = count()
    for observation in sorted(observations, key=lambda each: each.start):
        while under_way and under_way[0][0] <= observation.start:
            forecaster.learn(heapq.heappop(under_way)[2])
        yield observation, forecaster.forecast(query_of(observation))
        heapq.heappush(under_way, (observation.end, next(number), observation))


def evaluate(observations: Iterable[Observation], forecaster: Forecaster, scored: float = SCORED) -> Evaluation:
    """Judge a forecaster on the transfers of a log that yield a rate: on the last `scored` share of them.

    :raises NothingForecastError: when it forecast none of the scored transfers
    """
    pairs = [(forecast, rate) for each, forecast in replay(observations, forecaster) if (rate := telling(each))]
    judged = pairs[round((1 - scored) * len(pairs)) :]
    rated = [(forecast.rates, rate) for forecast, rate in judged if forecast.rates]
    if not rated:
        raise NothingForecastError(f"{forecaster.name} made no forecast for any of {len(judged)} transfers")
    actual = [rate for _, rate in rated]
    return Evaluation(
        forecaster.name,
        scores([rates.p50 for rates, _ in rated], actual),
        bounds([rates.p10 for rates, _ in rated], actual),
        bounds([rates.p90 for rates, _ in rated], actual),
        len(judged) - len(rated),
    )
