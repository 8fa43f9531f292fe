"""What happens to every request around its handler: its length is limited, and it is counted and logged."""

import time
from collections.abc import Collection, MutableMapping
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker.errors import TooLarge

__all__ = ["BodyLimit", "Observer"]

log = structlog.get_logger("broker.requests")

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""Any other word may be sent as one, and would be a series of its own for good."""


class BodyLimit:
    """Refuses bodies that are longer than any request needs, before they fill the memory.

    The framework's own limit answers in plain text; this one raises what all errors are made of.

    :param unlimited: paths whose bodies are streams, and never held
    """

    def __init__(self, app: ASGIApp, largest: int, unlimited: Collection[str]) -> None:
        self._app = app
        self._largest = largest
        self._unlimited = unlimited

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        taken = 0

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._largest:
                raise TooLarge(f"the request is longer than {self._largest} bytes", "send it in parts")
            return message

        free = scope["type"] != "http" or scope["path"] in self._unlimited
        await self._app(scope, receive if free else limited, send)


class Observer:
    """Counts requests and their times by route, and logs each; no header and no body gets into the log."""

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self._app = app
        labels = ("method", "route", "status")
        self._count = Counter("coget_broker_requests", "Requests", labels, registry=registry)
        self._seconds = Histogram(
            "coget_broker_request_seconds", "Time to the last byte", labels[:2], registry=registry
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def watched(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            seconds, route = time.perf_counter() - began, _route(scope)
            method = scope["method"] if scope["method"] in METHODS else "OTHER"
            self._count.labels(method, route, str(status)).inc()
            self._seconds.labels(method, route).observe(seconds)
            log.info("request", method=method, route=route, status=status, seconds=round(seconds, 6))


def _route(scope: Scope) -> str:
    """As it was declared: addresses as they come would make a label each."""
    return getattr(scope.get("route"), "path", "unknown")
