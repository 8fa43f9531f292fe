"""How a dataset would be fetched: what each source should deliver, and when it should be done."""

from typing import Literal

from broker.models.base import Wire
from broker.models.forecasts import Quantiles
from broker.models.names import Did, SinkName

__all__ = ["PlanWanted", "Planned", "Share"]


class PlanWanted(Wire):
    """A dataset to be fetched to a sink, the caller's own site unless given, by one of coget's schemes."""

    name: Did
    sink: SinkName | None = None
    strategy: Literal["single", "brute", "history", "conservative", "aggressive", "adaptive"] = "adaptive"


class Share(Wire):
    """What one replica should deliver, and what that rests on."""

    url: str
    endpoint: str
    site: str
    bytes: int
    fraction: float
    rate: Quantiles | None
    setup_seconds: float | None
    rationale: str


class Planned(Wire):
    """The plan. `seconds_p10_p90`: in four of five cases it should take as long; None while nothing is known."""

    name: str
    size: int
    sink: str
    strategy: str
    seconds: float | None
    seconds_p10_p90: tuple[float, float] | None
    rationale: str
    shares: list[Share]
