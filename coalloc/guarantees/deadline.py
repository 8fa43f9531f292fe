"""Transfers with a deadline: how likely it is kept, and which of the spare sources are needed for it now. Pure.

A spare source is not used as long as the deadline would still be kept if the source were used later: the lazy rule.
Compared with a plan from mean rates, it spares more sources and breaks fewer promises (docs/explanation/promises.md).
"""

from collections.abc import Sequence
from math import exp, hypot, inf, log
from typing import Literal, NamedTuple

from coalloc.guarantees.finish import FinishErrors, FinishForecast
from coalloc.model.forecasts import Estimate

__all__ = [
    "AT_RISK",
    "UNSURE",
    "Grade",
    "PathRate",
    "Prospect",
    "finish",
    "graded",
    "paths_of",
    "prospect",
    "spares_needed",
    "spread_of",
]

UNSURE, STEADIEST = 1.0, 0.15
"""Spread of a rate that is a guess; minimum before a transfer, as few earlier ones may agree by chance."""
WIDTH = 2.05
"""Units of the error between the p10 and the p90 of a forecast."""
AT_RISK, LOST = 0.7, 0.05
"""Chances below which a deadline is at risk, and as good as lost."""
Grade = Literal["fine", "at risk", "lost"]
POOR = 0.05
"""Quantile of the rate that the sources in use are assumed to have until spare ones are considered again."""
SAFETY = 5.0
"""Factor by which the risk must stay below the accepted one while sources are spared: mistakes cannot be undone."""


class PathRate(NamedTuple):
    """The expected rate of one or more sources.

    :param rate: bytes per second
    :param spread: typical error of forecasts of it, as the logarithm of a factor
    :param setup: seconds until the first byte
    """

    rate: float
    spread: float
    setup: float = 0.0


def paths_of(estimates: Sequence[Estimate]) -> list[PathRate]:
    """Return the forecasts of the sources about which something is known."""
    return [PathRate(each.rate, spread_of(each), each.setup_seconds or 0.0) for each in estimates if each.rate]


def spread_of(estimate: Estimate) -> float:
    """Return the spread of an expected rate before a transfer."""
    low, high = estimate.bounds or (0.0, 0.0)
    return max(STEADIEST, log(high / low) / WIDTH) if low > 0 else UNSURE


class Prospect(NamedTuple):
    """The outlook for a deadline before the transfer.

    :param chance: probability that it is kept if all sources are used
    :param seconds: seconds within which all sources together end with the wanted probability
    :param needed: number of sources, the first ones, that suffice at the start
    """

    chance: float
    seconds: float
    needed: int


def prospect(
    left: float, seconds: float, paths: Sequence[PathRate], sure: float, errors: FinishErrors, wait: float
) -> Prospect:
    """Return the outlook for a deadline before the transfer.

    :param paths: all sources, in the order in which they will be used; the others as for `spares_needed`
    """
    forecast = finish(left, paths)
    spares = spares_needed(left, seconds, paths[:1], paths[1:], sure, errors, wait)
    return Prospect(forecast.chance(seconds, errors), forecast.within(sure, errors), 1 + spares)


def finish(left: float, paths: Sequence[PathRate]) -> FinishForecast:
    """Return the forecast for `left` bytes from several sources at once, whose rates vary independently.

    Each source begins after its set-up; all end together.
    """
    rate = sum(path.rate for path in paths)
    if not rate:
        return FinishForecast(inf if left else 0.0, 1.0)
    spread = hypot(*(path.rate * path.spread for path in paths)) / rate
    seconds, begun, waited = inf, 0.0, 0.0
    for path in sorted(paths, key=lambda path: path.setup):
        if seconds <= path.setup:
            break
        begun, waited = begun + path.rate, waited + path.rate * path.setup
        seconds = (left + waited) / begun if begun else inf
    return FinishForecast(seconds, spread)


def spares_needed(
    left: float,
    seconds: float,
    used: Sequence[PathRate],
    spares: Sequence[PathRate],
    sure: float,
    errors: FinishErrors,
    wait: float,
) -> int:
    """Return how many of the spare sources to use from now on, in their order: as few as suffice.

    :param left: bytes that are missing
    :param seconds: seconds until the deadline
    :param used: the sources in use
    :param sure: probability with which the deadline is to be kept
    :param wait: seconds until this is asked again
    """
    cautious = 1 - (1 - sure) / SAFETY
    everything = [*used, *spares]
    for number in range(len(spares)):
        now = [*used, *spares[:number]]
        poor = exp(-finish(left, now).spread * errors.quantile(1 - POOR))
        arrived = wait * poor * sum(path.rate for path in now)
        later = finish(max(0.0, left - arrived), everything)
        if later.chance(seconds - wait, errors) >= cautious:
            return number
    return len(spares)


def graded(chance: float, before: Grade, sure: float) -> Grade:
    """Return the grade of a deadline; it becomes fine again only with the wanted probability.

    :param before: its grade until now
    """
    if chance < LOST:
        return "lost"
    return "at risk" if chance < AT_RISK or (before != "fine" and chance < sure) else "fine"
