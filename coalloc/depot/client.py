"""Connections over depots, for programs: `create_connection` and `open_connection` with one more argument, `route`.

They have the signatures of `socket.create_connection` and `asyncio.open_connection`, so that a program uses depots once
its import is changed. If the route fails, they connect directly, and log a warning.

Source: the paper on the logistical session layer, section 2 (the AF_LSL sockets, which fall back to TCP).
"""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohappyeyeballs

from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.protocol.failures import DepotFailure
from coalloc.depot.protocol.session_header import Answer, PortRequest
from coalloc.depot.route import DepotRoute
from coalloc.util.dialer import looked_up

__all__ = ["ANSWER_SECONDS", "create_connection", "describe", "open_connection", "open_port", "relay"]

log = logging.getLogger(__name__)

ANSWER_SECONDS = 20.0
"""Time for the depots of a route to answer, if the caller sets no time limit."""

Address = tuple[str, int]
Connect = Callable[[HostPort], Awaitable[socket.socket]]


def create_connection(
    address: Address,
    timeout: float | None = None,
    source_address: Address | None = None,
    *,
    route: DepotRoute | str | None = None,
    first: bytes = b"",
) -> socket.socket:
    """Connect to a server over the depots of a route, or directly if the route fails.

    :param timeout: time limit in seconds for the route, then for the direct connection, and afterwards of the socket's
        operations
    :param route: a route, or its text as for `coget --via`; None to connect directly
    :param first: first bytes for the server; they travel with the request, so they save a round trip. They must be safe
        to repeat: if the route fails after the server has received them, the direct connection sends them once more.
    :raises OSError: if the server cannot be reached directly either
    :raises ValueError: if the route or the address is invalid
    """
    over, to = _route(route), HostPort.of(*address)
    sock = _relayed(over, to, timeout, source_address, first) if over.depots else None
    if sock is not None:
        return sock
    sock = socket.create_connection(address, timeout, source_address)
    try:
        sock.sendall(first)
    except BaseException:
        sock.close()
        raise
    return sock


async def open_connection(
    host: str, port: int, *, route: DepotRoute | str | None = None, first: bytes = b"", **options: Any
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a server over the depots of a route, or directly if the route fails.

    :param route: a route, or its text as for `coget --via`; None to connect directly
    :param first: first bytes for the server; they travel with the request, so they save a round trip. They must be safe
        to repeat: if the route fails after the server has received them, the direct connection sends them once more.
        With `ssl`, they are encrypted, and follow later.
    :param options: further arguments of `asyncio.open_connection`, such as `ssl`
    :raises OSError: if the server cannot be reached directly either
    :raises ValueError: if the route or the address is invalid
    """
    over, to = _route(route), HostPort.of(host, port)
    encrypted = bool(options.get("ssl"))
    if over.depots:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                sock, _ = await relay(over, to, _connect, b"" if encrypted else first)
        except (DepotFailure, OSError) as error:
            _warn(error, over, to)
        else:
            named = {"server_hostname": host} if encrypted else {}
            reader, writer = await asyncio.open_connection(sock=sock, **named | options)
            if encrypted:
                writer.write(first)
            return reader, writer
    reader, writer = await asyncio.open_connection(host, port, **options)
    writer.write(first)
    return reader, writer


async def relay(
    route: DepotRoute, to: HostPort, connect: Connect, first: bytes = b""
) -> tuple[socket.socket, tuple[float, ...]]:
    """Return a connection to a server over the depots of a route, and the seconds that each depot's connection took.

    :param connect: connects to the first depot, with a non-blocking socket
    :raises DepotFailure: if a depot refuses, or the server cannot be reached from the last one
    :raises OSError: if the connection to the first depot fails
    """
    sock, answer = await _ask(route.depots[0], route.header(to, time.time()).encode() + first, connect)
    return sock, answer.legs


async def open_port(
    route: DepotRoute, to: HostPort, wanted: PortRequest, connect: Connect
) -> tuple[socket.socket, int]:
    """Return a session with a depot that has opened a port, and the number of the port.

    The depot closes the port when the session is closed.

    :param route: a route of one depot
    :param to: numeric address and port of the server that the depot connects to
    :param connect: connects to the depot, with a non-blocking socket
    :raises DepotFailure: if the depot refuses, or knows no ports
    :raises OSError: if the connection to the depot fails
    """
    try:
        sock, answer = await _ask(route.depots[0], route.header(to, time.time(), wanted).encode(), connect)
    except DepotFailure as failure:
        if failure.code != "malformed" or failure.hop is None:  # None: the answer itself is malformed
            raise
        raise DepotFailure("unsupported", "it is too old to open ports for other hosts", failure.hop) from None
    if answer.port is None:
        sock.close()
        raise DepotFailure("malformed", "its answer has no port", 0)
    return sock, answer.port


async def _ask(depot: HostPort, request: bytes, connect: Connect) -> tuple[socket.socket, Answer]:
    """Send a request to a depot; return the connection, and the depot's answer."""
    loop = asyncio.get_running_loop()
    sock, data = await connect(depot), b""
    try:
        await loop.sock_sendall(sock, request)
        while missing := Answer.missing(data):
            data += _received(await loop.sock_recv(sock, missing))
        return sock, _accepted(data)
    except BaseException:
        sock.close()
        raise


def describe(error: DepotFailure | OSError, route: DepotRoute) -> str:
    """Return a sentence that names the depot that failed, and why."""
    if isinstance(error, TimeoutError):
        return f"the route {route} gave no answer in time"
    if isinstance(error, DepotFailure) and error.hop is not None and error.hop < len(route.depots):
        return f"depot {route.depots[error.hop]}: {error.message}"
    return f"depot {route.depots[0]}: {getattr(error, 'strerror', None) or error}"


def _relayed(
    route: DepotRoute, to: HostPort, timeout: float | None, source: Address | None, first: bytes
) -> socket.socket | None:
    """Do what `relay` does, without an event loop; return None if it fails."""
    end = time.monotonic() + (timeout or ANSWER_SECONDS)
    try:
        sock, data = socket.create_connection(route.depots[0], _left(end), source), b""
        try:
            sock.settimeout(_left(end))
            sock.sendall(route.header(to, time.time()).encode() + first)
            while missing := Answer.missing(data):
                sock.settimeout(_left(end))
                data += _received(sock.recv(missing))
            _accepted(data)
        except BaseException:
            sock.close()
            raise
    except (DepotFailure, OSError) as error:
        _warn(error, route, to)
        return None
    sock.settimeout(timeout)
    return sock


async def _connect(depot: HostPort) -> socket.socket:
    return await aiohappyeyeballs.start_connection(await looked_up(depot.host, depot.port), happy_eyeballs_delay=0.25)


def _left(end: float) -> float:
    """Return the seconds until a time.

    :raises TimeoutError: if it has passed
    """
    seconds = end - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def _received(data: bytes) -> bytes:
    if not data:
        raise DepotFailure("unreachable", "it closed the connection without an answer", 0)
    return data


def _accepted(data: bytes) -> Answer:
    """Return the answer of these bytes. :raises DepotFailure: if the depot refuses"""
    answer = Answer.decode(data)
    if answer.failure:
        raise answer.failure
    return answer


def _route(route: DepotRoute | str | None) -> DepotRoute:
    return DepotRoute.parse(route) if isinstance(route, str) else route or DepotRoute()


def _warn(error: DepotFailure | OSError, route: DepotRoute, to: HostPort) -> None:
    log.warning("%s; connecting to %s directly", describe(error, route), to)
