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
from broker.models.oauth import AUTH, TRANSFER, Bearer

__all__ = ["Admin", "Curator", "Guarded", "Identified", "Open", "Policy", "Reader", "Sent", "Transferrer"]

ANONYMOUS = Caller(subject="anonymous", role="reader")
BURST = 2.0
"""Seconds whose requests may come at once."""
MOST_CALLERS = 10_000


class Policy:
    """Whoever has this role may; None: everybody, known or not.

    :param server: for which resource server their token has to be
    """

    def __init__(self, role: Role | None, server: str = TRANSFER) -> None:
        self.role = role
        self.server = server

    async def __call__(self, request: Request) -> Caller:
        """Who asks, as the route has found."""
        return _sent(request).caller

    async def judge(self, request: Request) -> Bearer:
        """Who asks, with which token.

        :raises Unauthenticated: :raises Forbidden: :raises TooManyRequests:
        """
        if self.role is None:
            return Bearer(ANONYMOUS)
        bearer = await self.bearer(request)
        caller = bearer.caller
        _turn(request, caller, services(request).settings.requests_per_second)
        if not caller.may(self.role):
            raise Forbidden(
                f"{caller.subject} is a {caller.role}, and this needs a {self.role}", "ask an admin for such a token"
            )
        return bearer

    async def bearer(self, request: Request) -> Bearer:
        """Who asks. :raises Unauthenticated:"""
        return await _bearer(request, services(request), self.server)


class Guarded(APIRoute):
    """A route that asks its policy first: the framework would read and parse a body before any dependency."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        (policy,) = [each.call for each in self.dependant.dependencies if isinstance(each.call, Policy)]

        async def guarded(request: Request) -> Response:
            request.state.bearer = await policy.judge(request)
            return await handle(request)

        return guarded


async def _bearer(request: Request, services: Factory, server: str) -> Bearer:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if not token:
        if services.settings.anonymous and server == TRANSFER:
            return Bearer(ANONYMOUS)
        raise Unauthenticated("no token was sent", "send the header Authorization: Bearer TOKEN")
    if kind.lower() != "bearer":
        raise Unauthenticated(f"{kind[:20]} is no way to log in here", "send the header Authorization: Bearer TOKEN")
    return await services.access.bearer(token.strip(), server)


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


def _sent(request: Request) -> Bearer:
    """The token, after a policy has looked at it."""
    return cast(Bearer, request.state.bearer)


Open = Annotated[Caller, Depends(Policy(None))]
Reader = Annotated[Caller, Depends(Policy("reader"))]
Transferrer = Annotated[Caller, Depends(Policy("transfer"))]
Curator = Annotated[Caller, Depends(Policy("curator"))]
Admin = Annotated[Caller, Depends(Policy("admin"))]
Identified = Annotated[Caller, Depends(Policy("reader", AUTH))]
"""Whose token lets one be told who somebody is."""
Sent = Annotated[Bearer, Depends(_sent)]
