"""How a dataset would be fetched, and how files would go through a network: who sends what, and when it is done."""

from typing import Annotated, Any, Literal

from pydantic import Field

from broker.models.base import Wire
from broker.models.forecasts import Quantiles
from broker.models.names import Did, SinkName

__all__ = [
    "Flow",
    "FlowsPlanned",
    "FlowsWanted",
    "LimitPrice",
    "OriginShare",
    "PlanWanted",
    "Planned",
    "Proof",
    "Share",
    "Way",
]

MOST_HOSTS = 200
MOST_LINKS = 20_000
MOST_FILES = 2_000
MOST_SHARED = 100


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


class FlowsWanted(Wire):
    """A network, and the files that have to be moved through it: as in docs/reference/network.md, as JSON.

    A host that is called like an endpoint, or whose `url` is that of one, is it.
    """

    hosts: Annotated[dict[str, Any], Field(max_length=MOST_HOSTS)]
    links: Annotated[dict[str, Any], Field(max_length=MOST_LINKS)] = Field(default_factory=dict)
    shared: Annotated[dict[str, Any], Field(max_length=MOST_SHARED)] = Field(default_factory=dict)
    files: Annotated[dict[str, Any], Field(min_length=1, max_length=MOST_FILES)]
    budget: float | None = None


class Way(Wire):
    """Bytes of a file that go the same way: from a holder, over relays, to a destination."""

    file: str
    hosts: list[str]
    bytes: int
    rate: float


class Flow(Wire):
    """What goes over a link, and what could; the ISPs of hosts that have several."""

    source: str
    sink: str
    source_isp: str = ""
    sink_isp: str = ""
    bytes: float
    rate: float
    capacity: int


class LimitPrice(Wire):
    """Something that bounds the plan, and what a byte pays that passes it; an exact number, as "2/3"."""

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
    """Bytes of a file that one of its holders sends; an exact number."""

    file: str
    host: str
    bytes: str


class Proof(Wire):
    """Why nothing is faster: in T seconds no more can be paid than T times the sum of price x capacity, and each byte
    pays what its cheapest way costs at least. Numbers are exact.
    """

    seconds: str
    limits: list[LimitPrice]
    origins: list[OriginShare]
    tolerance: str


class FlowsPlanned(Wire):
    """The plan: all flows run side by side, each at its rate, from the first second to the last.

    `direct_seconds` is what the best plan without relays takes, None where not every file can go straight. `network`
    is the one that was planned for, with what the broker knew beside what it was told.
    """

    method: str
    seconds: float
    direct_seconds: float | None
    reason: str
    paths: list[Way]
    flows: list[Flow]
    certificate: Proof
    network: dict[str, Any]
