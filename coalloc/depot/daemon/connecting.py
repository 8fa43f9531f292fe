"""Connections of a depot: how they are accepted and made, and their options."""

import asyncio
import logging
import socket
from collections.abc import Sequence

import aiohappyeyeballs
from aiohappyeyeballs import AddrInfoType

from coalloc.depot.daemon.legs import EXHAUSTED
from coalloc.depot.daemon.pump import reset_on_close
from coalloc.depot.daemon.settings import DepotSettings
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.protocol.failures import DepotFailure

__all__ = ["accept", "connect", "keep_alive", "open_socket", "prepare", "unconnected"]

log = logging.getLogger(__name__)

PAUSE = 0.1
"""Seconds until the next connection is accepted after file descriptors or memory ran out."""
KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 20), (socket.TCP_KEEPCNT, 6))
"""Probes that detect within three minutes that the other host is gone."""


async def accept(listener: socket.socket) -> tuple[socket.socket, str]:
    """Return the next connection, and the numeric address of its other host.

    If file descriptors or memory are exhausted, wait until there are some.
    """
    while True:
        try:
            sock, address = await asyncio.get_running_loop().sock_accept(listener)
        except OSError as error:
            if error.errno in EXHAUSTED:
                log.warning("cannot accept connections: %s", error.strerror)
            await asyncio.sleep(PAUSE)
        else:
            return sock, address[0]


async def connect(
    settings: DepotSettings, place: HostPort, addresses: Sequence[AddrInfoType], congestion: str
) -> socket.socket:
    """Connect to a server or a next depot at these addresses.

    :param congestion: congestion control that the client asked for; "" for the depot's
    :raises DepotFailure: if no connection can be made
    """
    try:
        server = await open_socket(addresses, settings.connect_seconds)
    except OSError as error:
        raise unconnected(place, error) from None
    prepare(server, congestion or settings.congestion)
    return server


async def open_socket(addresses: Sequence[AddrInfoType], seconds: float) -> socket.socket:
    """Connect to the first of these addresses that answers.

    :raises OSError: if none does within this time
    """
    async with asyncio.timeout(seconds):
        return await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=0.25, socket_factory=_new_socket)


def unconnected(place: HostPort, error: OSError) -> DepotFailure:
    """Return the failure of a session whose next hop cannot be reached."""
    match error:
        case TimeoutError():
            return DepotFailure("timeout", f"{place} did not answer")
        case ConnectionRefusedError():
            return DepotFailure("refused", f"{place} refused the connection")
    return DepotFailure("unreachable", f"cannot reach {place}: {error.strerror or error}")


def prepare(server: socket.socket, congestion: str) -> None:
    """Set the options of a new connection; close it if that fails.

    :param congestion: its congestion control; "" for the system's
    :raises DepotFailure: if that may not be used
    """
    try:
        _use_congestion(server, congestion)
        keep_alive(server)
    except BaseException:
        server.close()
        raise


def keep_alive(sock: socket.socket) -> None:
    """Send small pieces at once, and detect whether the other host is gone."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _use_congestion(sock: socket.socket, wanted: str) -> None:
    if wanted:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, wanted.encode())
        except OSError:
            raise DepotFailure("unsupported", f"this depot may not use congestion control {wanted}") from None


def _new_socket(address: AddrInfoType) -> socket.socket:
    """Return a socket to connect; without a first byte, too, its end must not look like the end of a stream."""
    sock = socket.socket(*address[:3])
    reset_on_close(sock)
    return sock
