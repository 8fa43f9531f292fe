"""Requests about one URL, one at a time, by httpx: redirects are followed, and what goes wrong becomes our errors."""

import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coalloc.engine.base import EngineOptions
from coalloc.engine.http.answers import PARTIAL, refusal
from coalloc.errors import ConnectionLost, NotThatProtocol, PermissionRefused, SourceError, Unsupported
from coalloc.urls import redact

if TYPE_CHECKING:
    import httpx

    from coalloc.engine.http.transport import Reached

__all__ = ["Exchange"]


@dataclass(frozen=True)
class _Place:
    """Where a redirect led, and what logs in there: nothing at another server."""

    url: str
    login: Mapping[str, str]


class Exchange:
    """What is asked about a URL, and answered.

    :param reached: is told of each connection, and how far the server is
    """

    def __init__(self, url: str, options: EngineOptions, reached: "Reached") -> None:
        self._url = url
        self._options = options
        self._reached = reached
        self.shown = redact(url)
        """The URL without its password."""
        self._client: httpx.AsyncClient | None = None
        self._led_to: _Place | None = None

    def refusal(self, answer: "httpx.Response") -> SourceError:
        """The error that an answer stands for."""
        return refusal(answer.status_code, answer.reason_phrase, answer.headers, self.shown)

    @asynccontextmanager
    async def answer(self, method: str, headers: Mapping[str, str]) -> "AsyncIterator[httpx.Response]":
        """The beginning of the answer to a request; its body may be read within `border`."""
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
        answer = await self._send_to(self._url, method, headers)
        if method == "GET" and answer.history:
            login = {name: value for name, value in answer.request.headers.items() if name == "authorization"}
            self._led_to = _Place(str(answer.url), login)
        return answer

    async def _send_to(self, url: str, method: str, headers: Mapping[str, str]) -> "httpx.Response":
        client = self._connected()
        with self.border():
            return await client.send(client.build_request(method, url, headers=headers), stream=True)

    def _connected(self) -> "httpx.AsyncClient":
        if self._client is None:
            from coalloc.engine.http.transport import client

            self._client = client(self._url, self._options.dialer, self._options.connect_seconds, self._reached)
        return self._client

    @contextmanager
    def border(self) -> Iterator[None]:
        """Where foreign errors become ours."""
        import httpcore
        import httpx

        try:
            yield
        except ssl.SSLCertVerificationError as error:
            raise PermissionRefused(
                f"{self.shown}: the server's certificate is not trusted: {error.verify_message}",
                "name the file of the authority that signed it in SSL_CERT_FILE; if it has expired, tell its owner",
            ) from None
        except (ssl.SSLError, httpcore.LocalProtocolError) as error:
            raise NotThatProtocol(f"{self.shown}: no HTTP there: {error}", "check scheme and port of the URL") from None
        except httpcore.RemoteProtocolError as error:
            raise self._protocol_error(str(error)) from None
        except (httpcore.NetworkError, OSError) as error:
            raise self._lost(error) from None
        except httpcore.ProxyError as error:
            raise PermissionRefused(f"{self.shown}: the proxy says {error}", "check HTTP_PROXY and NO_PROXY") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unsupported(
                f"{self.shown}: it leads nowhere: {error}", "check the URL, or use another replica"
            ) from None

    def _protocol_error(self, said: str) -> SourceError:
        if "disconnected" in said or "closed connection" in said:
            return self._lost(said)
        return NotThatProtocol(f"{self.shown}: no HTTP there: {said}", "check scheme and port of the URL")

    def _lost(self, said: object) -> ConnectionLost:
        """The connection, be it ended or reset: a server that speaks something else may do either."""
        return ConnectionLost(
            f"{self.shown}: the connection was lost: {said}",
            "try again; if that happens always, check scheme and port of the URL",
        )

    async def close(self) -> None:
        """Let go of every connection; may be called twice."""
        client, self._client = self._client, None
        if client:
            await client.aclose()
