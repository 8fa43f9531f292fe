"""The ranking of replicas, with reasons.

The ranking has several criteria; each decides between replicas that are equal by the earlier ones.

- `priority`: priority of the endpoint; lower is better.
- `predicted`: forecast seconds, set-up included; replicas without a forecast come last.
- `distance`: great-circle distance to the destination; unknown distances come last.
- `random`: random order, to spread callers over replicas.
"""

from collections.abc import Sequence
from math import inf
from random import Random
from typing import NamedTuple

from broker.config.settings import Strategy
from broker.models.catalogue import Endpoint
from predictors.observation import Forecast

__all__ = ["ReplicaChoice", "rank", "rationale"]

MB = 1e6


class ReplicaChoice(NamedTuple):
    """A replica's endpoint, its forecast, and its distance in km, None if unknown."""

    endpoint: Endpoint
    forecast: Forecast
    distance: float | None


def rank(
    choices: Sequence[ReplicaChoice],
    size: int | None,
    strategies: Sequence[Strategy],
    chance: Random,
    first: str | None = None,
) -> list[int]:
    """Return the indices of the choices, the best first.

    :param size: bytes of the file; None to rank by rates
    :param chance: random generator for `random`
    :param first: name of an endpoint to put first, regardless of its forecast
    """

    def worth(i: int) -> tuple[float, ...]:
        choice = choices[i]
        return (choice.endpoint.name != first, *(_worth(strategy, choice, size, chance) for strategy in strategies))

    return sorted(range(len(choices)), key=worth)


def _worth(strategy: Strategy, choice: ReplicaChoice, size: int | None, chance: Random) -> float:
    match strategy:
        case "priority":
            return choice.endpoint.read_priority
        case "predicted":
            return _expected(choice.forecast, size)
        case "distance":
            return inf if choice.distance is None else choice.distance
        case "random":
            return chance.random()


def _expected(forecast: Forecast, size: int | None) -> float:
    """Return the forecast seconds, or seconds per byte if the size is unknown; infinity without a forecast."""
    if forecast.rates is None:
        return inf
    if size is None:
        return 1 / forecast.rates.p50
    return forecast.seconds(size) or inf


def rationale(choice: ReplicaChoice, tried: bool) -> str:
    """Return the reason for a replica's rank, in one sentence for users; all files of a size class have the same.

    :param tried: whether the replica was put first to measure its rate
    """
    reasons = [f"priority {choice.endpoint.read_priority}"]
    if choice.forecast.rates:
        low, middle, high = (rate / MB for rate in choice.forecast.rates)
        setup = choice.forecast.setup_seconds
        reasons.append(
            f"{middle:.3g} MB/s expected ({low:.3g} to {high:.3g})"
            + (f" after {setup:.2g} s" if setup is not None else "")
            + f" by {choice.forecast.forecaster}: {choice.forecast.reason}"
        )
    else:
        reasons.append("its rate is unknown")
    if choice.distance is not None:
        reasons.append(f"{choice.distance:.0f} km away")
    if tried:
        reasons.append("first, to measure its unknown rate")
    return "; ".join(reasons)
