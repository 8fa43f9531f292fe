"""The broker's REST application: routes, errors in one form, and background work."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException

from broker.background import WakeUps, deadline_looks_of, followers_of, poster_of, prober_of, worker_of
from broker.dependencies.route_policies import checked
from broker.errors import BrokerError, Insufficient, LoggedOut, OAuthRefused, TooManyRequests, Unauthenticated
from broker.factory import Factory
from broker.handlers import MANY, UNLIMITED, ga4gh, globus, others, own
from broker.memory import keep_giving_back
from broker.middleware import BodyLimit, Observer
from broker.models.base import Fault, Problem
from broker.models.faults import fault_messages
from broker.pages import page
from broker.services.auth.attempts import Attempts

__all__ = ["create_app"]

SHOWN = 5
"""Most faults of one request that are reported."""
WRONG_TOKENS = 30
"""Invalid tokens that one address may send in a minute; valid tokens are always accepted."""
DOCUMENTS = ("/openapi.json",)
"""Public paths that the framework serves."""
CODES = {400: "malformed", 404: "not_found", 405: "method_not_allowed"}
REMEDIES = dict.fromkeys((404, 405), "choose a route listed in /openapi.json")


ROUTES = [*own, *others]
"""Routes, shared by all applications of a process, since FastAPI takes a second to prepare them."""
ALIAS = APIRouter()
"""The broker's own API below `/v0.10`, where the globus CLI can reach it."""
ALIAS.include_router(APIRouter(routes=own), prefix="/v0.10", include_in_schema=False)

WORDS = {
    "unauthenticated": "invalid_token",
    "forbidden": "access_denied",
    "too_many_requests": "temporarily_unavailable",
    "unavailable": "temporarily_unavailable",
    "defect": "server_error",
}
"""Error codes of RFC 6749 and 6750; all other codes of the broker become `invalid_request`."""
TITLES = {401: "UNAUTHORIZED", 403: "FORBIDDEN", 404: "NOT_FOUND", 429: "TOO_MANY_REQUESTS"}
OURS = frozenset({"malformed", "invalid", "too_large", "not_found", "method_not_allowed", "conflict", "refused"})


def create_app(factory: Factory) -> FastAPI:
    """Return the application; it closes the services when it stops."""
    app = FastAPI(
        title="coget broker",
        version=version("coget"),
        description=__doc__.partition(":")[0] if __doc__ else "",
        lifespan=lambda _: _running(factory),
        routes=[*ROUTES, *ALIAS.routes],
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would use the host name in the request, which may be forged
    )
    app.state.changing = asyncio.Lock()
    app.state.wrong_tokens = Attempts(WRONG_TOKENS, 60)
    app.state.factory, app.state.buckets, app.state.registry = factory, {}, CollectorRegistry()
    checked(app.routes, DOCUMENTS)
    app.add_middleware(BodyLimit, largest=factory.settings.largest_body, many=MANY, unlimited=UNLIMITED)
    app.add_middleware(Observer, registry=app.state.registry)
    app.add_exception_handler(BrokerError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _defect)
    return app


@asynccontextmanager
async def _running(factory: Factory) -> AsyncIterator[None]:
    """Run the background work while the application runs, then close the services."""
    beside = [asyncio.create_task(work) for work in _beside(factory)]
    async with AsyncExitStack() as stack:
        if not factory.database.sqlite:  # with PostgreSQL, separate workers carry out tasks
            wake_ups = await stack.enter_async_context(WakeUps(factory.database.url))
            factory.new_work.subscribe(wake_ups.ring)
        try:
            yield
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            factory.trees.close()
            await factory.working.close()
            await factory.drawing.close()
            await factory.database.close()


