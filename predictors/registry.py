"""All forecasters by their names, for evaluations and checks. The broker itself forecasts with `hedge`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from predictors.bank import MEMBERS
from predictors.base import Forecaster
from predictors.hedge import Hedge
from predictors.models.hierarchy import Hierarchy
from predictors.models.kernel import Kernel
from predictors.models.percentile import PercentilePrediction
from predictors.models.regression import Regression
from predictors.models.state import Member
from predictors.selection import WINDOWS, Selected

__all__ = ["FORECASTERS", "SHOWN", "make"]

Make = Callable[[bool], Forecaster]
"""Function that makes a forecaster that has learned nothing; compiled if its argument is True."""

SHOWN = (
    "last",
    "running mean",
    "mean of 25",
    "mean over 25 hours",
    "median of 25",
    "smoothing 0.20",
    "AR(5)",
    "Holt with rules",
    "least MAE",
    "least MAE by path and size",
    "regression",
    "kernel",
    "hierarchy",
    "percentile",
    "hedge",
)
"""Forecasters that represent their families in an evaluation."""


def _all() -> Iterator[tuple[str, Make]]:
    for member in MEMBERS:
        yield member.name, partial(_selected, [member], 0, False, "path")
    for squared in (False, True):
        for window in (0, *WINDOWS):
            name = f"least {'MSE' if squared else 'MAE'}{f' of {window}' if window else ''}"
            yield name, partial(_selected, MEMBERS, window, squared, "path")
    for level in ("path and size", "path, kind and size"):
        yield f"least MAE by {level}", partial(_selected, MEMBERS, 0, False, level)
    yield "regression", lambda fast: Regression()
    yield "kernel", lambda fast: Kernel(fast=fast)
    yield "hierarchy", lambda fast: Hierarchy()
    yield "percentile", lambda fast: PercentilePrediction()
    yield "hedge", lambda fast: Hedge(fast=fast)


def _selected(members: Sequence[Member], window: int, squared: bool, level: str, fast: bool) -> Forecaster:
    return Selected(members, window=window, squared=squared, level=level, fast=fast)


FORECASTERS: Mapping[str, Make] = dict(_all())
"""Function that makes each forecaster, by the name of the forecaster."""


def make(name: str, fast: bool = False) -> Forecaster:
    """Return a forecaster that has learned nothing.

    :param fast: whether to compile, which pays from some ten thousand transfers on
    :raises KeyError: when no forecaster has that name
    :raises MissingLibraryError: when it needs a library that is not installed
    """
    return FORECASTERS[name](fast)
