"""Forecasts of transfers, and of each replica of a dataset."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from broker.models.base import Fault, Moment, Size, Wire
from broker.models.depots import RouteTime
from broker.models.history import Direction
from broker.models.names import Did, FileClass, SinkName, SourceName, Whereto
from coalloc.model.forecasts import Estimate
from predictors.observation import New

__all__ = [
    "Expected",
    "ForecastRequest",
    "Forecasts",
    "Quantiles",
    "Questions",
    "RankedReplica",
    "ResolveRequest",
    "Resolved",
]


class Quantiles(Wire):
    """The quantiles of a forecast rate, in bytes per second: 10 %, 50 % and 90 % of actual rates should be lower."""

    p10: float
    p50: float
    p90: float


class ForecastRequest(Wire):
    """A transfer for which a forecast is requested."""

    source: SourceName
    sink: Whereto = ""
    direction: Direction = "read"
    size: Size | None = None
    file_class: FileClass = ""


class Questions(Wire):
    """A request for several forecasts at once."""

    forecasts: Annotated[list[ForecastRequest], Field(max_length=10_000, fail_fast=True)]


class Expected(Wire):
    """A forecast.

    - `rate`: None if nothing is known
    - `seconds`: duration for the requested size, set-up included
    - `observations`: number of transfers that the forecast is based on
    - `newest_age`: seconds since the newest of these transfers ended
    - `new`: what was not used yet (link, source, sink, or both); then the forecast is a guess from other links
    """

    source: str
    sink: str
    direction: Direction
    size: int | None
    rate: Quantiles | None
    setup_seconds: float | None
    seconds: float | None
    forecaster: str
    observations: int
    newest_age: float | None
    reason: str
    new: New
    at: Moment


class Forecasts(Wire):
    """Forecasts in the order of the requested transfers."""

    forecasts: list[Expected]


class ResolveRequest(Wire):
    """Datasets to find; `sink` is their destination, by default the caller's own site."""

    names: Annotated[list[Did], Field(max_length=10_000)]
    sink: SinkName | None = None


@dataclass(frozen=True, slots=True)
class RankedReplica:
    """A replica and its forecast; rank 1 is the best.

    It is no pydantic model, for speed: one response may have 30,000 of them. `measured` is true if the forecast is
    based on transfers over this link, and false if it is based on similar links. `routes` are the measured routes to
    its server, direct and over depots, the fastest for small files first.
    """

    url: str
    endpoint: str
    site: str
    rank: int
    rate: Quantiles | None
    measured: bool
    setup_seconds: float | None
    seconds: float | None
    rationale: str
    routes: Sequence[RouteTime] = ()

    @property
    def estimate(self) -> Estimate:
        """The forecast in the form that the planner takes."""
        if self.rate is None:
            return Estimate(self.setup_seconds, reason=self.rationale)
        bounds = (self.rate.p10, self.rate.p90)
        return Estimate(self.setup_seconds, self.rate.p50, self.rationale, bounds)


@dataclass(frozen=True, slots=True)
class Resolved:
    """A dataset and its available replicas, the best first; or the error for this name."""

    name: str
    size: int | None = None
    checksums: Mapping[str, str] = field(default_factory=dict)
    replicas: Sequence[RankedReplica] = ()
    error: Fault | None = None
