"""Forecasts for the sources of a file. No behaviour, no I/O.

Rates are bytes per second, times seconds.
"""

from collections.abc import Mapping
from typing import NamedTuple

from coalloc.model.replicas import ReplicaSet

__all__ = ["Estimate", "FoundReplicas"]


class Estimate(NamedTuple):
    """The forecast for a source: seconds until the first byte of a range, then bytes per second.

    `rate` is None while nothing is known. `reason` is one sentence for users. The rate should be within `bounds`, the
    p10 and p90 of its forecast, in four of five cases.
    """

    setup_seconds: float | None = None
    rate: float | None = None
    reason: str = ""
    bounds: tuple[float, float] | None = None


class FoundReplicas(NamedTuple):
    """A file, the forecasts for its replicas by URL, and its dataset name on the broker (None if no broker was asked).

    `measured` are the URLs whose forecasts rest on transfers over this very path; the other forecasts are guesses.
    """

    file: ReplicaSet
    expected: Mapping[str, Estimate]
    dataset: str | None = None
    measured: frozenset[str] = frozenset()
