"""Plans: how a dataset is fetched, and how files go through a network; with shares or flows, and the time they take."""

from typing import Annotated, Any, Literal

from pydantic import Field

from broker.models.base import Wire
from broker.models.forecasts import Quantiles
from broker.models.names import Did, SinkName
from coalloc.model import Strategy

__all__ = [
    "DatasetPlan",
    "FileRoute",
    "FlowsPlanned",
    "FlowsRequest",
    "LimitPrice",
    "LinkFlow",
    "OriginShare",
    "PlanRequest",
    "Proof",
    "ReplicaShare",
]

MOST_HOSTS = 200
MOST_LINKS = 20_000
MOST_FILES = 2_000
MOST_SHARED = 100


class PlanRequest(Wire):
    """A dataset to fetch to a sink, by default the caller's own site, by one of coget's strategies."""

    name: Did
    sink: SinkName | None = None
    strategy: Strategy = "adaptive"


class ReplicaShare(Wire):
    """The bytes that one replica should deliver, and the forecast behind them."""

    url: str
    endpoint: str
    site: str
    bytes: int
    fraction: float
    rate: Quantiles | None
    setup_seconds: float | None
    rationale: str


class DatasetPlan(Wire):
    """A plan. In four of five cases it should take a time within `seconds_p10_p90`; None while nothing is known."""

    name: str
    size: int
    sink: str
    strategy: str
    seconds: float | None
    seconds_p10_p90: tuple[float, float] | None
    rationale: str
    shares: list[ReplicaShare]


class FlowsRequest(Wire):
    """A network, and the files to move through it, in the form of docs/reference/network.md, as JSON.

    A host that has the name or the `url` of an endpoint is that endpoint.
    """

    hosts: Annotated[dict[str, Any], Field(max_length=MOST_HOSTS)]
    links: Annotated[dict[str, Any], Field(max_length=MOST_LINKS)] = Field(default_factory=dict)
    shared: Annotated[dict[str, Any], Field(max_length=MOST_SHARED)] = Field(default_factory=dict)
    files: Annotated[dict[str, Any], Field(min_length=1, max_length=MOST_FILES)]
    budget: float | None = None


class FileRoute(Wire):
    """Bytes of a file that take the same route: from a holder, over relays, to a destination."""

    file: str
    hosts: list[str]
    bytes: int
    rate: float


class LinkFlow(Wire):
    """The bytes and the rate of a link, and its capacity; with the ISPs of hosts that have several."""

    source: str
    sink: str
    source_isp: str = ""
    sink_isp: str = ""
    bytes: float
    rate: float
    capacity: int


class LimitPrice(Wire):
    """A limit that bounds the plan, and the price that each byte pays to pass it: an exact number, such as "2/3"."""

    kind: Literal["link", "up", "down", "io", "shared", "budget"]
    source: str = ""
    sink: str = ""
    source_isp: str = ""
    sink_isp: str = ""
    host: str = ""
    isp: str = ""
    name: str = ""
    price: str


class OriginShare(Wire):
    """The bytes of a file that one of its holders sends, an exact number."""

    file: str
    host: str
    bytes: str


class Proof(Wire):
    """The proof that no plan is faster: in T seconds, all bytes together can pay at most T times the sum of price x
    capacity, and each byte pays at least the price of its cheapest route. Numbers are exact.
    """

    seconds: str
    limits: list[LimitPrice]
    origins: list[OriginShare]
    tolerance: str


class FlowsPlanned(Wire):
    """A plan in which all flows run side by side, each at its rate, from the first second to the last.

    `direct_seconds` is the time of the best plan without relays; None if some file cannot go directly. `network` is the
    network that was planned for: that of the request, completed with what the broker knows.
    """

    method: str
    seconds: float
    direct_seconds: float | None
    reason: str
    paths: list[FileRoute]
    flows: list[LinkFlow]
    certificate: Proof
    network: dict[str, Any]
