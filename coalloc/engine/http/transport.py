"""httpx over coget's dialer, so that connections are made like those of every other engine.

Connections are plain sockets, or TLS over them by asyncio. They have no time-outs of their own; the caller limits the
time. They raise the errors of httpcore, ssl and the dialer, and OSError; `request_errors` converts all of them.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from http.cookiejar import CookieJar
from typing import Any, NamedTuple, cast
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from coalloc.credentials.certificates import ClientCertificate
from coalloc.engine.http.messages import NotHTTP, refuse_other_protocol
from coalloc.engine.http.plain import CHUNK, PlainAnswer, PlainConnection, Reached
from coalloc.engine.http.tls import WebTrust, check_server, web_trust
from coalloc.errors import PermissionRefused, Unsupported
from coalloc.util.addresses import ANYWHERE
from coalloc.util.dialer import Dialer, refuse_numeric, round_trip

__all__ = ["ClientSecrets", "adopted", "client", "proxied"]

BEGINNING, HEADERS = 64 * 1024, 128 * 1024
"""Bytes read at once at the beginning of a response, and length of this beginning; httpcore accepts 100 KiB of headers.
"""

for _noisy in ("httpx", "httpcore"):
    logging.getLogger(_noisy).setLevel(logging.WARNING)  # they log URLs with their queries, and Set-Cookie

Spare = Callable[[], socket.socket | None]


class ClientSecrets(NamedTuple):
    """The cookies of a server, and the client certificate that it gets if it asks for one."""

    jar: CookieJar
    certificate: ClientCertificate | None = None


def client(
    url: str,
    dialer: Dialer,
    seconds: float,
    reached: Reached,
    spare: Spare = lambda: None,
    secrets: ClientSecrets | None = None,
    *,
    direct: bool = False,
) -> httpx.AsyncClient:
    """Return a client for the server of a URL, over the environment's proxy, if any. It follows no redirects.

    The `network_stream` of a response can be handed over, as `channel` requires, when no request is under way. If there
    is a proxy, it looks up the host: then only numeric hosts are checked against the policy.

    :param seconds: time limit for each connection, TLS included
    :param spare: function that returns the socket of an existing connection to this server, None if there is none
    :param secrets: None for no certificate, and cookies of this client alone
    :param direct: whether the proxy is not used
    :raises PermissionRefused: when the policy does not allow the host, or the certificate cannot be used
    :raises Unsupported: when the proxy cannot be used
    """
    target = httpx.URL(url)
    proxy = None if direct else _proxy(target)
    if proxy:
        refuse_numeric(target.raw_host.decode(), target.port or 0, dialer.policy)
        dialer = dialer.under(ANYWHERE)  # the user named the proxy
    own = secrets or ClientSecrets(CookieJar())
    trust = web_trust(own.certificate)
    pool = httpcore.AsyncConnectionPool(
        ssl_context=trust.context,
        proxy=proxy,
        network_backend=_Backend(dialer, seconds, reached, spare, trust),
    )
    headers = {"Accept-Encoding": "identity", "User-Agent": "coget"}
    return httpx.AsyncClient(transport=_Transport(pool), timeout=None, headers=headers, cookies=own.jar)


def proxied(url: str) -> bool:
    """Return whether requests for a URL go through a proxy."""
    return _proxy(httpx.URL(url)) is not None


def _proxy(url: httpx.URL) -> httpcore.Proxy | None:
    proxies = getproxies()
    variable = url.scheme if proxies.get(url.scheme) else "all"
    named = proxies.get(variable)
    if not named or proxy_bypass(url.host):
        return None
    try:
        given = httpx.Proxy(named if "://" in named else f"http://{named}")
        proxy = httpcore.Proxy(str(given.url), auth=given.raw_auth)
    except (httpx.InvalidURL, ValueError):  # their text may show a part of the password
        proxy = None
    if proxy and proxy.url.host and proxy.url.scheme in (b"http", b"https"):  # SOCKS would need one more package
        return proxy
    what = f"the proxy in {variable}_proxy cannot be used: it must be an HTTP proxy"
    raise Unsupported(what, "give http://HOST:PORT, with %-encoded user and password, or name the server in no_proxy")


class _Transport(httpx.AsyncBaseTransport):
    """Adapter from httpx requests to httpcore."""

    def __init__(self, pool: httpcore.AsyncConnectionPool) -> None:
        self._pool = pool

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        answer = await self._pool.handle_async_request(
            httpcore.Request(
                request.method,
                httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=cast(httpx.AsyncByteStream, request.stream),
                extensions=request.extensions,
            )
        )
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer), extensions=answer.extensions)

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._answer.aiter_stream()

    async def aclose(self) -> None:
        await self._answer.aclose()


def adopted(answer: PlainAnswer, url: httpx.URL, on: httpx.AsyncClient) -> httpx.Response:
    """Return a plain answer as one of httpx, whose client then knows its cookies.

    :param url: the URL of the request
    """
    response = httpx.Response(
        answer.status_code,
        headers=[(name.encode(), value.encode()) for name, value in answer.head.fields],
        stream=_PlainBody(answer),
        request=httpx.Request(answer.sent.method, url, headers=answer.sent.headers),
        extensions={
            "http_version": answer.http_version.encode(),
            "reason_phrase": answer.reason_phrase.encode("latin-1"),
            "network_stream": answer.connection,
        },
    )
    on.cookies.extract_cookies(response)
    return response


class _PlainBody(httpx.AsyncByteStream):
    def __init__(self, answer: PlainAnswer) -> None:
        self._answer = answer

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._answer.aiter_raw()

    async def aclose(self) -> None:
        await self._answer.aclose()


class _Backend(httpcore.AsyncNetworkBackend):
    def __init__(self, dialer: Dialer, seconds: float, reached: Reached, spare: Spare, trust: WebTrust) -> None:
        self._dialer = dialer
        self._spare = spare
        self._seconds = seconds
        self._reached = reached
        self._trust = trust

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        if spare := self._spare():
            return _Plain(spare, self._seconds, self._trust)
        sock = await self._dialer.dial(host, port, self._seconds)
        try:
            self._reached(round_trip(sock))
            return _Plain(sock, self._seconds, self._trust)
        except OSError as error:  # the connection was reset as soon as it was made
            sock.close()
            raise httpcore.ConnectError(str(error)) from error


class _Opening:
    """A check of the first bytes received, as h11 would take another protocol's text for the start of a response.

    The beginning of each response is read in small pieces, as h11 limits the length of headers only until they end.
    """

    def __init__(self) -> None:
        self._over = False
        self._received = 0

    def expect_headers(self) -> None:
        """Expect headers next, because a request is sent."""
        self._received = 0

    @property
    def most(self) -> int:
        """Bytes to read at once."""
        return CHUNK if self._received > HEADERS else BEGINNING

    def check(self, data: bytes) -> bytes:
        """Return the data unchanged.

        :raises httpcore.RemoteProtocolError: when the first bytes of the connection are not HTTP
        """
        self._received += len(data)
        if not self._over and data:
            self._over = True
            try:
                refuse_other_protocol(data)
            except NotHTTP as error:
                raise httpcore.RemoteProtocolError(str(error)) from None
        return data


class _Plain(PlainConnection, httpcore.AsyncNetworkStream):
    """A plain TCP connection."""

    def __init__(self, sock: socket.socket, seconds: float, trust: WebTrust) -> None:
        super().__init__(sock)
        self._trust = trust
        self._seconds = seconds
        self._opening = _Opening()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._opening.check(await self.receive(self._opening.most))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._opening.expect_headers()
        try:
            await self.send(buffer)
        except OSError as error:  # httpcore then checks whether the server has sent a reason
            raise httpcore.WriteError(error) from error

    async def aclose(self) -> None:
        self.close()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        reader, writer = await asyncio.open_connection(
            sock=self._sock,
            ssl=ssl_context,
            server_hostname=server_hostname,
            ssl_handshake_timeout=self._seconds,
            limit=CHUNK,
        )
        try:
            check_server(self._trust, writer.get_extra_info("ssl_object"), server_hostname or self.peer)
        except PermissionRefused:
            writer.transport.abort()
            raise
        return _Secured(reader, writer, self.peer)


class _Secured(httpcore.AsyncNetworkStream):
    """A TLS connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str) -> None:
        self._reader = reader
        self._peer = peer
        self._writer = writer
        self._given_away = False
        self._opening = _Opening()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        await asyncio.sleep(0)
        return self._opening.check(await self._reader.read(self._opening.most))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._opening.expect_headers()
        try:
            self._writer.write(buffer)
            await self._writer.drain()
        except OSError as error:
            raise httpcore.WriteError(error) from error

    async def aclose(self) -> None:
        if not self._given_away:
            self.close()

    def close(self) -> None:
        """Close the connection; may be called twice."""
        self._writer.transport.abort()  # a graceful shutdown would wait

    async def hand_over(self) -> asyncio.Transport:
        """Hand the connection over, as `channel.HTTPConnection`. For httpcore, it is closed from now on."""
        self._given_away = True
        transport = cast(asyncio.Transport, self._writer.transport)
        transport.pause_reading()
        return transport

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise Unsupported("coget does not support proxies reached over https://", "give one with an http:// address")

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return self._given_away or self._reader.at_eof() or self._reader.exception() is not None
        if info == "server_addr":
            return self._peer
        if info == "rtt":
            return round_trip(self._writer.get_extra_info("socket"))
        return self._writer.get_extra_info(info)
