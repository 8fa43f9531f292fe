"""How a connection is made. Engines are handed a dialer, so that one day all of them can be relayed.

Turns what the operating system says about a failed connection into this project's errors.
"""

import asyncio
import socket
import sys
from collections.abc import Callable, Iterable
from typing import Protocol

import aiohappyeyeballs

from coalloc.errors import PermissionRefused, SourceError, UnknownHost, Unreachable

__all__ = ["Dialer", "DirectDialer", "forbid", "round_trip"]

LEAST_RTT = slice(148, 152)
"""Of `struct tcp_info` (linux/tcp.h): tcpi_min_rtt, in microseconds."""
UNKNOWN = (0, 2**32 - 1)
Forbidden = Callable[[str], bool]
_forbidden: list[Forbidden] = []


class Dialer(Protocol):
    """Makes TCP connections on behalf of engines."""

    async def dial(self, host: str, port: int, seconds: float) -> socket.socket:
        """Return a connected, non-blocking socket (TCP_NODELAY set) within `seconds`, or raise a SourceError."""
        ...


def forbid(addresses: Forbidden) -> None:
    """From now on this process connects to no numeric address of which this says so, whatever name led there.

    For services that connect where their callers say.
    """
    if addresses not in _forbidden:
        _forbidden.append(addresses)


def round_trip(sock: socket.socket) -> float | None:
    """Seconds that a packet has needed, at the least, to the other end of a TCP connection and back, if known."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LEAST_RTT.stop)
    except OSError:  # no TCP connection
        return None
    least = int.from_bytes(info[LEAST_RTT], sys.byteorder)
    return None if least in UNKNOWN else least / 1e6


class DirectDialer:
    """Connects straight to the host, IPv6 and IPv4 side by side (RFC 8305)."""

    async def dial(self, host: str, port: int, seconds: float) -> socket.socket:
        where = f"{host}:{port}"
        try:
            async with asyncio.timeout(seconds):
                sock = await self._connect(host, port)
        except TimeoutError:
            raise Unreachable(
                f"{where} did not answer within {seconds:g} s",
                "check the address and that no firewall drops the connection",
            ) from None
        except (socket.gaierror, UnicodeError) as error:  # the latter: a label is empty, or longer than names can be
            raise self._unresolved(host, error) from None
        except OSError as error:
            reason = (
                "refused the connection" if isinstance(error, ConnectionRefusedError) else f"cannot be reached: {error}"
            )
            raise Unreachable(f"{where} {reason}", "check host and port, and that the server is running") from None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    async def _connect(self, host: str, port: int) -> socket.socket:
        name = host.encode() if host.isascii() else host  # for a string the tables of international names are loaded
        try:  # most data connections go to a numeric address, which needs no thread to look it up
            addresses = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            loop = asyncio.get_running_loop()
            addresses = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        _refuse_forbidden(host, {str(address[4][0]) for address in addresses})
        return await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=0.25)

    @staticmethod
    def _unresolved(host: str, error: socket.gaierror | UnicodeError) -> SourceError:
        if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
            return Unreachable(f"the name {host} could not be looked up: {error.strerror}", "check the name service")
        return UnknownHost(f"there is no host named {host}", "check the spelling of the host in the URL")


def _refuse_forbidden(host: str, addresses: Iterable[str]) -> None:
    """:raises PermissionRefused: when one of a host's addresses is forbidden"""
    for address in addresses:
        if any(forbidden(address) for forbidden in _forbidden):
            raise PermissionRefused(
                f"{host} has the address {address}, to which nothing connects from here",
                "correct the name of the server",
            )
