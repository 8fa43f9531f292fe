"""Documents fetched by http(s): detection of Metalinks, links to them, and their bytes. Engines fetch the files."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit

from coalloc.credentials import Credentials
from coalloc.engine.base import EngineOptions
from coalloc.engine.first_answers import FirstAnswers
from coalloc.engine.http.digests import WANTED_DIGESTS, StatedDigests, stated_digests
from coalloc.engine.http.exchange import HTTPExchange, Signer
from coalloc.engine.http.links import WebLink, links
from coalloc.engine.http.plain import PlainAnswer
from coalloc.engine.http.responses import Answer
from coalloc.errors import SourceError, Stalled, Unreachable, Unsupported, UsageError
from coalloc.model.checksums import Checksum
from coalloc.model.replicas import NamedBy
from coalloc.safe_text import redact
from coalloc.util.concurrency import first_success, succeeded
from coalloc.util.counts import count
from coalloc.util.dialer import Dialer, DirectDialer, fastest_is_known, ordered

__all__ = ["METALINKS", "FetchedDocument", "HeadAnswer", "get", "head", "send"]

METALINKS = ("application/metalink4+xml", "application/metalink+xml")
"""Content types of Metalinks."""
SECONDS = 10.0
"""Time limit in seconds for the answer, and for each read."""
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
    headers: Mapping[str, str] = MappingProxyType({})


class HeadAnswer(NamedTuple):
    """The answer of a server about a URL.

    :param is_metalink: whether the server declares the URL a Metalink
    :param links: the links of the answer and of all redirects to it, each with the answer that has it
    :param targets: the URLs of the redirects and of the answer
    :param checksums: the checksums of the file that the answer states
    :param address: as for `FetchedDocument`
    """

    is_metalink: bool = False
    links: tuple[tuple[WebLink, NamedBy], ...] = ()
    targets: tuple[str, ...] = ()
    checksums: tuple[Checksum, ...] = ()
    address: str | None = None
    size: int | None = None


async def head(
    url: str,
    dialers: Sequence[Dialer] = (),
    first: FirstAnswers | None = None,
    credentials: Credentials | None = None,
) -> HeadAnswer:
    """Return the answer about a URL; an empty one on errors, which an engine will report.

    :param dialers: dialers over all routes to the server, of which the fastest is used if it is known, else all; none
        for direct connections to any address
    :param first: keeps the answer for the engine, if the URL is not a Metalink
    :param credentials: those that servers may get; None for those in the URL only
    :raises Unreachable: if the server does not answer, as an engine would only wait for it again
    """
    host = urlsplit(url).hostname or ""
    best, *others = ordered(dialers or (DirectDialer(),), host)
    tasks = [asyncio.create_task(_head(url, best, first, credentials))]
    try:
        if fastest_is_known((best, *others), host):
            await asyncio.wait(tasks, timeout=PATIENCE)
        if not succeeded(tasks[0]):
            tasks += [asyncio.create_task(_head(url, dialer, first, credentials)) for dialer in others]
        await first_success(tasks)
        return await next((task for task in tasks if succeeded(task)), tasks[0])
    except Stalled as error:
        raise Unreachable(error.message, error.remedy) from None
    except SourceError:
        return HeadAnswer()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _head(url: str, dialer: Dialer, first: FirstAnswers | None, credentials: Credentials | None) -> HeadAnswer:
    began = time.monotonic()
    async with _exchange(url, dialer, credentials) as server:
        try:
            async with server.timely(SECONDS), server.answer("HEAD", WANTED_DIGESTS) as answer:
                kind: str = answer.headers.get("content-type", "")
                declared = answer.is_success and kind.partition(";")[0].strip().lower() in METALINKS
                if first and not declared and (begun := server.detach(answer)):
                    first.keep(url, dialer, begun, time.monotonic() - began)
                return _understood(url, server, answer)._replace(is_metalink=declared)
        except SourceError:
            if not server.redirects:
                raise
            return _understood(url, server, None)


def _understood(url: str, server: HTTPExchange, answer: Answer | None) -> HeadAnswer:
    """Return the links of an answer and of the redirects to it; `answer` is None if it did not come."""
    said: list[tuple[str, Mapping[str, str], bool]] = [(str(each.url), each.headers, True) for each in server.redirects]
    stated, size = StatedDigests(), None
    if answer and answer.is_success:
        last = url if isinstance(answer, PlainAnswer) else str(answer.url)
        said.append((last, answer.headers, False))
        stated = stated_digests(answer.headers, whole=True, bodiless=True)
        size = None if "content-encoding" in answer.headers else count(answer.headers.get("content-length", ""))
    secure = url.startswith("https:") and all(place.startswith("https:") for place, _, _ in said)
    found = [
        (link, NamedBy(redact(place), redirecting, secure))
        for place, headers, redirecting in said
        for link in links(headers, place)
    ]
    return HeadAnswer(False, tuple(found), tuple(place for place, _, _ in said), stated.usable, server.named_by, size)


async def get(
    url: str,
    limit: int,
    dialers: Sequence[Dialer] = (),
    credentials: Credentials | None = None,
    headers: Mapping[str, str] | None = None,
    signer: Signer | None = None,
    what: str = "a Metalink",
) -> FetchedDocument:
    """Return the document at `url`.

    :param dialers: dialers over all routes to the server, which are tried in turn; none for direct connections to any
        address
    :param credentials: those that servers may get; None for those in the URL only
    :param headers: further headers, with which no redirect is followed
    :param signer: author of secret headers, with which no redirect is followed, and no other credential is sent
    :param what: kind of the document, for messages
    :raises UsageError: if the document is longer than `limit` bytes
    :raises SourceError: if the document cannot be fetched
    """
    *others, last = ordered(dialers or (DirectDialer(),), urlsplit(url).hostname or "")
    try:
        for dialer in others:
            with suppress(Unreachable, Stalled):
                return await _get(url, limit, dialer, credentials, headers, signer, what)
        return await _get(url, limit, last, credentials, headers, signer, what)
    except Stalled as error:
        raise Unreachable(error.message, error.remedy) from None


async def _get(
    url: str,
    limit: int,
    dialer: Dialer,
    credentials: Credentials | None,
    headers: Mapping[str, str] | None,
    signer: Signer | None,
    what: str,
) -> FetchedDocument:
    asked = _exchange(url, dialer, credentials, follows=headers is None, signer=signer)
    async with asked as server, AsyncExitStack() as stack:
        async with server.timely(SECONDS):
            answer = await stack.enter_async_context(server.answer("GET", headers or {}))
        if not answer.is_success:
            raise server.refusal(answer)
        if (encoding := answer.headers.get("content-encoding", "identity")) != "identity":
            raise Unsupported(
                f"{server.shown}: the server sends the document encoded as {encoding[:40]}", "save it as a file first"
            )
        document, pieces = bytearray(), answer.aiter_raw()
        while True:
            async with server.timely(SECONDS):
                with server.border():
                    piece = await anext(pieces, b"")
            if not piece:
                return FetchedDocument(bytes(document), server.named_by, server.secure, answer.headers)
            document += piece
            if len(document) > limit:
                raise UsageError(f"{server.shown} is larger than {limit} bytes, too large for {what}", "check the URL")


async def send(url: str, content: bytes, dialers: Sequence[Dialer] = ()) -> None:
    """Send a JSON document to `url`, without credentials, and without following a redirect.

    :raises SourceError: if it cannot be sent, or the server refuses it
    """
    best, *_ = ordered(dialers or (DirectDialer(),), urlsplit(url).hostname or "")
    async with (
        _exchange(url, best, Credentials(own=False), follows=False) as server,
        server.timely(SECONDS),
        server.answer("POST", {"Content-Type": "application/json"}, content=content) as answer,
    ):
        if not answer.is_success:
            raise server.refusal(answer)


@asynccontextmanager
async def _exchange(
    url: str,
    dialer: Dialer,
    credentials: Credentials | None,
    follows: bool = True,
    signer: Signer | None = None,
) -> AsyncIterator[HTTPExchange]:
    options = EngineOptions(dialer, connect_seconds=2 * SECONDS, credentials=credentials)  # `timely` ends earlier
    server = HTTPExchange(url, options, lambda _: None, follows=follows, signer=signer)
    try:
        yield server
    finally:
        await server.close()
