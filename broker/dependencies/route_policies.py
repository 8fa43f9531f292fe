"""Access policies of routes: the required role and token scope.

The application does not start unless every route declares exactly one policy (`checked`).
"""

import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Annotated, Any, cast

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.routing import BaseRoute

from broker.dependencies.bodies import Exactly, is_large
from broker.dependencies.context import services
from broker.dependencies.tags import matched, tagged
from broker.errors import Forbidden, Insufficient, TooManyRequests, Unauthenticated
from broker.factory import Factory
from broker.models.callers import Caller, Role
from broker.models.oauth import ALL, KNOWN, TIMER, TRANSFER, VIEW_CONSENTS, VIEW_IDENTITIES, VIEW_IDENTITY_SET, Bearer

__all__ = [
    "Admin",
    "Consenting",
    "Curator",
    "Guarded",
    "Identified",
    "Issuer",
    "Named",
    "Open",
    "Reader",
    "RoutePolicy",
    "Sent",
    "Still",
    "TimerReader",
    "TimerUser",
    "Transferrer",
    "checked",
]

ANONYMOUS = Caller(subject="anonymous", role="reader")
LARGE = "large requests"
BURST = 2.0
"""Size of a caller's token bucket, in seconds of the permitted rate."""
MOST_CALLERS = 10_000


class RoutePolicy:
    """The callers that a route admits: those with the required role and one of the accepted scopes.

    :param role: lowest admitted role; None admits everybody, with or without a token
    :param scopes: accepted scopes, all of one resource server
    :param issued: whether to accept only tokens that an admin issued, and none from a login or a client
    """

    def __init__(self, role: Role | None, scopes: Sequence[str] = (ALL,), issued: bool = False) -> None:
        self.role = role
        self.scopes = scopes
        self.issued = issued
        (self.server,) = {KNOWN[each] for each in scopes}

    async def __call__(self, request: Request) -> Caller:
        """Return the authenticated caller of a request."""
        return _sent(request).caller

    async def judge(self, request: Request) -> Bearer:
        """Authenticate and authorize a request; return the token with its caller.

        :raises Unauthenticated: :raises Forbidden: :raises TooManyRequests:
        """
        if self.role is None:
            return Bearer(ANONYMOUS)
        request.state.bearer = bearer = await self.bearer(request)  # logged even if the request is refused
        _turn(request, bearer.caller, services(request).settings.requests_per_second)
        self._admit(self.role, bearer)
        return bearer

    def _admit(self, role: Role, bearer: Bearer) -> None:
        """Check that a token suffices for the route. :raises Forbidden:"""
        caller = bearer.caller
        if bearer.scopes.isdisjoint(self.scopes):
            raise Insufficient("the token lacks a required scope", f"ask for the scope {self.scopes[0]}")
        if not caller.may(role):
            raise Forbidden(
                f"{caller.subject} has the role {caller.role}, but this needs {role}",
                "ask an admin for a token with that role",
            )
        if self.issued and not bearer.issued:
            raise Forbidden(
                "this needs a token that an admin issued; tokens of logins and of OAuth clients are not accepted",
                "send a token from `coget-broker token create`",
            )

    async def received(self, request: Request) -> None:
        """Read the whole body of a request, then authorize the request again.

        A client may take minutes to send a body, and its token may be revoked meanwhile.

        :raises Unauthenticated: :raises Forbidden:
        """
        await request.body()
        if self.role is not None:
            request.state.bearer = bearer = await self.bearer(request)
            self._admit(self.role, bearer)

    async def still(self, request: Request) -> bool:
        """Return whether the caller may still use the route; long responses ask this while they run.

        A caller above the rate limit may.
        """
        try:
            await self.judge(request)
        except (Unauthenticated, Forbidden):
            return False
        except TooManyRequests:
            return True
        return True

    async def bearer(self, request: Request) -> Bearer:
        """Return the token of a request, with its caller. :raises Unauthenticated:"""
        return await _bearer(request, services(request), self.server)


