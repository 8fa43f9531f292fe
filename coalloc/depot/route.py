"""Routes over depots, as users write them. Pure."""

import secrets
from collections.abc import Mapping
from typing import NamedTuple

from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.protocol.session_header import (
    MOST_HOPS,
    PortRequest,
    SessionHeader,
    SessionRequest,
    credentials,
)
from coalloc.model.routes import DIRECTLY

__all__ = ["CHOSEN", "DIRECT", "DepotRoute", "DepotTicket", "depot_of", "tickets_of"]

DEFAULT_PORT = 4000
CHOSEN = "auto"


class DepotTicket(NamedTuple):
    """A ticket for a depot, and the key that belongs to it."""

    text: str
    key: bytes


class DepotRoute(NamedTuple):
    """A route to a server.

    :param depots: depots to go through, in this order; none to connect directly
    :param automatic: whether to connect directly and over the best depot, and to use both
    :param loose: whether the last depot may choose further depots
    :param buffer: bytes to buffer at each depot, for each direction
    :param congestion: congestion control of the depots' connections; "" for their default
    :param tickets: tickets by depot; a depot that is not listed gets none
    """

    depots: tuple[HostPort, ...] = ()
    loose: bool = False
    buffer: int = 0
    congestion: str = ""
    tickets: Mapping[HostPort, DepotTicket] = {}
    automatic: bool = False

    @classmethod
    def parse(cls, text: str, tickets: Mapping[HostPort, DepotTicket] | None = None) -> "DepotRoute":
        """Return the route in "A,B" (exactly these depots), "A,B,*" (B may choose further ones), "auto" or "none".

        A depot is HOST or HOST:PORT.

        >>> str(DepotRoute.parse("depot-a.example,depot-b.example:5000,*"))
        'depot-a.example:4000,depot-b.example:5000,*'

        :raises ValueError: if the text has another form
        """
        if text == CHOSEN:
            return cls(tickets=tickets or {}, automatic=True)
        names = [] if text == DIRECTLY else text.split(",")
        loose = names[-1:] == ["*"]
        depots = tuple(map(depot_of, names[:-1] if loose else names))
        repeated, words = len(set(depots)) < len(depots), {DIRECTLY, CHOSEN}.intersection(names)
        if (loose and not depots) or words or repeated or len(depots) > MOST_HOPS:
            raise ValueError(f"{text!r} is not a route: give up to {MOST_HOPS} different depots")
        return cls(depots, loose, tickets=tickets or {})

    def header(self, to: HostPort, now: float, port: PortRequest | None = None) -> SessionHeader:
        """Return the header of a new session to a server.

        :param now: time in seconds since 1970
        :param port: port to ask for instead of a connection
        """
        buffer, number = 0 if port else self.buffer, secrets.token_hex(16)
        request = SessionRequest(number, self.depots, to, self.loose, now, buffer, self.congestion, port=port)
        raw = request.encode()
        known = [self.tickets.get(depot) for depot in self.depots]
        return SessionHeader(request, raw, credentials(raw, known))

    def __str__(self) -> str:
        return ",".join([*map(str, self.depots), *["*"] * self.loose]) or (CHOSEN if self.automatic else DIRECTLY)


DIRECT = DepotRoute()


def tickets_of(known: Mapping[str, tuple[str, bytes]]) -> dict[HostPort, DepotTicket]:
    """Return tickets by depot, from their texts and keys by HOST or HOST:PORT.

    :raises ValueError: for an invalid name of a depot
    """
    return {depot_of(name): DepotTicket(*ticket) for name, ticket in known.items()}


def depot_of(text: str) -> HostPort:
    """Return the depot in HOST or HOST:PORT.

    >>> depot_of("[2001:db8::1]")
    HostPort(host='2001:db8::1', port=4000)

    :raises ValueError: if the text has another form
    """
    has_port = ":" in text and not text.endswith("]")
    return HostPort.parse(text if has_port else f"{text}:{DEFAULT_PORT}")
