"""Requests of WebDAV: the properties of a file, and the entries of a directory."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, MutableSequence, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress

from coalloc.engine.base import EngineOptions
from coalloc.engine.http.dav_urls import web_url
from coalloc.engine.http.exchange import HTTPExchange
from coalloc.engine.http.multistatus import QUESTION, Multistatus, Properties
from coalloc.engine.http.plain import PlainAnswer
from coalloc.engine.http.responses import Answer
from coalloc.engine.lister import Lister
from coalloc.errors import IsDirectory, NotDirectory, SourceError, Stalled, Unsupported
from coalloc.model.listings import Entry, Omission
from coalloc.util.listing_limits import LIST_SECONDS

__all__ = ["WebDAVLister", "listed", "stated_properties"]

MULTISTATUS = 207
LONGEST = 256 * 1024
"""Maximum bytes of an answer about one file."""
SECONDS = 5.0
"""Time limit in seconds for the properties of a file, which a transfer does not need."""
QUIET_SECONDS = 60.0
"""Maximum seconds in which a listing makes no progress."""


async def stated_properties(server: HTTPExchange) -> Properties | None:
    """Return the properties of the file at the URL of an exchange; None if the server does not state them.

    Other requests show why, and whether there is such a file.

    :raises IsDirectory: if it is a directory, of which a GET would fetch a page
    """
    properties = None
    with suppress(SourceError, TimeoutError):
        async with asyncio.timeout(SECONDS), _asked(server, 0) as (answer, parser):
            length = 0
            with server.border():
                async for piece in answer.aiter_raw():
                    length += len(piece)
                    if length > LONGEST:
                        return None
                    parser.feed(piece)
            parser.close()
            properties = parser.itself
    if properties and properties.entry.kind == "dir":
        raise IsDirectory(f"{server.shown} is a directory", "give the URL of a file")
    return properties


async def listed(
    url: str, options: EngineOptions, omitted: MutableSequence[Omission]
) -> AsyncGenerator[Sequence[Properties], None]:
    """Yield the entries of a directory in groups as they arrive, over a connection of its own.

    Names may have control characters, or bytes that are not UTF-8, but no slash; no two are equal.

    :param url: dav(s) or http(s) URL of the directory
    :param omitted: receives the number of entries left out
    :raises NotDirectory: if it is a file
    :raises SourceError: if it cannot be listed
    """
    server = HTTPExchange(_as_directory(web_url(url)), options, lambda _: None)
    try:
        async with AsyncExitStack() as stack:
            async with server.timely(QUIET_SECONDS):
                answer, parser = await stack.enter_async_context(_asked(server, 1))
            async for entries in _entries(server, answer, parser):
                yield entries
        omitted.extend(parser.close())
    finally:
        await server.close()


class WebDAVLister(Lister):
    """The directories at WebDAV servers, one request for each. The URL of an entry follows its directory's URL."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options

    async def list(self, url: str) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the entries of the directory at a URL in groups as they arrive.

        Entries that were left out come last, as one with an absolute name, so that they are not missing in silence.

        :raises SourceError: if it cannot be listed
        """
        omitted: list[Omission] = []
        async with aclosing(listed(url, self._options, omitted)) as groups:
            async for group in groups:
                yield [found.entry for found in group]
        if omitted:
            yield [Entry(f"/{each.example.lstrip('/')}", "file") for each in omitted]

    async def close(self) -> None:
        """Do nothing: no connection is open between two listings."""


def _as_directory(url: str) -> str:
    """Return a URL whose path ends with a slash, which saves a redirect."""
    path, mark, query = url.partition("?")
    return f"{path.rstrip('/')}/{mark}{query}"


async def _entries(server: HTTPExchange, answer: Answer, parser: Multistatus) -> AsyncIterator[Sequence[Properties]]:
    clock = asyncio.get_running_loop().time
    end, pieces = clock() + LIST_SECONDS, answer.aiter_raw()
    while True:
        async with server.timely(QUIET_SECONDS):
            with server.border():
                piece = await anext(pieces, b"")
        if not piece:
            break
        if clock() > end:
            raise Stalled(f"{server.shown}: the listing takes more than {LIST_SECONDS:g} s", "try again later")
        if entries := parser.feed(piece):
            yield entries
    if parser.itself and parser.itself.entry.kind != "dir":
        raise NotDirectory(f"{server.shown} is not a directory", "leave out the slash at its end")


@asynccontextmanager
async def _asked(server: HTTPExchange, depth: int) -> AsyncIterator[tuple[Answer, Multistatus]]:
    """Ask for properties; yield the answer, and the parser for its body.

    :raises SourceError: if the server does not answer, or not as WebDAV does
    """
    headers = {"Depth": str(depth), "Content-Type": "application/xml; charset=utf-8"}
    async with server.answer("PROPFIND", headers, content=QUESTION) as answer:
        if answer.status_code != MULTISTATUS:
            unlisted = Unsupported(f"{server.shown}: the server does not speak WebDAV", "use another server")
            raise unlisted if answer.is_success else server.refusal(answer)
        assert not isinstance(answer, PlainAnswer), "requests with a body go over httpx"
        yield answer, Multistatus(str(answer.request.url), server.shown)