def _beside(factory: Factory) -> Iterator[Coroutine[Any, Any, None]]:
    yield factory.forecasting.watch()
    yield factory.watching.look()
    yield factory.timer_runs.keep_running()
    yield keep_giving_back()
    yield factory.places.log_opened()
    yield deadline_looks_of(factory).run()
    for follower in followers_of(factory):
        yield follower.run()
    if factory.settings.keep_days is not None:
        yield factory.transfers.keep_forgetting(factory.settings.keep_days)
    if factory.notices:
        yield factory.notices.keep_sending()
    if prober := prober_of(factory):
        yield prober.run()
    if poster := poster_of(factory):
        yield poster.run()
    if factory.database.sqlite:
        yield worker_of(factory).run()


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, BrokerError)
    if isinstance(error, LoggedOut):
        return RedirectResponse(error.where, 303, {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
    headers = {}
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, Insufficient):
        headers["WWW-Authenticate"] = 'Bearer error="insufficient_scope"'
    if isinstance(error, OAuthRefused) and error.status == 401:
        headers["WWW-Authenticate"] = 'Basic realm="coget"'
    if isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(error.retry_after)
    fault = Fault(code=error.code, message=error.message, remedy=error.remedy)
    return _answer(request, error.status, fault, headers, error)


async def _invalid(request: Request, error: Exception) -> Response:
    """Return the fields and faults of an invalid request, without the values that were sent."""
    assert isinstance(error, RequestValidationError)
    faults = fault_messages(error.errors(), error.body)
    more = f" (and {len(faults) - SHOWN} more)" if len(faults) > SHOWN else ""
    malformed = any(fault["type"] == "json_invalid" for fault in error.errors())
    status, code = (400, "malformed") if malformed else (422, "invalid")
    fault = Fault(code=code, message="; ".join(faults[:SHOWN]) + more, remedy="send it as /openapi.json describes")
    return _answer(request, status, fault)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, BrokerError):  # the body exceeded a limit while it was read
        return await _refused(request, error.__cause__)
    code, remedy = CODES.get(error.status_code, "refused"), REMEDIES.get(error.status_code, "")
    fault = Fault(code=code, message=str(error.detail), remedy=remedy)
    return _answer(request, error.status_code, fault, dict(error.headers or {}))


async def _defect(request: Request, error: Exception) -> Response:
    """Return a general error; only the log has the details of the defect."""
    remedy = "tell its admin the time of this error: the log has details"
    return _answer(request, 500, Fault(code="defect", message="internal error of the broker", remedy=remedy))


def _answer(
    request: Request,
    status: int,
    fault: Fault,
    headers: Mapping[str, str] | None = None,
    cause: BrokerError | None = None,
) -> Response:
    """Return an error in the form that belongs to the requested path: the broker's own, or a standard's."""
    path: str = request.scope["path"]
    for beginning, shape in SHAPES.items():
        if path.startswith(beginning):
            return shape(status, fault, headers or {})
    if shaped := globus.error(path, status, fault, cause):
        status, document = shaped
        return JSONResponse(document.model_dump(), status, headers)
    standard = path.startswith(ga4gh.router.prefix)
    content = ga4gh.Error(msg=fault.message, status_code=status) if standard else Problem(error=fault)
    return JSONResponse(content.model_dump(), status, headers)


def _oauth_error(status: int, fault: Fault, headers: Mapping[str, str]) -> Response:
    """Return an error in the form of RFC 6749, 5.2.

    globus-sdk reads its message from `errors`, and the globus CLI what to do about an invalid grant.
    """
    word = WORDS.get(fault.code, "invalid_request" if fault.code in OURS else fault.code)
    each = {"status": str(status), "code": word.upper(), "title": word}
    if word != "invalid_grant":
        each["detail"] = fault.message
    shape = {"error": word, "error_description": fault.message, "errors": [each]}
    return JSONResponse(shape, 400 if status == 422 else status, {**headers, "Cache-Control": "no-store"})


def _auth_error(status: int, fault: Fault, headers: Mapping[str, str]) -> Response:
    """Return an error in the form of Globus Auth, which globus-sdk reads."""
    code = TITLES.get(status, fault.code.upper())
    each = {"status": str(status), "id": str(uuid4()), "code": code, "title": fault.code, "detail": fault.message}
    shape = {"errors": [each], "error": fault.code, "error_description": fault.message}
    return JSONResponse(shape, status, dict(headers))


def _error_page(status: int, fault: Fault, headers: Mapping[str, str]) -> Response:
    """Return an error as a page."""
    answer = page("fault", status, message=fault.message, remedy=fault.remedy)
    answer.headers.update(headers)
    return answer


SHAPES = {
    "/v2/oauth2/authorize": _error_page,
    "/v2/web/": _error_page,
    "/reports": _error_page,
    "/v2/oauth2/userinfo": _auth_error,
    "/v2/oauth2/": _oauth_error,
    "/v2/api/": _auth_error,
}
"""Error forms by path prefix; the first match counts."""
