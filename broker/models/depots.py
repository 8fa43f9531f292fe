"""Depots that relay connections for users, and tickets for them."""

from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from broker.models.base import Moment, Wire
from broker.models.catalogue import Host
from broker.models.names import Named

__all__ = ["IssuedDepotTicket", "NewDepot", "RegisteredDepot", "WantedTickets"]

MOST_HOPS = 8
MOST_MINUTES = 24 * 60


def _numeric(text: str) -> str:
    ip_address(text)
    return text


Secret = Annotated[str, StringConstraints(pattern=r"^[!-~]{16,200}$")]
Address = Annotated[str, StringConstraints(max_length=45), AfterValidator(_numeric)]


class RegisteredDepot(Wire):
    """A depot: its name, site, host and port.

    - `tickets`: whether the broker knows its secret, and so issues tickets for it
    """

    name: Named
    site: Named
    host: Host
    port: Annotated[int, Field(ge=1, le=65535)] = 4000
    tickets: bool = False


class NewDepot(Wire):
    """A depot to register.

    - `secret`: the secret of its `--secret-file`; by default, the broker keeps the one that it knows
    """

    name: Named
    site: Named
    host: Host
    port: Annotated[int, Field(ge=1, le=65535)] = 4000
    secret: Secret | None = None


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
