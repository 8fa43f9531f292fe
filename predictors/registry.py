"""All forecasters by their names: what an evaluation compares, and every check is made of."""

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
"""Makes one that knows nothing yet; True for a compiled one."""

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
"""Those that stand for the others of their families."""


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


def make(name: str, fast: bool = False) -> Forecaster:
    """A forecaster that knows nothing yet.

    :param fast: compiled, worth its seconds from some ten thousand transfers on
    :raises KeyError: when there is none of that name
    :raises MissingLibraryError: when it needs a library that is not installed
    """
    return FORECASTERS[name](fast)
