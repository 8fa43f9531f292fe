"""Directories at a web server that makes a page of each: `index_page` parses it."""

import asyncio
import codecs
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from urllib.parse import unquote, urlsplit

from coalloc.engine.base import EngineOptions
from coalloc.engine.http.exchange import HTTPExchange
from coalloc.engine.http.index_page import IndexPage
from coalloc.engine.http.plain import PlainAnswer
from coalloc.engine.http.responses import Answer
from coalloc.engine.lister import Lister
from coalloc.errors import LimitExceeded, NotDirectory, Stalled, Unsupported
from coalloc.model.listings import Entry
from coalloc.safe_text import redact
from coalloc.util.listing_limits import LIST_SECONDS, MOST_LISTED

__all__ = ["HTTPLister"]

SECONDS = 60.0
"""Maximum seconds in which no byte of a page arrives, as when a server reads a large directory."""
TAIL = 200
"""Characters at the end of a page in which its last tag is."""


class HTTPLister(Lister):
    """The directories at web servers, one request for each."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options

    async def list(self, url: str) -> AsyncGenerator[Sequence[Entry], None]:
        server = HTTPExchange(url, self._options, lambda _: None)
        try:
            async with server.timely(SECONDS):
                answering = server.answer("GET", {"Accept": "text/html"})
                answer = await answering.__aenter__()
            try:
                address = _address(server, answer, url)
                page, begun, last, empty = IndexPage(address), False, "", True
                async for text in _texts(server, answer):
                    page.feed_text(text)
                    begun, last = begun or "<html" in text.lower(), (last + text)[-TAIL:]
                    if entries := page.take():
                        empty = False
                        yield entries
                if begun and "</html" not in last.lower() and not _has_known_end(answer):
                    raise Unsupported("its listing ended too early", "try again")
                entries = page.end()
                if empty and not entries and _leads_elsewhere(url, address):
                    raise Unsupported(
                        f"it leads to {redact(address)}, which names no file",
                        "if it is a login page, give coget credentials for the server",
                    )
                yield entries
            except (LimitExceeded, Unsupported) as error:
                raise type(error)(f"{server.shown}: {error.message}", error.remedy) from None
            finally:
                await answering.__aexit__(None, None, None)
        finally:
            await server.close()

    async def close(self) -> None:
        """Do nothing: no connection is open between two listings."""


def _address(server: HTTPExchange, answer: Answer, url: str) -> str:
    """Return the URL of a page, after a check that it is one.

    :raises SourceError: if the server refuses it, or sends something else
    """
    if not answer.is_success:
        raise server.refusal(answer)
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("text/html", "application/xhtml+xml"):
        raise NotDirectory(f"{server.shown} is not a page that lists a directory", "leave out -r to fetch it as a file")
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise Unsupported(f"{server.shown}: the server sends the listing encoded", "give the files one by one")
    return url if isinstance(answer, PlainAnswer) else str(answer.url)


def _leads_elsewhere(url: str, address: str) -> bool:
    """Return whether a redirect led to a directory of another name, or to a query, as login pages are.

    >>> [_leads_elsewhere("http://a/d/", each) for each in ("https://b:1/c/%64/", "http://a/login/", "http://a/d/?login")]
    [False, True, True]
    """
    wanted, found = (urlsplit(each) for each in (url, address))
    return wanted.query != found.query or _last_part(wanted.path) != _last_part(found.path)


def _last_part(path: str) -> str:
    return unquote(path).rstrip("/").rpartition("/")[2]


def _has_known_end(answer: Answer) -> bool:
    """Return whether an answer that ends too early is noticed by HTTP itself."""
    return "content-length" in answer.headers or "transfer-encoding" in answer.headers


async def _texts(server: HTTPExchange, answer: Answer) -> AsyncIterator[str]:
    """Yield the text of a page as it arrives."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    clock, pieces, length = asyncio.get_running_loop().time, answer.aiter_raw(), 0
    end = clock() + LIST_SECONDS
    while True:
        async with server.timely(SECONDS):
            with server.border():
                piece = await anext(pieces, b"")
        if not piece:
            return
        if clock() > end:
            raise Stalled(f"{server.shown}: the listing takes more than {LIST_SECONDS:g} s", "try again later")
        length += len(piece)
        if length > MOST_LISTED:
            raise LimitExceeded(f"its listing has more than {MOST_LISTED} bytes", "give the files one by one")
        yield decoder.decode(piece)
