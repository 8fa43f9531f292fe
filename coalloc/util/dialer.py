"""Connections. Engines connect through a dialer, so that connections can be relayed.

A dialer checks the addresses of a name against the address policy, and connects to the allowed ones without a second
look-up. It converts the operating system's errors to coget's.
"""

import asyncio
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from types import MappingProxyType
from typing import Protocol, Self, cast
from urllib.parse import unquote

import aiohappyeyeballs
from aiohappyeyeballs import AddrInfoType

from coalloc.errors import AddressRefused, SourceError, UnknownHost, Unreachable
from coalloc.model.routes import DIRECTLY
from coalloc.util import trace
from coalloc.util.addresses import ANYWHERE, AddressClass, AddressPolicy, class_of, server
from coalloc.util.tcp_info import least_round_trip

__all__ = [
    "PORTS",
    "Dialer",
    "DirectDialer",
    "RelayedSocket",
    "checked",
    "fastest_is_known",
    "looked_up",
    "numeric",
    "ordered",
    "refuse_numeric",
    "round_trip",
    "send_first",
]

ZONE = re.compile(r"[%\s\0]")
"""Characters that end an address: the mark of an IPv6 zone, blanks and NUL."""
PORTS = range(1, 65536)
"""Ports of TCP; the system takes only the lowest 16 bits of others."""
LOOPBACK_NAMES = (
    *("localhost", "localhost.localdomain", "localhost4", "localhost6", "localhost4.localdomain4"),
    *("localhost6.localdomain6", "ip6-localhost", "ip6-loopback"),
)
"""Names of this machine in /etc/hosts of various systems."""
WORDS = {
    AddressClass.PUBLIC: "public",
    AddressClass.PRIVATE: "private",
    AddressClass.LOOPBACK: "of this machine itself",
    AddressClass.LINK_LOCAL: "link-local or reserved",
}


class Dialer(Protocol):
    """A maker of TCP connections for engines."""

    async def dial(self, host: str, port: int, seconds: float, first: bytes = b"") -> socket.socket:
        """Return a connected, non-blocking socket with TCP_NODELAY set.

        :param seconds: time limit
        :param first: first bytes for the server, which save a round trip over depots. They must be safe to repeat: if a
            route fails after the server has received them, they are sent over another one.
        :raises SourceError: if no connection is made in time, or the policy allows none of its addresses
        """
        ...

    @property
    def policy(self) -> AddressPolicy:
        """The policy that the addresses must satisfy."""
        ...

    def under(self, policy: AddressPolicy) -> "Dialer":
        """Return the same dialer under another policy."""
        ...

    def serves(self, host: str) -> bool:
        """Return whether the dialer has a route to a host."""
        ...

    def route(self, host: str) -> str:
        """Return the route to a host that was taken last, or will be taken, as for `coget --via`; "none" if direct."""
        ...

    def expected(self, host: str) -> float | None:
        """Return the expected seconds for a small file from a host; None if unknown."""
        ...

    async def addresses(self, host: str) -> frozenset[str]:
        """Return the numeric addresses at which a host can be reached: those last dialled, else those looked up.

        :raises OSError: when the name does not resolve
        """
        ...


class RelayedSocket(socket.socket):
    """A connection that other hosts relay: its peer is the server that they have connected.

    :param connection: connection to the first of these hosts, which is taken over
    :param server: numeric address and port of the server
    :param legs: round-trip times in seconds behind the first host
    :ivar further: the sum of these
    """

    def __init__(self, connection: socket.socket, server: tuple[str, int], legs: Sequence[float]) -> None:
        super().__init__(fileno=connection.detach())
        self.setblocking(False)
        self.further = sum(legs)
        self._server = server

    def getpeername(self) -> tuple[str, int]:
        """Return the address and port of the server."""
        super().getpeername()  # raises an error if the connection has been reset
        return self._server


