"""Depots that relay connections for users, and tickets for them."""

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field, StringConstraints

from broker.models.base import Count, Moment, Seconds, Size, Wire
from broker.models.callers import Subject
from broker.models.catalogue import Host
from broker.models.names import Named
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.route import DepotRoute

__all__ = [
    "ExpectedRoute",
    "ForwardingEntry",
    "ForwardingInstructions",
    "IssuedDepotTicket",
    "NewDepot",
    "RegisteredDepot",
    "ReportedLeg",
    "ReportedRoute",
    "RouteDay",
    "RouteTime",
    "WantedTickets",
]

MOST_HOPS = 8
MOST_MINUTES = 24 * 60


def _numeric(text: str) -> str:
    ip_address(text)
    return text


def _connectable(text: str) -> str:
    """Return a host without the dot at its end. :raises ValueError: for a host that depots do not accept"""
    HostPort.of(text.strip("[]"), 1)
    return text.rstrip(".")


def _route(text: str) -> str:
    route = DepotRoute.parse(text)
    if route.automatic:
        raise ValueError("auto is not allowed: give the depots")
    return str(route)


Secret = Annotated[str, StringConstraints(pattern=r"^[!-~]{16,200}$")]
Address = Annotated[str, StringConstraints(max_length=45), AfterValidator(_numeric)]
Port = Annotated[int, Field(ge=1, le=65535)]
DepotHost = Annotated[Host, AfterValidator(_connectable)]


class RegisteredDepot(Wire):
    """A depot: its name, site, host and port.

    - `tickets`: whether the broker knows its secret, and so issues tickets for it
    - `subject`: the subject as which the depot itself reports its legs, and gets its forwarding table
    """

    name: Named
    site: Named
    host: Host
    port: Port = 4000
    tickets: bool = False
    subject: str | None = None

    @property
    def place(self) -> HostPort:
        """The address, as depots and coget write it. An invalid host, as earlier versions took, is no error here."""
        return HostPort(self.host.strip("[]").rstrip(".").lower(), self.port)


class NewDepot(Wire):
    """A depot to register.

    - `secret`: the secret of its `--secret-file`; by default, the broker keeps the one that it knows
    - `subject`: the subject of the depot's own token, if it is connected to the broker
    """

    name: Named
    site: Named
    host: DepotHost
    port: Port = 4000
    secret: Secret | None = None
    subject: Subject | None = None


class WantedTickets(Wire):
    """A request for a ticket of each depot on a route.

    - `route`: names of depots, in the order of the route
    - `hosts`: servers to reach over them
    - `client`: numeric address of the client, for SOCKS5 and HTTP CONNECT
    - `minutes`, `sessions`, `bytes`: limits for the use of each ticket
    """

    route: Annotated[tuple[Named, ...], Field(min_length=1, max_length=MOST_HOPS)]
    hosts: Annotated[tuple[Host, ...], Field(min_length=1, max_length=16)]
    client: Address | None = None
    minutes: Annotated[int, Field(ge=1, le=MOST_MINUTES)] = 60
    sessions: Annotated[int, Field(ge=1, le=100_000)] = 1000
    bytes: Annotated[int, Field(ge=1, le=10**15)] = 10**13


class IssuedDepotTicket(Wire):
    """A ticket for one depot; without a ticket, the depot is used without.

    - `key`: the ticket's key, in hexadecimal digits; it is a secret
    """

    depot: str
    host: str
    port: int
    ticket: str | None = None
    key: str | None = None
    expires_at: Moment | None = None


class ReportedRoute(Wire):
    """The use of a route to a server in a transfer.

    - `route`: depots as HOST:PORT, separated by commas; `none` for the direct route
    - `seconds`: time in which its sessions fetched
    - `opening_seconds`: time until its first session was ready
    - `beginning`, `beginning_seconds`: number of its first bytes, about 1 MiB; time until these had come
    """

    scheme: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9+.-]{0,15}$")]
    host: Host
    ended: Moment
    route: Annotated[str, StringConstraints(max_length=2100), AfterValidator(_route)]
    bytes: Size
    seconds: Seconds
    sessions: Count
    opening_seconds: Seconds
    beginning: Size
    beginning_seconds: Seconds


@dataclass(frozen=True, slots=True)
class RouteTime:
    """The expected seconds for a file of 1 MiB over a route, as in ExpectedRoute."""

    route: str
    seconds: float


class ExpectedRoute(Wire):
    """The expected seconds for a file of 1 MiB from a server over a route."""

    host: str
    route: str
    seconds: float


class ReportedLeg(Wire):
    """A depot's connections to a next hop since its last report; unknown values are null.

    - `host`, `port`: the next hop, a depot or a server
    - `sessions`, `failures`: connections that were made, and that failed
    - `connect_seconds`: median time to connect
    - `round_trip`: shortest round-trip time in seconds
    - `loss`: share of the bytes to the next hop that were sent again
    - `rate`: delivery rate of the bytes to the next hop, in bytes per second
    """

    host: Host
    port: Port
    sessions: Count
    failures: Count
    connect_seconds: Seconds | None = None
    round_trip: Seconds | None = None
    loss: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    rate: Annotated[float, Field(gt=0, lt=1e15, allow_inf_nan=False)] | None = None


class ForwardingEntry(Wire):
    """The next depot on the way to a server, with a ticket for it.

    - `destination`: host of the server
    """

    destination: str
    next: IssuedDepotTicket


class ForwardingInstructions(Wire):
    """The forwarding table of a depot, and the legs that it should measure.

    - `seconds`: time for which the table is valid
    - `measure`: depots and servers to connect to, as HOST:PORT
    - `depots`: the other depots, as HOST:PORT
    """

    seconds: int
    table: list[ForwardingEntry]
    measure: list[str]
    depots: list[str]


class RouteDay(NamedTuple):
    """A reporter's uses of one route from a site to a server on one day.

    :param site: empty if unknown
    :param route: depots as HOST:PORT, separated by commas; `none` for the direct route
    :param day: days since the epoch (UTC)
    :param seconds: seconds of a small file, for each use that shows them
    """

    reporter: str
    site: str
    scheme: str
    host: str
    route: str
    day: int
    uses: int
    bytes: int
    seconds: tuple[float, ...]
