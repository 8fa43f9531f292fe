"""Live updates of open pages, as server-sent events with the page's changed parts."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from fastapi import Request, Response
from fastapi.sse import EventSourceResponse, format_sse_event

from broker.dependencies.context import Home, Services
from broker.dependencies.sessions import Form, browsing, cookie
from broker.handlers.reports.forms import acts
from broker.handlers.routers import RETRY, UNHINDERED, page_router
from broker.pages import parts
from broker.reports.archive import Archive, Scope
from broker.reports.document import Report
from broker.reports.registry import REPORTS, ReportKind

__all__ = ["router"]

router = page_router("/reports")
EVERY = 3.0
"""Seconds between updates."""
QUIET = 5
"""Number of updates without changes after which a comment keeps the connection alive."""

Live = Callable[[Archive, Scope], Awaitable[Report]]


def _stream(kind: ReportKind, live: Live) -> Callable[..., Any]:
    async def stream(request: Request, caller: Any, form: Form, services: Services, home: Home) -> Response:
        secret = request.cookies.get(cookie("session", home), "")
        buttons = acts(caller, form, f"/reports/{kind.name}")

        async def now() -> Mapping[str, str] | None:
            if await services.sessions.current(secret) is None:
                return None
            report = await live(services.archive, Scope.of(caller))
            return parts(report.facts, report.tables, buttons)

        beats = services.watching.beats(caller, EVERY)
        return EventSourceResponse(_events(beats, now), headers=UNHINDERED)

    stream.__annotations__ |= {"caller": browsing(kind.admin)}
    return stream


async def _events(
    beats: AsyncGenerator[None, None], now: Callable[[], Awaitable[Mapping[str, str] | None]]
) -> AsyncIterator[bytes]:
    """Yield the changed parts at each beat, until the session ends.

    :param now: function that returns the HTML of all parts, or None once the session has ended
    """
    sent: Mapping[str, str] = {}
    quiet = 0
    async with aclosing(beats):
        async for _ in beats:
            if (found := await now()) is None:
                return
            news = {name: text for name, text in found.items() if sent.get(name) != text}
            sent, quiet = found, 0 if news else quiet + 1
            if news:
                yield format_sse_event(data_str=json.dumps(news), event="parts", retry=RETRY)
            elif quiet % QUIET == 0:
                yield format_sse_event(comment="still there")


for each in REPORTS.values():
    if each.live:
        router.add_api_route(f"/{each.name}/events", _stream(each, each.live))
