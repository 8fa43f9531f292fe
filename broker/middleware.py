"""What happens to every request around its handler: its length is limited, it is counted, logged, and kept nowhere.

Who speaks as a proxy and is none of ours is told of.
"""

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
"""Any other word may be sent as one, and would be a series of its own for good."""


FEW = 1 << 20
"""Bytes of a body that says one thing, or some."""
HELD, HELD_OF_ONE = 48 << 20, 24 << 20
"""Bytes of bodies that are under way: of all, and of one user."""
SLOWEST = 120
"""Seconds that a body may take to come."""
MOST_TOKENS = 1000
"""That are counted each for itself."""
MOST_ADDRESSES = 100
"""Of which is told, each once, that they speak as a proxy."""


class BodyLimit:
    """Refuses bodies that are longer than any request needs, before they fill the memory; or too many at once.

    The framework's own limit answers in plain text; this one raises what all errors are made of.

    :param largest: bytes of a body, of those paths that take many things at once
    :param many: these paths
    :param unlimited: paths whose bodies are streams, and never held
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
        said = Headers(scope=scope).get("Content-Length", "")

        async def limited() -> Message:
            nonlocal taken, subject, ended
            if said.isdecimal() and int(said) > largest:
                raise _too_long(largest)
            late = began + SLOWEST - time.monotonic()
            try:
                message = await (receive() if ended else asyncio.wait_for(receive(), max(0.0, late)))
            except TimeoutError:
                raise TooLarge(f"the body was not there after {SLOWEST} s", "send it in parts") from None
            size = len(message.get("body", b""))
            subject = subject or _subject(scope)
            taken += size
            self._held[subject] += size
            if taken > largest:
                raise _too_long(largest)
            if self._held[subject] > HELD_OF_ONE or self._held.total() > HELD:
                raise TooManyRequests("too many large requests are under way", "send one after the other", 5)
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
    """Who sends it, as the route has found before it reads."""
    bearer = scope.get("state", {}).get("bearer")
    return bearer.caller.subject if bearer else ""


class Proxies:
    """Tells in the log of each address that speaks as a proxy and is none that was named, once.

    Whether it is a proxy that an admin forgot, or somebody who makes it up: what it says counts for nothing. It goes
    around what believes the others, which changes the address.
    """

    def __init__(self, app: ASGIApp, trusted: Collection[str]) -> None:
        self._app = app
        self._trusted = [ipaddress.ip_network(each) for each in trusted]
        self._told: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (header := next(filter(_forwarded, scope["headers"]), None)):
            address = (scope.get("client") or ("",))[0]
            if address not in self._told and len(self._told) < MOST_ADDRESSES and not self._trusts(address):
                self._told.add(address)
                log.warning(
                    "a proxy that is not trusted, or somebody who says to be one: its headers are ignored",
                    address=address,
                    header=header[0].decode("latin-1"),
                    remedy=f'if it is your proxy, write [proxy] and trusted = ["{address}"] into the file of --config',
                )
        await self._app(scope, receive, send)

    def _trusts(self, address: str) -> bool:
        try:
            known = ipaddress.ip_address(address)
        except ValueError:  # a socket of UNIX has none
            return False
        return any(known in network for network in self._trusted)


def _forwarded(header: tuple[bytes, bytes]) -> bool:
    """Whether proxies alone have something to say by it (RFC 7239, and what was there before)."""
    return header[0].startswith(b"x-forwarded-") or header[0] == b"forwarded"


class Observer:
    """Counts requests and their times by route, and logs each; no header and no body gets into the log.

    Logs have the number of the token, by which an admin finds and ends it; so do counts, of the first tokens that come.
    What does not say itself how long it may be kept is kept nowhere.
    """

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self._app = app
        labels = ("method", "route", "status")
        self._count = Counts("coget_broker_requests", "Requests", labels, registry=registry)
        self._seconds = Histogram(
            "coget_broker_request_seconds", "Time to the last byte", labels[:2], registry=registry
        )

        self._tokens = Counts("coget_broker_token_requests", "Requests by token", ("token",), registry=registry)
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
        """The token's number; `other` once there are too many series, `none` without one of ours."""
        if token is None:
            return "none"
        if token not in self._known and len(self._known) >= MOST_TOKENS:
            return "other"
        self._known.add(token)
        return str(token)


def _route(scope: Scope) -> str:
    """The whole of it as it was declared: addresses as they come would make a label each."""
    context = scope.get("fastapi", {}).get("effective_route_context")
    return str(getattr(context or scope.get("route"), "path", "unknown"))


def _token(scope: Scope) -> int | None:
    """The number of the token that was sent, if it is one of ours and good."""
    return getattr(scope.get("state", {}).get("bearer"), "number", None)
