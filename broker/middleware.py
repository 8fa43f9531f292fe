"""Middleware for all requests: body limits, metrics, logs, `Cache-Control`, and warnings about untrusted proxies."""

import asyncio
import ipaddress
import time
from collections import Counter
from collections.abc import Collection, MutableMapping
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client import Counter as Counts
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker.errors import TooLarge, TooManyRequests

__all__ = ["BodyLimit", "Observer", "Proxies"]

log = structlog.get_logger("broker.requests")

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""HTTP methods that are counted by name; others count as OTHER, so that clients cannot create new time series."""


FEW = 1 << 20
"""Largest body in bytes with one or a few objects."""
HELD, HELD_OF_ONE = 48 << 20, 24 << 20
"""Most bytes of all bodies in memory, in total and per user."""
SLOWEST = 120
"""Longest time for a body to arrive, in seconds."""
MOST_TOKENS = 1000
"""Most tokens with metrics of their own."""
MOST_ADDRESSES = 100
"""Most addresses that are logged as untrusted proxies."""


class BodyLimit:
    """Refuses bodies that are too long, or too many at once, before they fill the memory.

    It raises the broker's errors, whereas the framework's own limit answers in plain text.

    :param largest: limit in bytes for paths in `many`; other paths have a limit of at most `FEW`
    :param many: paths that take many objects in one request
    :param unlimited: paths whose bodies are streams, which are never in memory as a whole
    """

    def __init__(self, app: ASGIApp, largest: int, many: Collection[str], unlimited: Collection[str]) -> None:
        self._app = app
        self._largest = largest
        self._many = many
        self._unlimited = unlimited
        self._held: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._unlimited:
            await self._app(scope, receive, send)
            return
        largest = self._largest if scope["path"] in self._many else min(self._largest, FEW)
        taken, began, subject, ended = 0, time.monotonic(), "", False
        length = Headers(scope=scope).get("Content-Length", "")

        async def limited() -> Message:
            nonlocal taken, subject, ended
            if length.isdecimal() and int(length) > largest:
                raise _too_long(largest)
            late = began + SLOWEST - time.monotonic()
            try:
                message = await (receive() if ended else asyncio.wait_for(receive(), max(0.0, late)))
            except TimeoutError:
                raise TooLarge(f"the body was incomplete after {SLOWEST} s", "send it in parts") from None
            size = len(message.get("body", b""))
            subject = subject or _subject(scope)
            taken += size
            self._held[subject] += size
            if taken > largest:
                raise _too_long(largest)
            if self._held[subject] > HELD_OF_ONE or self._held.total() > HELD:
                raise TooManyRequests("there are too many large requests at once", "send one after the other", 5)
            ended = not message.get("more_body")
            return message

        try:
            await self._app(scope, limited, send)
        finally:
            self._held[subject] -= taken
            if not self._held[subject]:
                del self._held[subject]


def _too_long(largest: int) -> TooLarge:
    return TooLarge(f"the request is longer than {largest} bytes", "send it in parts")


def _subject(scope: Scope) -> str:
    """Return the authenticated subject; the route authenticates before it reads the body."""
    bearer = scope.get("state", {}).get("bearer")
    return bearer.caller.subject if bearer else ""


class Proxies:
    """Middleware that logs, once each, the addresses that send proxy headers but are not trusted proxies.

    Each may be a proxy missing in the configuration, or a client with forged headers; the headers are ignored. This
    middleware must wrap the one that applies the headers of trusted proxies, since that changes the client's address.
    """

    def __init__(self, app: ASGIApp, trusted: Collection[str]) -> None:
        self._app = app
        self._trusted = [ipaddress.ip_network(each) for each in trusted]
        self._reported: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (header := next(filter(_forwarded, scope["headers"]), None)):
            address = (scope.get("client") or ("",))[0]
            if address not in self._reported and len(self._reported) < MOST_ADDRESSES and not self._trusts(address):
                self._reported.add(address)
                log.warning(
                    "forwarded headers of an untrusted proxy are ignored",
                    address=address,
                    header=header[0].decode("latin-1"),
                    remedy=f'if it is your proxy, write [proxy] and trusted = ["{address}"] into the file of --config',
                )
        await self._app(scope, receive, send)

    def _trusts(self, address: str) -> bool:
        try:
            known = ipaddress.ip_address(address)
        except ValueError:  # a UNIX socket has no address
            return False
        return any(known in network for network in self._trusted)


def _forwarded(header: tuple[bytes, bytes]) -> bool:
    """Return whether only proxies send this header (RFC 7239, and its predecessors)."""
    return header[0].startswith(b"x-forwarded-") or header[0] == b"forwarded"


class Observer:
    """A middleware that counts and logs requests with route and duration, without headers and bodies.

    Logs and counts name the token by its number, with which an admin can revoke it; counts do so for the first
    `MOST_TOKENS` tokens. Responses without their own caching rules get `Cache-Control: no-store`.
    """

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self._app = app
        labels = ("method", "route", "status")
        self._count = Counts("coget_broker_requests", "Requests", labels, registry=registry)
        self._seconds = Histogram(
            "coget_broker_request_seconds", "Time to the last byte", labels[:2], registry=registry
        )

        self._tokens = Counts("coget_broker_token_requests", "Requests by token number", ("token",), registry=registry)
        self._known: set[int] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def watched(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            seconds, route = time.perf_counter() - began, _route(scope)
            method = scope["method"] if scope["method"] in METHODS else "OTHER"
            self._count.labels(method, route, str(status)).inc()
            self._seconds.labels(method, route).observe(seconds)
            token = _token(scope)
            self._tokens.labels(self._named(token)).inc()
            log.info("request", method=method, route=route, token=token, status=status, seconds=round(seconds, 6))

    def _named(self, token: int | None) -> str:
        """Return the token's number as text; `other` above `MOST_TOKENS` tokens, `none` for no token of this broker."""
        if token is None:
            return "none"
        if token not in self._known and len(self._known) >= MOST_TOKENS:
            return "other"
        self._known.add(token)
        return str(token)


def _route(scope: Scope) -> str:
    """Return the route's path as declared, since actual paths would make too many labels."""
    context = scope.get("fastapi", {}).get("effective_route_context")
    return str(getattr(context or scope.get("route"), "path", "unknown"))


def _token(scope: Scope) -> int | None:
    """Return the number of the request's token, or None if it is no valid token of this broker."""
    return getattr(scope.get("state", {}).get("bearer"), "number", None)
