"""One replica at one HTTP server: its size and version, then ranges of it, one request each.

The connection is kept between ranges when a range was read to its end. A server that ignores ranges is seen by its
answer, whatever it announces.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from coalloc.engine.base import Deliver, EngineOptions, Source, Span
from coalloc.engine.http.answers import BUSY, WANTED_DIGESTS, condition, content_range, digests, refusal, validator
from coalloc.errors import (
    ConnectionLost,
    NotThatProtocol,
    PermissionRefused,
    ReplicaChanged,
    SourceError,
    Stalled,
    Unsupported,
    UsageError,
)
from coalloc.model import Stat
from coalloc.urls import redact

if TYPE_CHECKING:
    import httpx

__all__ = ["HTTPSource"]

PARTIAL = 206
NOTHING_THERE = 416


@dataclass(frozen=True)
class _Place:
    """Where a redirect led, and what logs in there: nothing at another server."""

    url: str
    login: Mapping[str, str]


class HTTPSource(Source):
    """A file at an HTTP server.

    :raises UsageError: when the URL names no host
    """

    def __init__(self, url: str, options: EngineOptions) -> None:
        super().__init__(url, options)
        self._shown = redact(url)
        if not urlsplit(url).hostname:
            raise UsageError(f"{self._shown} names no host", "write http://HOST/PATH")
        self._client: httpx.AsyncClient | None = None
        self._agreed: Stat | None = None
        self._led_to: _Place | None = None

    async def open(self) -> Stat:
        await self.close()
        # Twice: once for the connection, which reports its own delay, once for the answer.
        seconds = 2 * self.options.connect_seconds
        try:
            async with asyncio.timeout(seconds):
                self._agreed = await self._ask()
        except TimeoutError:
            raise Stalled(f"{self._shown} did not answer within {seconds:g} s", "try again later") from None
        return self._agreed

    async def _ask(self) -> Stat:
        """HEAD says all that is needed where it is allowed and the server announces ranges; else a part tells."""
        async with self._answer("HEAD", WANTED_DIGESTS) as head:
            await self._finish(head)
            if head.status_code in BUSY:
                raise self._refusal(head)
            size = _decimal(head.headers.get("content-length"))
            if head.status_code == 200 and size is not None and head.headers.get("accept-ranges") == "bytes":
                return self._stat(size, head, ranged=True)
        async with self._answer("GET", {**WANTED_DIGESTS, "Range": "bytes=0-0"}) as part:
            if part.headers.get("content-length") == "1":
                await self._finish(part)
            return self._understand(part)

    async def _finish(self, answer: "httpx.Response") -> None:
        """Read an answer to its end, so that the connection is kept."""
        with self._border():
            await answer.aread()

    def _understand(self, part: "httpx.Response") -> Stat:
        """The answer to a request for the first byte."""
        where = content_range(part.headers)
        if part.status_code == PARTIAL and where and where[:2] == (0, 1):
            size = where[2]
        elif part.status_code == NOTHING_THERE and part.headers.get("content-range") == "bytes */0":
            size = 0
        elif part.status_code == 200:
            size = _decimal(part.headers.get("content-length"))
        else:
            raise self._refusal(part)
        if size is None:
            raise Unsupported(f"{self._shown}: the server does not tell the size", "use another replica")
        return self._stat(size, part, ranged=part.status_code != 200 or size == 0)

    def _stat(self, size: int, answer: "httpx.Response", ranged: bool) -> Stat:
        headers = answer.headers
        self._refuse_encoding(headers)
        rtt = answer.extensions["network_stream"].get_extra_info("rtt")
        return Stat(size, validator(headers), digests(headers), ranged, rtt)

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        asked = span.end
        if span.start >= asked:
            return
        async with self._part(span.start, asked) as answer:
            chunks = answer.aiter_raw()
            at = span.start
            while at < span.end:
                with self._border():
                    chunk = await anext(chunks, b"")
                if not chunk:
                    raise ConnectionLost(
                        f"{self._shown}: the data ended at byte {at} of {span.start}-{asked}", "try again"
                    )
                view = memoryview(chunk)[: max(0, span.end - at)]
                if view:
                    deliver(at, view)
                at += len(view)
                await asyncio.sleep(0)  # reading does not pause while data are there: let others and cancellation in
            if at == asked and "content-length" in answer.headers:
                with self._border():
                    await anext(chunks, b"")  # sees the end that has arrived already, so that the connection is kept

    @asynccontextmanager
    async def _part(self, start: int, end: int) -> "AsyncIterator[httpx.Response]":
        """The answer to a request for [start, end), checked to be those bytes of the file that `open` saw."""
        stat = self._agreed
        if stat and not stat.ranged:
            if start:
                raise Unsupported(f"{self._shown}: the server cannot send a part of a file", "use another replica")
            headers = {}
        else:
            headers = {"Range": f"bytes={start}-{end - 1}", **condition(stat.validator if stat else None)}
        async with self._answer("GET", headers) as answer:
            self._check_version(answer)
            if headers and answer.status_code == 200:
                raise Unsupported(f"{self._shown}: the server ignored a request for a part", "use another replica")
            if answer.status_code != (PARTIAL if headers else 200):
                raise self._refusal(answer)
            if headers:
                self._check_place(answer, start, end)
            yield answer

    def _check_version(self, answer: "httpx.Response") -> None:
        self._refuse_encoding(answer.headers)
        if self._agreed is None or answer.status_code not in (200, PARTIAL):
            return
        seen = validator(answer.headers)
        if seen and self._agreed.validator and seen != self._agreed.validator:
            raise ReplicaChanged(f"{self._shown} changed while it was fetched", "start again")

    def _check_place(self, answer: "httpx.Response", start: int, end: int) -> None:
        where = content_range(answer.headers)
        if where is None or where[:2] != (start, end):
            said = answer.headers.get("content-range", "no Content-Range")
            raise Unsupported(
                f"{self._shown}: asked for bytes {start}-{end - 1}, the server sent {said}", "use another replica"
            )
        if self._agreed and where[2] not in (None, self._agreed.size):
            raise ReplicaChanged(f"{self._shown} has {where[2]} bytes now, not {self._agreed.size}", "start again")

    def _refuse_encoding(self, headers: Mapping[str, str]) -> None:
        encoding = headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise Unsupported(f"{self._shown}: the server sends it encoded as {encoding}", "use another replica")

    def _refusal(self, answer: "httpx.Response") -> SourceError:
        return refusal(answer.status_code, answer.reason_phrase, answer.headers, self._shown)

    @asynccontextmanager
    async def _answer(self, method: str, headers: Mapping[str, str]) -> "AsyncIterator[httpx.Response]":
        answer = await self._send(method, headers)
        try:
            yield answer
        finally:
            await answer.aclose()

    async def _send(self, method: str, headers: Mapping[str, str]) -> "httpx.Response":
        """The answer to a request. Where a GET was led by a redirect the next one goes at once, while that works."""
        led_to, self._led_to = self._led_to, None
        if method == "GET" and led_to:
            with suppress(SourceError):
                answer = await self._send_to(led_to.url, method, {**headers, **led_to.login})
                if answer.status_code in (200, PARTIAL):
                    self._led_to = led_to
                    return answer
                await answer.aclose()
        answer = await self._send_to(self.url, method, headers)
        if method == "GET" and answer.history:
            login = {name: value for name, value in answer.request.headers.items() if name == "authorization"}
            self._led_to = _Place(str(answer.url), login)
        return answer

    async def _send_to(self, url: str, method: str, headers: Mapping[str, str]) -> "httpx.Response":
        client = self._connected()
        with self._border():
            return await client.send(client.build_request(method, url, headers=headers), stream=True)

    def _connected(self) -> "httpx.AsyncClient":
        if self._client is None:
            from coalloc.engine.http.transport import client

            self._client = client(self.url, self.options.dialer, self.options.connect_seconds)
        return self._client

    @contextmanager
    def _border(self) -> Iterator[None]:
        """Where foreign errors become ours."""
        import httpcore
        import httpx

        try:
            yield
        except ssl.SSLCertVerificationError as error:
            raise PermissionRefused(
                f"{self._shown}: the server's certificate is not trusted: {error.verify_message}",
                "name the file of the authority that signed it in SSL_CERT_FILE; if it has expired, tell its owner",
            ) from None
        except (ssl.SSLError, httpcore.LocalProtocolError) as error:
            raise NotThatProtocol(
                f"{self._shown}: no HTTP there: {error}", "check scheme and port of the URL"
            ) from None
        except httpcore.RemoteProtocolError as error:
            raise self._protocol_error(str(error)) from None
        except (httpcore.NetworkError, OSError) as error:
            raise self._lost(error) from None
        except httpcore.ProxyError as error:
            raise PermissionRefused(f"{self._shown}: the proxy says {error}", "check HTTP_PROXY and NO_PROXY") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unsupported(
                f"{self._shown}: it leads nowhere: {error}", "check the URL, or use another replica"
            ) from None

    def _protocol_error(self, said: str) -> SourceError:
        if "disconnected" in said or "closed connection" in said:
            return self._lost(said)
        return NotThatProtocol(f"{self._shown}: no HTTP there: {said}", "check scheme and port of the URL")

    def _lost(self, said: object) -> ConnectionLost:
        """The connection, be it ended or reset: a server that speaks something else may do either."""
        return ConnectionLost(
            f"{self._shown}: the connection was lost: {said}",
            "try again; if that happens always, check scheme and port of the URL",
        )

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        """What `open` was told, as HTTP has no question about it; of the whole file only."""
        if self._agreed is None or (start, end) != (0, self._agreed.size):
            return None
        return next((said.value for said in self._agreed.checksums if said.algorithm == algorithm), None)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client:
            await client.aclose()


def _decimal(said: str | None) -> int | None:
    return int(said) if said and said.isdecimal() else None
