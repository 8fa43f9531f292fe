"""Requests to one server over plain TCP, one at a time, without the libraries that TLS, proxies and redirects need.

Most http:// servers need no more than this. `exchange` sends the other requests by httpx: a server whose URL or answer
is not handled here is asked again that way, and a redirect or a cookie is left to it together with its answer.
"""

import asyncio
import os
import re
import socket
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from ipaddress import AddressValueError, IPv4Address
from typing import Any, NamedTuple
from urllib.parse import unquote

from coalloc.engine.http.answers import closes
from coalloc.engine.http.messages import (
    LONGEST,
    ResponseHead,
    head_end,
    read_head,
    refuse_other_protocol,
    request_bytes,
)
from coalloc.model.routes import DIRECTLY
from coalloc.util.dialer import Dialer, round_trip

__all__ = [
    "CHUNK",
    "Disconnected",
    "PlainAnswer",
    "PlainConnection",
    "PlainServer",
    "Reached",
    "SentRequest",
    "UncommonAnswer",
    "plain_server",
]

CHUNK = 1024 * 1024  # bytes read at once; 64 KiB halve the speed
COMMON = {"Accept": "*/*", "Connection": "keep-alive", "Accept-Encoding": "identity", "User-Agent": "coget"}
"""Headers of every request."""
URL = re.compile(
    r"http://(?:(?P<login>(?:[\w.~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})+)@)?"
    r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<target>(?:/(?:[\w.~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*)?"
    r"(?:\?(?:[\w.~!$&()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?)",
    re.ASCII,
)
"""URLs that are sent unchanged."""
DOTS = re.compile(r"/\.\.?(?:/|\?|\Z)")
NUMERIC = re.compile(r"(?:[0-9]+\.){3}[0-9]+")
LENGTH = re.compile("[0-9]{1,18}")
BODILESS = (204, 304)
"""Status codes of responses without a body."""

Reached = Callable[[float | None], None]
"""Function that is called for each connection with the round-trip time in seconds, None if unknown."""


class Disconnected(Exception):
    """A connection that the server has closed or reset too early. Internal: `exchange` converts it."""


class UncommonAnswer(Exception):
    """An answer that is not understood here. Internal: ask again by other means."""


class SentRequest(NamedTuple):
    """A request as it was sent: its method and target, and its headers in their order."""

    method: str
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]


class PlainConnection:
    """A plain TCP connection, which may be handed over as `channel.HTTPConnection`."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.peer = str(sock.getpeername()[0])
        """The numeric address of the server."""
        self._given_away = False
        self._loop = asyncio.get_running_loop()

    async def receive(self, most: int) -> bytes:
        """Return at most `most` bytes that have arrived, after a wait for the first; none if the server hung up."""
        await asyncio.sleep(0)  # sock_recv returns available data without a pause; let time-outs fire
        return await self._loop.sock_recv(self._sock, most)

    async def send(self, data: bytes) -> None:
        """Send all of these bytes."""
        await self._loop.sock_sendall(self._sock, data)

    def close(self) -> None:
        """Close the connection, unless it was handed over."""
        if not self._given_away:
            self._sock.close()

    async def hand_over(self) -> asyncio.Transport:
        """Hand the connection over: return its transport, which does not read. The connection counts as closed."""
        self._given_away = True
        transport, _ = await self._loop.create_connection(_Pausing, sock=self._sock)
        return transport

    def release(self) -> socket.socket:
        """Return the socket of an idle connection, which counts as closed from now on."""
        self._given_away = True
        return self._sock

    @property
    def usable(self) -> bool:
        """Return whether an idle connection can be used: the server has neither closed it nor sent anything."""
        return not self.get_extra_info("is_readable")

    def get_extra_info(self, info: str) -> Any:
        """Return a property of the connection, by the names of httpcore; None if unknown."""
        if info == "rtt":
            return round_trip(self._sock)
        if info == "server_addr":
            return self.peer
        return self._given_away or self._readable() if info == "is_readable" else None

    def _readable(self) -> bool:
        """Return whether an idle connection has something to read, which means that it is closed."""
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True


class _Pausing(asyncio.Protocol):
    """The protocol of a connection that has not been taken over yet: it does not read."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()


class PlainAnswer:
    """A response whose body has not been read yet. It has the attributes of httpx's responses that callers use.

    :param begun: bytes that have arrived after the head
    :param length: length of the body; None if it extends to the end of the connection
    """

    history = ()
    """Redirects that led to the response."""

    def __init__(
        self, connection: PlainConnection, sent: SentRequest, head: ResponseHead, begun: bytes, length: int | None
    ) -> None:
        self.connection = connection
        self.sent = sent
        self.head = head
        self.status_code = head.status
        self.reason_phrase = "".join(filter(str.isascii, head.reason))
        self.headers: Mapping[str, str] = head.headers
        self.http_version = f"HTTP/{head.version}"
        self._begun = begun
        self._left = length
        self._persistent = (
            head.version == "1.1" and not closes(self.headers) and "transfer-encoding" not in self.headers
        )

    @property
    def keeps(self) -> bool:
        """Return whether the next request can be sent on the connection."""
        return self._persistent and self._left == 0 and not self._begun

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 300

    async def aiter_raw(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces as it arrives. Bytes that follow it are not read.

        :raises Disconnected: when the server closes the connection before the end of the body
        """
        while self._left is None or self._left > 0:
            data, self._begun = self._begun or await self._received(CHUNK), b""
            if not data and self._left is None:
                return
            if not data:
                raise Disconnected(f"the server closed it, {self._left} bytes before the end of the response")
            if self._left is not None:
                data, self._begun = data[: self._left], data[self._left :]
                self._left -= len(data)
            yield data

    async def _received(self, most: int) -> bytes:
        try:
            return await self.connection.receive(most)
        except OSError as error:
            raise Disconnected(str(error)) from None

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    async def aclose(self) -> None:
        """Close the connection, unless the next request can be sent on it."""
        if not self.keeps:
            self.connection.close()


class PlainServer:
    """The server of a URL, with at most one connection.

    :param reached: called for each connection
    """

    def __init__(self, url: re.Match[str], dialer: Dialer, seconds: float, reached: Reached) -> None:
        self.host = url["host"].lower()
        self.port = int(url["port"] or 80)
        target = url["target"] or "/"
        self._target = (target if target.startswith("/") else f"/{target}").encode()
        named = self.host if self.port == 80 else f"{self.host}:{self.port}"
        self._headers = {"Host": named, **COMMON}
        self._login = _basic(url["login"])
        self._dialer = dialer
        self._seconds = seconds
        self._reached = reached
        self._connection: PlainConnection | None = None

    def request(self, method: str, headers: Mapping[str, str]) -> SentRequest:
        """Return the request for the URL with these headers."""
        fields = {**self._headers, **headers, **self._login}
        return SentRequest(
            method, self._target, tuple((name.encode(), value.encode()) for name, value in fields.items())
        )

    async def ask(self, method: str, headers: Mapping[str, str]) -> PlainAnswer:
        """Send a request, and return the response without its body.

        :raises UncommonAnswer: when the response is not understood; the connection is closed then
        :raises NotHTTP: when the server speaks another protocol
        :raises Disconnected: when the connection ends before the response's head
        """
        sent = self.request(method, headers)
        message = request_bytes(*sent)
        try:
            connection = self._connection
            if connection is None or not connection.usable:
                relayed = self._dialer.route(self.host) != DIRECTLY
                connection = self._connection = await self._connected(message if relayed else b"")
                if relayed:
                    return await _answer(connection, sent)
            with suppress(OSError):  # the server may have sent a reason before it closed the connection
                await connection.send(message)
            return await _answer(connection, sent)
        except BaseException:
            self.close()
            raise

    async def _connected(self, first: bytes) -> PlainConnection:
        """Return a new connection, over which these bytes are sent."""
        self.close()
        sock = await self._dialer.dial(self.host, self.port, self._seconds, first)
        try:
            self._reached(round_trip(sock))
            return PlainConnection(sock)
        except OSError as error:  # the connection was reset as soon as it was made
            sock.close()
            raise Disconnected(str(error)) from None

    def continue_on(self, connection: PlainConnection) -> None:
        """Send the next requests on this connection, as long as it is usable."""
        self.close()
        self._connection = connection
        self._reached(connection.get_extra_info("rtt"))

    def detach(self) -> PlainConnection | None:
        """Return the connection, which is not closed by `close` any more; None if there is none."""
        connection, self._connection = self._connection, None
        return connection

    def spare(self) -> socket.socket | None:
        """Return the socket of the idle connection, and forget it; None if there is none."""
        if self._connection is None or not self._connection.usable:
            return None
        connection, self._connection = self._connection, None
        return connection.release()

    def close(self) -> None:
        """Close the connection; may be called twice."""
        if self._connection:
            self._connection.close()
            self._connection = None


def plain_server(url: str, dialer: Dialer, seconds: float, reached: Reached) -> PlainServer | None:
    """Return the server of a URL; None if it needs TLS or a proxy, or if the URL has to be encoded before it is sent.

    :param seconds: time limit for each connection
    """
    parts = URL.fullmatch(url)
    if parts is None or DOTS.search(parts["target"]) or int(parts["port"] or 80) > 65535 or _names_proxy():
        return None
    if NUMERIC.fullmatch(parts["host"]):
        try:
            IPv4Address(parts["host"])
        except AddressValueError:
            return None
    return PlainServer(parts, dialer, seconds, reached)


def _names_proxy() -> bool:
    """Return whether the environment names a proxy for some servers."""
    return any(name.lower() in ("http_proxy", "all_proxy") for name in os.environ)


def _basic(login: str | None) -> dict[str, str]:
    """Return the header for the user and password of a URL."""
    user, _, password = (unquote(part) for part in (login or "").partition(":"))
    if not (user or password):
        return {}
    return {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}


async def _answer(connection: PlainConnection, sent: SentRequest) -> PlainAnswer:
    """Receive the response to a request, without its body."""
    begun = bytearray()
    head = await _next_head(connection, begun)
    while head.status < 200 and head.status != 101:
        head = await _next_head(connection, begun)
    return PlainAnswer(connection, sent, head, bytes(begun), _length(sent.method, head))


async def _next_head(connection: PlainConnection, begun: bytearray) -> ResponseHead:
    """Receive the head of a response, which may have arrived in part; leave the bytes after it in `begun`."""
    known = 0
    while (end := head_end(begun, known)) is None:
        if len(begun) >= LONGEST:
            raise UncommonAnswer
        known = len(begun)
        try:
            data = await connection.receive(LONGEST)
        except OSError as error:
            raise Disconnected(str(error)) from None
        if not data:
            raise Disconnected("the server closed it without a response")
        begun += data
        refuse_other_protocol(bytes(begun[:200]))
    try:
        head = read_head(bytes(begun[:end]))
    except ValueError:
        raise UncommonAnswer from None
    del begun[:end]
    return head


def _length(method: str, head: ResponseHead) -> int | None:
    """Return the length of a response's body; None if it extends to the end of the connection.

    :raises UncommonAnswer: when the body cannot be read here
    """
    stated = head.headers.get("content-length")
    if stated is not None and not LENGTH.fullmatch(stated):
        raise UncommonAnswer
    if head.status == 101 or ("transfer-encoding" in head.headers and method != "HEAD" and 200 <= head.status < 300):
        raise UncommonAnswer
    if method == "HEAD" or head.status in BODILESS:
        return 0
    return None if stated is None else int(stated)
