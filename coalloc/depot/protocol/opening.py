"""The request of a client to a depot, whatever protocol it uses. Pure."""

from typing import NamedTuple

from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.protocol.session_header import SessionHeader

__all__ = ["Opening"]


class Opening(NamedTuple):
    """A request to be connected to a destination.

    :param ticket: ticket that the client sent; "" for none
    :param rest: bytes after the request, which are for the destination
    :param header: the session header; None for SOCKS5 and HTTP CONNECT
    """

    destination: HostPort
    ticket: str
    rest: bytes
    header: SessionHeader | None = None
