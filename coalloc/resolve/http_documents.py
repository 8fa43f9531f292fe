"""Documents fetched by http(s): detection of Metalinks, and their bytes. Engines fetch the actual files."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import MappingProxyType
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from coalloc.engine.base import EngineOptions
from coalloc.engine.first_answers import FirstAnswers
from coalloc.engine.http.answers import WANTED_DIGESTS
from coalloc.engine.http.exchange import HTTPExchange
from coalloc.errors import SourceError, Stalled, Unreachable, Unsupported, UsageError
from coalloc.util.concurrency import first_success, succeeded
from coalloc.util.dialer import Dialer, DirectDialer, fastest_is_known, ordered

__all__ = ["DirectAnswer", "FetchedDocument", "answer_of", "declares_metalink", "get"]

Result = TypeVar("Result")

METALINKS = ("application/metalink4+xml", "application/metalink+xml")
"""Content types of Metalinks."""
SECONDS = 10.0
"""Time limit in seconds for the answer, and for each read."""
MOST_SAID = 64 * 1024
"""Maximum bytes that are read of an error's text."""
PATIENCE = 1.0
"""Seconds for an answer over the fastest route, before other routes are tried, too."""


class FetchedDocument(NamedTuple):
    """A document and its origin.

    :param address: numeric address of the server; after redirects, the most public one of all servers; None if unknown
    :param secure: whether the document, and all redirects to it, came over https
    """

    content: bytes
    address: str | None
    secure: bool


class DirectAnswer(NamedTuple):
    """A server's answer, without what a redirect leads to.

    :param headers: names in lower case; values of repeated headers are joined by commas
    :param body: the beginning of its text
    :param address: numeric address of the server; None if unknown
    :param error: the error that the status means; None below 400
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    address: str | None
    error: SourceError | None


async def declares_metalink(url: str, dialers: Sequence[Dialer] = (), first: FirstAnswers | None = None) -> bool:
    """Return whether the server declares a URL a Metalink; False on errors, which an engine will report.

    :param dialers: dialers over all routes to the server, of which the fastest is used if it is known, else all; none
        for direct connections to any address
    :param first: keeps the answer for the engine, if the URL is not a Metalink
    :raises Unreachable: if the server does not answer, as an engine would only wait for it again
    """
    host = urlsplit(url).hostname or ""
    best, *others = ordered(dialers or (DirectDialer(),), host)
    tasks = [asyncio.create_task(_declares_metalink(url, best, first))]
    try:
        if fastest_is_known((best, *others), host):
            await asyncio.wait(tasks, timeout=PATIENCE)
        if not succeeded(tasks[0]):
            tasks += [asyncio.create_task(_declares_metalink(url, dialer, first)) for dialer in others]
        await first_success(tasks)
        return await next((task for task in tasks if succeeded(task)), tasks[0])
    except Stalled as error:
        raise Unreachable(error.message, error.remedy) from None
    except SourceError:
        return False
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _declares_metalink(url: str, dialer: Dialer, first: FirstAnswers | None) -> bool:
    began = time.monotonic()
    async with (
        _exchange(url, dialer) as server,
        _timely(server),
        server.answer("HEAD", WANTED_DIGESTS) as answer,
    ):
        kind: str = answer.headers.get("content-type", "")
        declared = answer.is_success and kind.partition(";")[0].strip().lower() in METALINKS
        if first and not declared and (begun := server.detach(answer)):
            first.keep(url, dialer, begun, time.monotonic() - began)
        return declared


async def get(url: str, limit: int, dialers: Sequence[Dialer] = (), kind: str = "a Metalink") -> FetchedDocument:
    """Return the document at `url`.

    :param dialers: dialers over all routes to the server, which are tried in turn; none for direct connections to any
        address
    :param kind: the expected document, for messages
    :raises UsageError: if the document is longer than `limit` bytes
    :raises SourceError: if the document cannot be fetched
    """
    return await _over_some_route(url, dialers, lambda dialer: _get(url, limit, dialer, kind))


async def answer_of(
    method: str, url: str, dialers: Sequence[Dialer], headers: Mapping[str, str] = MappingProxyType({})
) -> DirectAnswer:
    """Return a server's own answer to a request, which may be a redirect.

    :raises SourceError: if the server does not answer
    """
    return await _over_some_route(url, dialers, lambda dialer: _answer_of(method, url, dialer, headers))


async def _over_some_route(url: str, dialers: Sequence[Dialer], ask: Callable[[Dialer], Awaitable[Result]]) -> Result:
    *others, last = ordered(dialers or (DirectDialer(),), urlsplit(url).hostname or "")
    try:
        for dialer in others:
            with suppress(Unreachable, Stalled):
                return await ask(dialer)
        return await ask(last)
    except Stalled as error:
        raise Unreachable(error.message, error.remedy) from None


async def _answer_of(method: str, url: str, dialer: Dialer, headers: Mapping[str, str]) -> DirectAnswer:
    async with (
        _exchange(url, dialer, follows=False) as server,
        _timely(server),
        server.answer(method, headers) as answer,
    ):
        body = bytearray()
        with server.border():
            async for piece in answer.aiter_raw():
                body += piece
                if len(body) > MOST_SAID:
                    break
        error = None if answer.status_code < 400 else server.refusal(answer)
        return DirectAnswer(answer.status_code, dict(answer.headers), bytes(body), server.named_by, error)


async def _get(url: str, limit: int, dialer: Dialer, kind: str) -> FetchedDocument:
    async with _exchange(url, dialer) as server, AsyncExitStack() as stack:
        async with _timely(server):
            answer = await stack.enter_async_context(server.answer("GET", {}))
        if not answer.is_success:
            raise server.refusal(answer)
        if (encoding := answer.headers.get("content-encoding", "identity")) != "identity":
            raise Unsupported(
                f"{server.shown}: the server sends the document encoded as {encoding[:40]}", "save it as a file first"
            )
        document, pieces = bytearray(), answer.aiter_raw()
        while True:
            async with _timely(server):
                with server.border():
                    piece = await anext(pieces, b"")
            if not piece:
                return FetchedDocument(bytes(document), server.named_by, server.secure)
            document += piece
            if len(document) > limit:
                raise UsageError(f"{server.shown} is larger than {limit} bytes, too large for {kind}", "check the URL")


@asynccontextmanager
async def _exchange(url: str, dialer: Dialer, *, follows: bool = True) -> AsyncIterator[HTTPExchange]:
    options = EngineOptions(dialer, connect_seconds=2 * SECONDS)  # `_timely` ends earlier
    server = HTTPExchange(url, options, lambda _: None, follows=follows)
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def _timely(server: HTTPExchange) -> AsyncIterator[None]:
    """Limit the time of the block. :raises Stalled: when it takes longer than `SECONDS`"""
    try:
        async with asyncio.timeout(SECONDS):
            yield
    except TimeoutError:
        raise Stalled(f"{server.shown} did not answer within {SECONDS:g} s", "check host and port in the URL") from None