class Guarded(APIRoute):
    """A route that applies its policy before the framework reads and parses the request body, and again after it.

    Large requests wait for a turn, and are parsed and handled during it. If `elsewhere` is true, only parsing takes
    place during the turn.
    """

    elsewhere = False

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        policy = _policy(self)
        field, streams = self.body_field, self.body_field is None
        if self._embed_body_fields:
            field = None

        async def guarded(request: Request) -> Response:
            request.state.policy = policy
            try:
                request.state.bearer = await policy.judge(request)
            except Unauthenticated as error:
                if "Authorization" in request.headers:
                    address = request.client.host if request.client else ""
                    request.app.state.wrong_tokens.failed(address, error.credential)
                raise
            exact = Exactly(request.scope, request.receive)
            if request.method == "PUT" and (if_match := request.headers.getlist("If-Match")):
                broker = services(request)
                await policy.received(exact)  # before the locks, which a slow upload would hold
                # no other conditional request may change the resource between the check and the change
                async with request.app.state.changing, broker.database.alone("changes"):
                    broker.places.look_again()
                    await matched(request, if_match)
                    return await handle(exact)
            if streams or not is_large(request):
                if not streams:
                    await policy.received(exact)
                answer = await handle(exact)
                return tagged(answer) if request.method == "GET" else answer
            caller, large = request.state.bearer.caller, services(request).large
            if not (admitted := caller.may("admin")):
                large.admit(caller.subject, LARGE)
            await policy.received(exact)  # before the turn, which a slow upload would block
            async with large.turn(caller.subject, LARGE, admitted):
                await exact.prepare(field)
                if not self.elsewhere:
                    return await handle(exact)
            return await handle(exact)

        return guarded


def _policy(route: APIRoute) -> RoutePolicy:
    """Return the policy of a route. :raises RuntimeError: when it has none, or several"""
    found = [each.call for each in route.dependant.dependencies if isinstance(each.call, RoutePolicy)]
    if len(found) != 1:
        raise RuntimeError(f"{route.path} declares {len(found)} policies: every route declares one")
    return found[0]


def checked(routes: Sequence[BaseRoute], free: Sequence[str]) -> None:
    """Check that every route applies a policy before it reads a body.

    :param free: paths that need no policy, because everybody may read them
    :raises RuntimeError: naming a route without a policy
    """
    for context in iter_route_contexts(routes):
        route = context.original_route
        if isinstance(route, Guarded):
            _policy(route)
        elif context.path not in free:
            raise RuntimeError(f"{context.path} is no guarded route: give its router route_class=Guarded")


async def _bearer(request: Request, services: Factory, server: str) -> Bearer:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if not token:
        if services.settings.anonymous and server == TRANSFER:
            return Bearer(ANONYMOUS)
        raise Unauthenticated("no token was sent", "send the header Authorization: Bearer TOKEN")
    if kind.lower() != "bearer":
        raise Unauthenticated(
            f"{kind[:20]} is not a supported authentication scheme", "send the header Authorization: Bearer TOKEN"
        )
    return await services.tokens.bearer(token.strip(), server)


def _turn(request: Request, caller: Caller, rate: float) -> None:
    """Take one request from the caller's token bucket. :raises TooManyRequests: when the bucket is empty"""
    buckets: dict[str, tuple[float, float]] = request.app.state.buckets
    now = time.monotonic()
    left, since = buckets.get(caller.subject, (rate * BURST, now))
    left = min(rate * BURST, left + rate * (now - since))
    if left < 1:
        raise TooManyRequests(
            f"{caller.subject} sends more than {rate:g} requests per second", "ask for many names in one request"
        )
    if len(buckets) >= MOST_CALLERS:
        buckets.clear()
    buckets[caller.subject] = (left - 1, now)


def _sent(request: Request) -> Bearer:
    """Return the token that the policy has accepted, with its caller."""
    return cast(Bearer, request.state.bearer)


def _still(request: Request) -> Callable[[], Awaitable[bool]]:
    policy = cast(RoutePolicy, request.state.policy)
    return lambda: policy.still(request)


Open = Annotated[Caller, Depends(RoutePolicy(None))]
Reader = Annotated[Caller, Depends(RoutePolicy("reader"))]
Transferrer = Annotated[Caller, Depends(RoutePolicy("transfer"))]
Curator = Annotated[Caller, Depends(RoutePolicy("curator"))]
Admin = Annotated[Caller, Depends(RoutePolicy("admin"))]
Issuer = Annotated[Caller, Depends(RoutePolicy("admin", issued=True))]
"""An admin who may issue tokens."""
Named = Annotated[Caller, Depends(RoutePolicy("reader", ("openid",)))]
Identified = Annotated[Caller, Depends(RoutePolicy("reader", (VIEW_IDENTITIES, VIEW_IDENTITY_SET, "openid")))]
Consenting = Annotated[Caller, Depends(RoutePolicy("reader", (VIEW_CONSENTS, VIEW_IDENTITY_SET, "openid")))]
TimerReader = Annotated[Caller, Depends(RoutePolicy("reader", (TIMER,)))]
TimerUser = Annotated[Caller, Depends(RoutePolicy("transfer", (TIMER,)))]
Still = Annotated[Callable[[], Awaitable[bool]], Depends(_still)]
"""A function that returns whether the caller may still use the route; streams call it at each heartbeat."""
Sent = Annotated[Bearer, Depends(_sent)]
