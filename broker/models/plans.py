"""Plans for fetching a dataset (shares) and for moving files through a network (flows), with their durations."""

from typing import Annotated, Any, Literal

from pydantic import Field

from broker.models.base import Wire
from broker.models.depots import RouteTime
from broker.models.forecasts import Quantiles
from broker.models.names import Did, SinkName
from coalloc.model.plans import Strategy

__all__ = [
    "DatasetPlan",
    "FileRoute",
    "FlowsPlanned",
    "FlowsRequest",
    "LimitPrice",
    "LinkFlow",
    "OriginShare",
    "PlanCaution",
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
    """The bytes that one replica should deliver, the forecast for it, and the measured routes to its server."""

    url: str
    endpoint: str
    site: str
    bytes: int
    fraction: float
    rate: Quantiles | None
    setup_seconds: float | None
    rationale: str
    routes: list[RouteTime]


class DatasetPlan(Wire):
    """A plan for fetching a dataset; `seconds_p10_p90` is the interval of its duration, None if nothing is known."""

    name: str
    size: int
    sink: str
    strategy: str
    seconds: float | None
    seconds_p10_p90: tuple[float, float] | None
    rationale: str
    shares: list[ReplicaShare]


class FlowsRequest(Wire):
    """A network, and the files to move through it, in the JSON form of docs/reference/network.md.

    A host with the name or the `url` of an endpoint stands for that endpoint.
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
    """The bytes, rate and capacity of a link; the ISPs are given for hosts that have several."""

    source: str
    sink: str
    source_isp: str = ""
    sink_isp: str = ""
    bytes: float
    rate: float
    capacity: int


class LimitPrice(Wire):
    """A limit that bounds the plan, and its price (dual value) per byte: an exact number, such as "2/3"."""

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


class PlanCaution(Wire):
    """The degrees by which a plan lowered uncertain capacities: of direct links, and of others.

    `relayed` is None if only files without a direct path are relayed.
    """

    direct: float
    relayed: float | None


class Proof(Wire):
    """The proof that no plan is faster, in exact numbers; with `caution`, for lowered capacities.

    In T seconds, all bytes together can pay at most T times the sum of price x capacity; each byte pays at least the
    price of its cheapest route.
    """

    seconds: str
    limits: list[LimitPrice]
    origins: list[OriginShare]
    tolerance: str
    caution: PlanCaution | None


class FlowsPlanned(Wire):
    """A plan in which all flows run at the same time, each at a constant rate, until the end.

    - `direct_seconds`: duration of the best plan without relays; None if a file has no direct route
    - `chance`: probability that relays are faster; None if all capacities are certain, or relays are not in question
    - `network`: the network of the request, completed with the broker's data
    """

    method: str
    seconds: float
    direct_seconds: float | None
    chance: float | None
    reason: str
    paths: list[FileRoute]
    flows: list[LinkFlow]
    certificate: Proof
    network: dict[str, Any]
