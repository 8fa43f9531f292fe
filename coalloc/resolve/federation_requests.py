"""Requests to a federation's own servers, whose answers are short: bounded in time and size."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from coalloc.engine.base import EngineOptions
from coalloc.engine.http.exchange import HTTPExchange
from coalloc.errors import SourceError, Unreachable
from coalloc.util.dialer import Dialer, ordered

__all__ = ["FederationAnswer", "answer_of"]

SECONDS = 10.0
"""Time limit in seconds for an answer."""
MOST = 64 * 1024
"""Maximum bytes that are read of a body."""


class FederationAnswer(NamedTuple):
    """A server's answer.

    :param headers: names in lower case; values of repeated headers are joined by commas
    :param body: the beginning of its text
    :param address: numeric address of the server; after redirects, the most public one of all servers; None if unknown
    :param secure: whether the answer, and all redirects to it, came over https
    :param error: the error that the status means; None below 400
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    address: str | None
    secure: bool
    error: SourceError | None


async def answer_of(
    method: str, url: str, dialers: Sequence[Dialer], headers: Mapping[str, str], *, follows: bool
) -> FederationAnswer:
    """Return the answer to a request.

    :param dialers: dialers over all routes to the server, which are tried in turn
    :param follows: whether redirects are followed; else they are answers as any other
    :raises SourceError: if the server does not answer
    """
    *others, last = ordered(dialers, urlsplit(url).hostname or "")
    for dialer in others:
        with suppress(Unreachable):
            return await _answer_of(method, url, dialer, headers, follows)
    return await _answer_of(method, url, last, headers, follows)


async def _answer_of(
    method: str, url: str, dialer: Dialer, headers: Mapping[str, str], follows: bool
) -> FederationAnswer:
    options = EngineOptions(dialer, connect_seconds=2 * SECONDS)  # the limit below ends earlier
    server = HTTPExchange(url, options, lambda _: None, follows=follows)
    try:
        async with asyncio.timeout(SECONDS), server.answer(method, headers) as answer:
            body = bytearray()
            with server.border():
                async for piece in answer.aiter_raw():
                    body += piece
                    if len(body) >= MOST:
                        break
            error = None if answer.status_code < 400 else server.refusal(answer)
            known = bytes(body[:MOST]), server.named_by, server.secure
            return FederationAnswer(answer.status_code, dict(answer.headers), *known, error)
    except TimeoutError:
        what = f"{server.shown} did not answer within {SECONDS:g} s"
        raise Unreachable(what, "check host and port in the URL") from None
    finally:
        await server.close()
