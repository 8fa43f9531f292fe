"""In which order replicas are worth using, and why. Pure.

Ranking strategies are named and applied one after the other: each orders what those before it left equal.

- `priority`: the endpoint's own, less is better.
- `predicted`: expected seconds, set-up included; what nothing is known of comes after all that is known.
- `distance`: from the caller's site, along a great circle.
- `random`: any order, so that many callers spread.
"""

from collections.abc import Sequence
from math import asin, cos, inf, radians, sin, sqrt
from random import Random
from typing import NamedTuple

from broker.config import Strategy
from broker.models.catalogue import Endpoint
from predictors.observation import Forecast

__all__ = ["Choice", "kilometres", "rank", "rationale"]

EARTH = 6371.0
MB = 1e6


class Choice(NamedTuple):
    """A replica's endpoint, what is expected of it, and how far it is, km, None where that is not known."""

    endpoint: Endpoint
    forecast: Forecast
    distance: float | None


def rank(
    choices: Sequence[Choice],
    size: int | None,
    strategies: Sequence[Strategy],
    chance: Random,
    first: str | None = None,
) -> list[int]:
    """Which of the choices come first, by their numbers.

    :param size: bytes; the rates decide where it is None
    :param chance: of `random`
    :param first: the endpoint that is to be tried whatever is expected of it
    """

    def worth(i: int) -> tuple[float, ...]:
        choice = choices[i]
        return (choice.endpoint.name != first, *(_worth(strategy, choice, size, chance) for strategy in strategies))

    return sorted(range(len(choices)), key=worth)


def _worth(strategy: Strategy, choice: Choice, size: int | None, chance: Random) -> float:
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
    """Seconds, or the time that a byte takes where no size is known."""
    if forecast.rates is None:
        return inf
    if size is None:
        return 1 / forecast.rates.p50
    return forecast.seconds(size) or inf


def rationale(choice: Choice, tried: bool) -> str:
    """Why a replica has its rank, in one sentence for people; the same for all files of a class of sizes.

    :param tried: it was put first so that something becomes known of it
    """
    said = [f"priority {choice.endpoint.read_priority}"]
    if choice.forecast.rates:
        low, middle, high = (rate / MB for rate in choice.forecast.rates)
        setup = choice.forecast.setup_seconds
        said.append(
            f"{middle:.3g} MB/s expected ({low:.3g} to {high:.3g})"
            + (f" after {setup:.2g} s" if setup is not None else "")
            + f" by {choice.forecast.forecaster}: {choice.forecast.reason}"
        )
    else:
        said.append("nothing is known of its rate")
    if choice.distance is not None:
        said.append(f"{choice.distance:.0f} km away")
    if tried:
        said.append("tried first so that its rate becomes known")
    return "; ".join(said)


def kilometres(a: tuple[float, float] | None, b: tuple[float, float] | None) -> float | None:
    """Between two coordinates, along a great circle (haversine).

    >>> round(kilometres((46.23, 6.05), (41.84, -88.26)))
    7107
    """
    if a is None or b is None:
        return None
    (north, east), (other_north, other_east) = (tuple(map(radians, point)) for point in (a, b))
    chord = sin((other_north - north) / 2) ** 2 + cos(north) * cos(other_north) * sin((other_east - east) / 2) ** 2
    return 2 * EARTH * asin(sqrt(min(1.0, chord)))
