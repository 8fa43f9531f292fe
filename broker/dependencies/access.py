"""Who asks, and whether they may. Every route declares one of these; a test walks the routes to see that it does."""

import time
from typing import Annotated

from fastapi import Depends, Request

from broker.dependencies.context import Services
from broker.errors import Forbidden, TooManyRequests, Unauthenticated
from broker.models.access import Caller, Role

__all__ = ["Admin", "Curator", "Open", "Policy", "Reader", "Transferrer"]

ANONYMOUS = Caller(subject="anonymous", role="reader")
BURST = 2.0
"""Seconds whose requests may come at once."""
MOST_CALLERS = 10_000


class Policy:
    """Whoever has this role may; None: everybody, known or not."""

    def __init__(self, role: Role | None) -> None:
        self.role = role

    async def __call__(self, request: Request, services: Services) -> Caller:
        """Who asks.

        :raises Unauthenticated: :raises Forbidden: :raises TooManyRequests:
        """
        if self.role is None:
            return ANONYMOUS
        caller = await _caller(request, services)
        _turn(request, caller, services.settings.requests_per_second)
        if not caller.may(self.role):
            raise Forbidden(
                f"{caller.subject} is a {caller.role}, and this needs a {self.role}", "ask an admin for such a token"
            )
        return caller


async def _caller(request: Request, services: Services) -> Caller:
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