def ordered(dialers: Sequence[Dialer], host: str) -> list[Dialer]:
    """Return the dialers that have a route to a host; if all expected times are known, the fastest first."""
    serving = [dialer for dialer in dialers if dialer.serves(host)]
    times = [dialer.expected(host) for dialer in serving]
    known = [(seconds, i) for i, seconds in enumerate(times) if seconds is not None]
    return [serving[i] for _, i in sorted(known)] if len(known) == len(serving) else serving


def fastest_is_known(dialers: Sequence[Dialer], host: str) -> bool:
    """Return whether it is known which of these dialers has the fastest route to a host."""
    return len(dialers) == 1 or all(dialer.expected(host) is not None for dialer in dialers)


def round_trip(sock: socket.socket) -> float | None:
    """Return the shortest round-trip time in seconds of a connection so far; None if unknown."""
    further = getattr(getattr(sock, "_sock", sock), "further", 0.0)  # asyncio wraps the sockets of transports
    try:
        least = least_round_trip(sock)
    except OSError:  # not a TCP connection
        return None
    return None if least is None else least + further


async def send_first(sock: socket.socket, first: bytes) -> None:
    """Send the first bytes on a connection; close it if this is cancelled.

    An error is left to the reception: the server may have sent a reason before it closed the connection.
    """
    try:
        with suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(sock, first)
    except BaseException:
        sock.close()
        raise


class DirectDialer:
    """A dialer that connects directly, over IPv6 and IPv4 concurrently (RFC 8305).

    :param policy: the policy that the addresses must satisfy
    """

    policy: AddressPolicy = ANYWHERE
    _dialled: Mapping[str, frozenset[str]] = MappingProxyType({})

    def __init__(self, policy: AddressPolicy = ANYWHERE) -> None:
        self.policy = policy

    def under(self, policy: AddressPolicy) -> Self:
        """Return the same dialer under another policy."""
        other = copy(self)
        other.policy = policy
        return other

    def serves(self, host: str) -> bool:
        """Return whether the dialer has a route to a host."""
        return True

    def route(self, _host: str) -> str:
        """Return the route to a host, as for `coget --via`."""
        return DIRECTLY

    def expected(self, _host: str) -> float | None:
        """Return the expected seconds for a small file from a host; None if unknown."""
        return None

    async def dial(self, host: str, port: int, seconds: float, first: bytes = b"") -> socket.socket:
        where = f"{host}:{port}"
        trace.asked(where, "connect")
        if port not in PORTS:
            raise Unreachable(f"{where} cannot be reached: there is no such port", "check host and port")
        try:
            async with asyncio.timeout(seconds):
                sock = await self._connect(host, port)
        except TimeoutError:
            raise Unreachable(
                f"{where} did not answer within {seconds:g} s",
                "check the address, and that no firewall drops the connection",
            ) from None
        except (socket.gaierror, UnicodeError) as error:  # UnicodeError: a label is empty or too long
            raise self._unresolved(host, error) from None
        except OSError as error:
            reason = (
                "refused the connection" if isinstance(error, ConnectionRefusedError) else f"cannot be reached: {error}"
            )
            raise Unreachable(f"{where} {reason}", "check host and port, and that the server is running") from None
        if trace.is_on():
            with suppress(OSError):  # it may have been reset already
                trace.answered(where, f"connected to {sock.getpeername()[0]}")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if first:
            await send_first(sock, first)
        return sock

    async def _connect(self, host: str, port: int) -> socket.socket:
        found = self._allowed(host, port, await _found(host, port, self.policy))
        self._dialled = {**self._dialled, host: frozenset(str(each[4][0]) for each in found)}
        return await aiohappyeyeballs.start_connection(found, happy_eyeballs_delay=0.25)

    def _allowed(self, host: str, port: int, found: list[AddrInfoType]) -> list[AddrInfoType]:
        """Return those of a host's addresses that the policy allows.

        :raises AddressRefused: if it has addresses, and none is allowed
        """
        allowed = [each for each in found if self.policy.allows(str(each[4][0]), server(host, port))]
        if found and not allowed:
            raise refused(host, str(found[0][4][0]), self.policy)
        return allowed

    async def addresses(self, host: str) -> frozenset[str]:
        """Return the numeric addresses at which a host can be reached: those last dialled, else those looked up.

        :raises OSError: when the name does not resolve
        """
        if host not in self._dialled:
            found = await _found(host, 0, self.policy)
            return frozenset(str(each[4][0]) for each in found if self.policy.allows(str(each[4][0])))
        return self._dialled[host]

    @staticmethod
    def _unresolved(host: str, error: socket.gaierror | UnicodeError) -> SourceError:
        if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
            return Unreachable(f"cannot look up {host}: {error.strerror}", "check the name service")
        return UnknownHost(f"there is no host named {host}", "check the spelling of the host in the URL")


