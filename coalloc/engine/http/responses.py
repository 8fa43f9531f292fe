"""Responses that came over plain TCP or by httpx: the connection, the request and the server of either kind."""

from typing import TYPE_CHECKING, Union

from coalloc.credentials.origins import WebOrigin
from coalloc.engine.http.channel import HTTPConnection
from coalloc.engine.http.plain import PlainAnswer, SentRequest
from coalloc.util.dialer import numeric

if TYPE_CHECKING:
    import httpx

__all__ = ["Answer", "connection_of", "is_direct", "origin_of", "sent_request", "server_address"]

Answer = Union["httpx.Response", PlainAnswer]
"""A response whose body has not been read yet."""


def sent_request(answer: Answer) -> SentRequest:
    """Return the request that a response answers."""
    if isinstance(answer, PlainAnswer):
        return answer.sent
    request = answer.request
    return SentRequest(request.method, request.url.raw_path, tuple(request.headers.raw))


def connection_of(answer: Answer) -> HTTPConnection:
    """Return the connection of a response."""
    connection: HTTPConnection = (
        answer.connection if isinstance(answer, PlainAnswer) else answer.extensions["network_stream"]
    )
    return connection


def is_direct(answer: Answer) -> bool:
    """Return whether a response came without a proxy."""
    if isinstance(answer, PlainAnswer):
        return True
    from coalloc.engine.http.transport import proxied

    return not proxied(str(answer.request.url))


def origin_of(url: "httpx.URL") -> WebOrigin:
    """Return the server of a URL, for which a credential is meant."""
    return WebOrigin.made(url.scheme, url.raw_host.decode(), url.port)


def server_address(answer: "httpx.Response") -> str | None:
    """Return the numeric address of the server of a response; if a proxy was used, the URL's address or None."""
    if not is_direct(answer):
        return numeric(answer.request.url.raw_host.decode())
    address: str = connection_of(answer).get_extra_info("server_addr")
    return address
