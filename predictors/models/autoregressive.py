"""AR(k): the next value as a weighted sum of the last k and a constant, the weights fitted by recursive least squares.

Source: AR in Vazhkudai, Schopf and Foster (2002); recursive least squares with forgetting as in Ljung, "System
Identification" (1999), section 11.2. An update per value costs k^2 operations, where a new fit would need k^3 and
all values. The series is scaled by its own running mean, so that the initial variance of the weights fits series
of any size. A forecast is kept within the range of the series, because a line fitted to noise has no bounds.
"""

from math import sqrt

from predictors.compiled import compilable
from predictors.models.state import Family, Member, State

__all__ = ["AUTOREGRESSIVE", "MEMBERS", "ORDERS"]

ORDERS = (1, 5)
FORGETTING = 0.998
"""Factor by which each new value reduces the weight of earlier ones."""
SPREAD = 10.0
"""Initial variance of the weights."""
NAN = float("nan")
K, SEEN, MEAN, LEAST, MOST, LAGS = 0, 1, 2, 3, 4, 5
"""Positions in the state. After the k lags, newest first: k + 1 weights, their covariance, and a gain."""


@compilable
def predicted(state: State, first: int) -> float:
    """Return the weighted sum of the lags, in units of the mean."""
    k = int(state[first])
    lags = first + LAGS
    total = 0.0
    for i in range(k):
        total += state[lags + k + i] * state[lags + i]
    return total / state[first + MEAN] + state[lags + k + k]


@compilable
def refit(state: State, first: int, value: float) -> None:
    """Move the weights towards those that would have forecast `value`."""
    k = int(state[first])
    n = k + 1
    lags = first + LAGS
    weights = lags + k
    covariance = weights + n
    gain = covariance + n * n
    scale = 1.0 / state[first + MEAN]
    error = value * scale - predicted(state, first)
    total = FORGETTING
    for i in range(n):
        row = covariance + i * n
        product = 0.0
        for j in range(k):
            product += state[row + j] * state[lags + j]
        product = product * scale + state[row + k]
        state[gain + i] = product
        total += product * (state[lags + i] * scale if i < k else 1.0)
    share = 1.0 / total
    for i in range(n):
        state[weights + i] += state[gain + i] * share * error
    for i in range(n):
        for j in range(i + 1):
            entry = (state[covariance + i * n + j] - state[gain + i] * state[gain + j] * share) / FORGETTING
            state[covariance + i * n + j] = entry
            state[covariance + j * n + i] = entry
    for i in range(n):  # without new information the covariance would grow forever
        if state[covariance + i * n + i] > SPREAD:
            shrink(state, covariance, n, i)


@compilable
def shrink(state: State, covariance: int, n: int, i: int) -> None:
    """Scale a row and its column so that their common entry is SPREAD; the matrix stays positive definite."""
    factor = sqrt(SPREAD / state[covariance + i * n + i])
    for j in range(n):
        state[covariance + i * n + j] *= factor
        state[covariance + j * n + i] *= factor


@compilable
def learn(state: State, first: int, value: float, at: float) -> None:
    """Learn a value. State: k, values seen, their mean, least and most, then the parts listed at LAGS."""
    k, seen = int(state[first]), state[first + SEEN]
    if seen >= k:
        refit(state, first, value)
    state[first + SEEN] = seen + 1.0
    state[first + MEAN] += (value - state[first + MEAN]) / (seen + 1.0)
    if seen == 0.0 or value < state[first + LEAST]:
        state[first + LEAST] = value
    if seen == 0.0 or value > state[first + MOST]:
        state[first + MOST] = value
    for i in range(k - 1, 0, -1):
        state[first + LAGS + i] = state[first + LAGS + i - 1]
    state[first + LAGS] = value


@compilable
def forecast(state: State, first: int, at: float) -> float:
    """Return the forecast; the last value until there are k values."""
    seen = state[first + SEEN]
    if seen == 0.0:
        return NAN
    if seen < state[first]:
        return state[first + LAGS]
    value = predicted(state, first) * state[first + MEAN]
    return min(max(value, state[first + LEAST]), state[first + MOST])


AUTOREGRESSIVE = Family("autoregressive", learn, forecast)


def _begin(k: int) -> tuple[float, ...]:
    n = k + 1
    weights = (1.0, *([0.0] * k))  # the initial forecast is the last value
    covariance = tuple(SPREAD if i == j else 0.0 for i in range(n) for j in range(n))
    return (float(k), 0.0, 0.0, 0.0, 0.0, *([0.0] * k), *weights, *covariance, *([0.0] * n))


MEMBERS = tuple(Member(f"AR({k})", AUTOREGRESSIVE, _begin(k), f"an autoregression over the last {k}") for k in ORDERS)