async def _found(host: str, port: int, policy: AddressPolicy) -> list[AddrInfoType]:
    """Return the addresses of a host: those pinned by the policy, else those looked up.

    :raises OSError: if it has none
    :raises UnicodeError: if its name is invalid
    """
    names = policy.pinned_to(host) or (host,)
    return [each for name in names for each in await looked_up(name, port)]


async def looked_up(host: str, port: int) -> list[AddrInfoType]:
    """Return the addresses of a host; those of a numeric one at once.

    :raises OSError: if it has none
    :raises UnicodeError: if its name is invalid
    """
    name = host.encode() if host.isascii() else host  # getaddrinfo would load the IDNA codec for a str
    try:  # most connections go to numeric addresses, which need no thread
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return cast(list[AddrInfoType], found)


async def checked(host: str, port: int, policy: AddressPolicy) -> str:
    """Return an address, IPv4 if possible, of a host that another program will connect to.

    :raises SourceError: if the host has no address, or one that the policy does not allow
    """
    try:
        found = [str(each[4][0]) for each in await _found(host, port, policy)]
    except (OSError, UnicodeError):
        raise UnknownHost(f"there is no host named {host}", "check the spelling of the host in the URL") from None
    for address in found:
        if not policy.allows(address, server(host, port)):
            raise refused(host, address, policy)
    return min(found, key=lambda address: ":" in address)


def numeric(host: str) -> str | None:
    """Return the address of a host whose name is a numeric address in any notation, or means this machine; else None.

    >>> [numeric(each) for each in ("127.1", "0x7f000001", "::1", "LOCALHOST.", "example.org")]
    ['127.0.0.1', '127.0.0.1', '::1', '127.0.0.1', None]
    >>> [numeric(each) for each in ("fe80::1%25eth9", "%31%32%37.1%20", "ip6-localhost", "localhost.localdomain.")]
    ['fe80::1', '127.0.0.1', '127.0.0.1', '127.0.0.1']
    """
    plain = ZONE.split(unquote(host))[0].rstrip(".").lower()  # a proxy may decode the name, and cut off a zone
    if plain in LOOPBACK_NAMES or plain.endswith(".localhost"):
        return "127.0.0.1"
    try:
        (found, *_) = socket.getaddrinfo(plain, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):  # not numeric
        return None
    return str(found[4][0])


def refuse_numeric(host: str, port: int, policy: AddressPolicy) -> None:
    """Refuse a host that a proxy will connect to, if its name is a numeric address that the policy does not allow.

    :raises AddressRefused: if the address is not allowed
    """
    address = numeric(host)
    if address and not policy.allows(address, server(host, port)):
        raise refused(host, address, policy)


def refused(host: str, address: str, policy: AddressPolicy) -> AddressRefused:
    """Return the error for a host whose address the policy does not allow."""
    known = host if host == address else f"{host} has the address {address}, which"
    kind = WORDS[class_of(address)]
    return AddressRefused(
        f"{known} is {kind}: such addresses are refused if a server or document names them", policy.remedy
    )
