"""Measures of forecast accuracy, computed from single scores or from sums."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from broker.models.scores import Score
from broker.reports.document import Column, Fact, Value
from predictors.metrics import scores
from predictors.observation import Rates
from predictors.tally import Tally

__all__ = ["COLUMNS", "FEW", "Judgement", "calibrated", "facts", "judged", "residuals", "summed"]

FEW = 20
"""Fewest transfers for reliable measures."""
EDGES = (0.25, 0.35, 0.5, 0.7, 0.85, 1.0, 1.15, 1.4, 2.0, 2.8, 4.0)
"""Bounds of the histogram of forecast / actual."""
COLUMNS = (
    Column("transfers", "Transfers", "count"),
    Column("mdape", "Median error", "share"),
    Column("rmsre", "RMSRE", "number"),
    Column("log_error", "Mean log error", "number"),
    Column("close", "Within 15 %", "share"),
    Column("bias", "Bias", "factor"),
    Column("coverage", "In p10 to p90", "share"),
    Column("sharpness", "p90 / p10", "factor"),
)


class Judgement(NamedTuple):
    """The accuracy of a set of forecasts, as `predictors.metrics` defines it.

    :param coverage: share of rates between p10 and p90, ideally 0.8
    :param sharpness: geometric mean of p90 / p10
    """

    transfers: int
    mdape: float
    rmsre: float
    log_error: float
    close: float
    bias: float
    coverage: float
    sharpness: float


def judged(forecasts: Sequence[tuple[Rates, float]]) -> Judgement:
    """Return the accuracy of forecasts.

    :param forecasts: forecasts, each with the actual rate
    :raises ValueError: when there are no forecasts
    """
    points = scores([rates.p50 for rates, _ in forecasts], [rate for _, rate in forecasts])
    sums = Tally.total(Tally.of(rates, rate) for rates, rate in forecasts)
    return Judgement(
        points.pairs,
        points.mdape,
        points.rmsre,
        points.log_error,
        points.close,
        points.bias,
        sums.coverage,
        sums.sharpness,
    )


def summed(tally: Tally) -> Judgement:
    """Return the accuracy from sums; medians are within 1 % of the exact value.

    :raises ValueError: when the sums are empty
    """
    return Judgement(
        tally.transfers,
        tally.mdape,
        tally.rmsre,
        tally.log_error,
        tally.share_close,
        tally.bias,
        tally.coverage,
        tally.sharpness,
    )


def facts(judgement: Judgement) -> list[Fact]:
    """Return the most important measures as facts."""
    few = f"not reliable: fewer than {FEW} transfers" if judgement.transfers < FEW else ""
    return [
        Fact("Median error", judgement.mdape, "share", few or "of |forecast / actual - 1|"),
        Fact("RMSRE", judgement.rmsre, "number", "root mean square of (p - a) / min(p, a), each at most 10"),
        Fact("Bias", judgement.bias, "factor", "median of forecast / actual: above 1 is too high"),
        Fact("Within 15 %", judgement.close, "share"),
        Fact("Between p10 and p90", judgement.coverage, "share", "ideally 80 %"),
        Fact("Sharpness", judgement.sharpness, "factor", "geometric mean of p90 / p10: near 1 is narrow"),
    ]


def calibrated(rows: Sequence[Score]) -> list[tuple[Value, ...]]:
    """Return a row for each promise: its name, the promised share, the number of hits, and the number of forecasts."""
    forecasts = [(score.rates, score.rate) for score in rows]
    return [
        ("below p10", 0.1, sum(rate < rates.p10 for rates, rate in forecasts), len(forecasts)),
        ("below p50", 0.5, sum(rate < rates.p50 for rates, rate in forecasts), len(forecasts)),
        ("between p10 and p90", 0.8, sum(rates.p10 <= rate <= rates.p90 for rates, rate in forecasts), len(forecasts)),
        ("below p90", 0.9, sum(rate < rates.p90 for rates, rate in forecasts), len(forecasts)),
    ]


def residuals(rows: Sequence[Score]) -> list[tuple[Value, ...]]:
    """Return the histogram of forecast / actual: the name and the number of forecasts of each range, lowest first."""
    ratios = [score.rates.p50 / score.rate for score in rows]
    bounds = (0.0, *EDGES, float("inf"))
    names = [f"< {EDGES[0]:g}", *(f"{a:g} – {b:g}" for a, b in pairwise(EDGES)), f"≥ {EDGES[-1]:g}"]
    return [
        (name, sum(low <= ratio < high for ratio in ratios))
        for name, low, high in zip(names, bounds[:-1], bounds[1:], strict=True)
    ]
