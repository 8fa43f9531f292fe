"""Who asks, and whether they may. Every route declares one of these; a test walks the routes to see that it does."""

import time
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, cast

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute

from broker.dependencies.context import services
from broker.errors import Forbidden, TooManyRequests, Unauthenticated
from broker.factory import Factory
from broker.models.access import Caller, Role

__all__ = ["Admin", "Curator", "Guarded", "Open", "Policy", "Reader", "Transferrer"]

ANONYMOUS = Caller(subject="anonymous", role="reader")
BURST = 2.0
"""Seconds whose requests may come at once."""
MOST_CALLERS = 10_000


class Policy:
    """Whoever has this role may; None: everybody, known or not."""

    def __init__(self, role: Role | None) -> None:
        self.role = role

    async def __call__(self, request: Request) -> Caller:
        """Who asks, as the route has found."""
        return cast(Caller, request.state.caller)

    async def judge(self, request: Request) -> Caller:
        """Who asks.

        :raises Unauthenticated: :raises Forbidden: :raises TooManyRequests:
        """
        if self.role is None:
            return ANONYMOUS
        known = services(request)
        caller = await _caller(request, known)
        _turn(request, caller, known.settings.requests_per_second)
        if not caller.may(self.role):
            raise Forbidden(
                f"{caller.subject} is a {caller.role}, and this needs a {self.role}", "ask an admin for such a token"
            )
        return caller


class Guarded(APIRoute):
    """A route that asks its policy first: the framework would read and parse a body before any dependency."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        (policy,) = [each.call for each in self.dependant.dependencies if isinstance(each.call, Policy)]

        async def guarded(request: Request) -> Response:
            request.state.caller = await policy.judge(request)
            return await handle(request)

        return guarded


async def _caller(request: Request, services: Factory) -> Caller:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if not token:
        if services.settings.anonymous:
            return ANONYMOUS
        raise Unauthenticated("no token was sent", "send the header Authorization: Bearer TOKEN")
    if kind.lower() != "bearer":
        raise Unauthenticated(f"{kind[:20]} is no way to log in here", "send the header Authorization: Bearer TOKEN")
    return await services.access.caller(token.strip())


def _turn(request: Request, caller: Caller, rate: float) -> None:
    """Each caller has a bucket of requests that fills again."""
    buckets: dict[str, tuple[float, float]] = request.app.state.buckets
    now = time.monotonic()
    left, since = buckets.get(caller.subject, (rate * BURST, now))
    left = min(rate * BURST, left + rate * (now - since))
    if left < 1:
        raise TooManyRequests(
            f"{caller.subject} asks more than {rate:g} times a second", "ask for many names in one request"
        )
    if len(buckets) >= MOST_CALLERS:
        buckets.clear()
    buckets[caller.subject] = (left - 1, now)


Open = Annotated[Caller, Depends(Policy(None))]
Reader = Annotated[Caller, Depends(Policy("reader"))]
Transferrer = Annotated[Caller, Depends(Policy("transfer"))]
Curator = Annotated[Caller, Depends(Policy("curator"))]
Admin = Annotated[Caller, Depends(Policy("admin"))]
