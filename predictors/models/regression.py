"""Regression of log rates on the features known when a transfer begins.

Source: Vazhkudai and Schopf, "Using regression techniques to predict large data transfers" (2003); the features are
those of Liu et al., "Explaining wide area data transfer performance" (2017), that are known at the start: log size,
hour of the day (as a point on a circle), concurrency, streams, and the log of the rate before (lag).
"""

from collections import deque
from importlib.util import find_spec
from math import cos, exp, log, log1p, pi, sin
from statistics import NormalDist
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

from predictors.base import Forecaster
from predictors.context import LEVELS, Key
from predictors.errors import MissingLibraryError
from predictors.experience import Experience, telling
from predictors.observation import Forecast, Observation, Query, Rates

__all__ = ["FEATURES", "Diagnostics", "Regression"]

FEATURES = ("log size", "hour (sin)", "hour (cos)", "log concurrency", "log streams", "lag", "constant")
MOST, ANEW = 500, 50
"""Number of newest transfers in a fit, and of new transfers after which the fit is repeated."""
FEWEST = 3 * len(FEATURES)
"""Transfers needed for a first fit."""
DAY = 86400.0
BEYOND = NormalDist().inv_cdf(0.9)


class Diagnostics(NamedTuple):
    """The statistics of a fit, which show how reliable it is.

    `coefficients` by feature; `p_values` of each coefficient being 0; `r2` the share of variance explained; `deviation`
    of the residuals, in logs; `condition` number of the features (above 30: some are nearly redundant);
    `durbin_watson` near 2 if residuals are uncorrelated in time; `normal` the p-value of normal residuals (Jarque and
    Bera).
    """

    transfers: int
    coefficients: dict[str, float]
    p_values: dict[str, float]
    r2: float
    deviation: float
    condition: float
    durbin_watson: float
    normal: float


class PathRegression(Experience):
    """The data and the coefficients of a path's regression."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: deque[tuple[tuple[float, ...], float]] = deque(maxlen=MOST)
        self.lag = 0.0
        self.since = 0
        self.coefficients: tuple[float, ...] = ()
        self.deviation = 0.0


class Regression(Forecaster):
    """Ordinary least squares of log rates, one fit per path; the mean of the logs until there are enough transfers.

    :raises MissingLibraryError: without statsmodels
    """

    name = "regression"

    def __init__(self) -> None:
        if find_spec("statsmodels") is None:
            raise MissingLibraryError("statsmodels is not installed; run: pip install 'coget[forecast]'")
        self._paths: dict[Key, PathRegression] = {}

    def learn(self, observation: Observation) -> None:
        path = self._paths.setdefault(LEVELS["path"](observation), PathRegression())
        path.setup(observation)
        rate = telling(observation)
        if rate is None:
            return
        value = log(rate)
        if not path.count:
            path.lag = value
        path.rows.append((_features(observation, observation.start, path.lag), value))
        path.lag, path.since = value, path.since + 1
        path.rate(observation.end)
        if len(path.rows) >= FEWEST and (path.since >= ANEW or not path.coefficients):
            fit = self._fit(path)
            path.coefficients, path.deviation, path.since = tuple(fit.params), float(fit.mse_resid) ** 0.5, 0

    def forecast(self, query: Query) -> Forecast:
        path = self._paths.get(LEVELS["path"](query), PathRegression())
        if not path.count:
            return path.nothing(self.name)
        values = [value for _, value in path.rows]
        if path.coefficients:
            features = _features(query, query.at, path.lag)
            value = sum(a * b for a, b in zip(path.coefficients, features, strict=True))
            value = min(max(value, min(values)), max(values))  # a line has no bounds, but rates do
            deviation, basis = path.deviation, "a regression on size, hour, concurrency, streams and lag"
        else:
            value = sum(values) / len(values)
            deviation = (sum((each - value) ** 2 for each in values) / len(values)) ** 0.5
            basis = "the geometric mean of all, too few for a regression"
        rates = Rates(*(exp(value + step * BEYOND * deviation) for step in (-1, 0, 1)))
        return path.forecast(self.name, rates, query, basis)

    def diagnostics(self, query: Query) -> Diagnostics | None:
        """Return the statistics of a path's fit; None while there are too few transfers."""
        path = self._paths.get(LEVELS["path"](query))
        if path is None or len(path.rows) < FEWEST:
            return None
        from statsmodels.stats.stattools import durbin_watson, jarque_bera

        fit = self._fit(path)
        return Diagnostics(
            len(path.rows),
            dict(zip(FEATURES, map(float, fit.params), strict=True)),
            dict(zip(FEATURES, map(float, fit.pvalues), strict=True)),
            float(fit.rsquared),
            float(fit.mse_resid) ** 0.5,
            float(fit.condition_number),
            float(durbin_watson(fit.resid)),
            float(jarque_bera(fit.resid)[1]),
        )

    def _fit(self, path: PathRegression) -> Any:
        from statsmodels.regression.linear_model import OLS  # takes two seconds

        features, values = zip(*path.rows, strict=True)
        with catch_warnings():
            # Constant features make the matrix singular: the fit is the least-norm solution, and `condition` shows it.
            simplefilter("ignore")
            return OLS(list(values), [list(row) for row in features]).fit()


def _features(of: Query | Observation, at: float, lag: float) -> tuple[float, ...]:
    turn = 2 * pi * (at % DAY) / DAY
    size = log(of.bytes) if of.bytes else 0.0
    return (size, sin(turn), cos(turn), log1p(of.concurrency), log(max(of.streams, 1)), lag, 1.0)
