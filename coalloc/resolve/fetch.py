"""Documents by http(s): whether a URL is a Metalink, and its bytes. Files that a user wants are for the engines."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coalloc.errors import (
    ConnectionLost,
    NoSuchFile,
    PermissionRefused,
    ServerSays,
    Unreachable,
    Unsupported,
    UsageError,
)
from coalloc.urls import redact

if TYPE_CHECKING:
    import httpx

__all__ = ["get", "says_metalink"]

METALINKS = ("application/metalink4+xml", "application/metalink+xml")
"""What servers call a Metalink."""
SECONDS = 10.0
"""For connecting, and between bytes."""


async def says_metalink(url: str) -> bool:
    """Whether the server calls this a Metalink. When it cannot be asked, it does not: an engine will say why.

    :raises Unreachable: if it does not answer, for an engine would only wait for it once more
    """
    import httpx

    try:
        async with _client() as client:
            answer = await client.head(url)
    except httpx.TimeoutException:
        raise _silent(redact(url)) from None
    except (httpx.HTTPError, httpx.InvalidURL):
        return False
    kind: str = answer.headers.get("content-type", "")
    return answer.is_success and kind.partition(";")[0].strip().lower() in METALINKS


async def get(url: str, limit: int) -> bytes:
    """The document at `url`.

    :raises UsageError: if it is longer than `limit` bytes
    :raises SourceError: if it cannot be had
    """
    shown = redact(url)
    async with _answer(url, shown) as answer:
        document = bytearray()
        async for chunk in answer.aiter_raw():
            document += chunk
            if len(document) > limit:
                raise UsageError(f"{shown} is larger than {limit} bytes, too large for a Metalink", "check the URL")
    return bytes(document)


@asynccontextmanager
async def _answer(url: str, shown: str) -> "AsyncIterator[httpx.Response]":
    import httpx

    try:
        async with _client() as client, client.stream("GET", url) as answer:
            _refuse_failure(answer, shown)
            yield answer
    except httpx.TimeoutException:
        raise _silent(shown) from None
    except httpx.ConnectError as error:
        raise Unreachable(f"{shown} cannot be reached: {error}", "check host and port in the URL") from None
    except httpx.InvalidURL as error:
        raise UsageError(f"{shown} is no URL: {error}", "write it as http://HOST/PATH") from None
    except httpx.HTTPError as error:
        raise ConnectionLost(f"{shown} could not be read: {error}", "try again") from None


def _silent(shown: str) -> Unreachable:
    return Unreachable(f"{shown} gave no answer within {SECONDS:g} s", "check host and port in the URL")


def _refuse_failure(answer: "httpx.Response", shown: str) -> None:
    status = f"{shown}: the server says {answer.status_code} {answer.reason_phrase}"
    if answer.status_code in (401, 403):
        raise PermissionRefused(status, "ask for access, or give USER:PASSWORD@ in the URL")
    if answer.status_code in (404, 410):
        raise NoSuchFile(status, "check the path in the URL")
    if not answer.is_success:
        raise ServerSays(status, "try again later, or ask the server's operators")
    if (encoding := answer.headers.get("content-encoding", "identity")) != "identity":
        raise Unsupported(f"{shown}: the server sends it encoded as {encoding[:40]}", "save it as a file first")


def _client() -> "httpx.AsyncClient":
    import httpx

    # A document that is sent packed could fill the memory before it is counted.
    headers = {"Accept-Encoding": "identity", "User-Agent": "coget"}
    return httpx.AsyncClient(follow_redirects=True, timeout=SECONDS, headers=headers)
