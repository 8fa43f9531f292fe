"""SOCKS5 (RFC 1928) with user names and passwords (RFC 1929), the server's side. Pure.

A ticket is sent as the password, with any user name.
"""

from collections.abc import Callable
from ipaddress import ip_address

from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.protocol.failures import DepotFailure, FailureCode
from coalloc.depot.protocol.opening import Opening

__all__ = ["VERSION", "Socks5"]

VERSION = b"\x05"
NO_PASSWORD, PASSWORD, NO_METHOD = 0, 2, 255
PASSWORD_VERSION = 1
CONNECT = 1
IPV4, NAME, IPV6 = 1, 3, 4
SUCCEEDED = 0
REPLIES: dict[FailureCode, int] = {
    "denied": 2,
    "ticket": 2,
    "unknown_host": 4,
    "unreachable": 4,
    "timeout": 6,
    "refused": 5,
    "unsupported": 7,
}
"""Reply for each failure; 1, a general failure, for all others."""


class Socks5:
    """The messages of one SOCKS5 client, up to its request.

    :param needs_ticket: whether the client must send a ticket
    """

    def __init__(self, *, needs_ticket: bool) -> None:
        self._needs_ticket = needs_ticket
        self._data = b""
        self._ticket = ""
        self._step: Callable[[], bytes | Opening | None] = self._greeting

    def receive(self, data: bytes) -> tuple[bytes, Opening | None]:
        """Process bytes from the client.

        :returns: bytes to send, and the opening once it is complete
        :raises DepotFailure: if they are malformed, or ask for anything but a connection
        """
        self._data += data
        reply = b""
        while True:
            taken = self._step()
            if taken is None:
                return reply, None
            if isinstance(taken, Opening):
                return reply, taken
            reply += taken

    def accepted(self, legs: tuple[float, ...]) -> bytes:
        """Return the reply once the destination is connected."""
        return _reply(SUCCEEDED)

    def refused(self, failure: DepotFailure) -> bytes:
        """Return the reply to a client whose session failed; empty if the protocol has none at this point."""
        if self._step == self._request:
            return _reply(REPLIES.get(failure.code, 1))
        return bytes([5, NO_METHOD]) if self._step == self._greeting else bytes([PASSWORD_VERSION, 1])

    def _greeting(self) -> bytes | None:
        """Choose an authentication method: 5, count, methods."""
        if len(self._data) < 2 or len(self._data) < 2 + self._data[1]:
            return None
        methods = self._take(2 + self._data[1])[2:]
        if PASSWORD in methods:
            self._step = self._password
            return bytes([5, PASSWORD])
        if self._needs_ticket or NO_PASSWORD not in methods:
            raise DepotFailure("ticket", "send a ticket of the broker as the password")
        self._step = self._request
        return bytes([5, NO_PASSWORD])

    def _password(self) -> bytes | None:
        """Take the ticket: 1, length, user name, length, password."""
        data = self._data
        if len(data) < 2 or len(data) < 3 + data[1] or len(data) < 3 + data[1] + data[2 + data[1]]:
            return None
        if data[0] != PASSWORD_VERSION:
            raise DepotFailure("malformed", "the SOCKS5 password message is malformed")
        start = 3 + data[1]
        self._ticket = self._take(start + data[start - 1])[start:].decode("latin-1")
        self._step = self._request
        return bytes([PASSWORD_VERSION, 0])  # the ticket is judged with the destination

    def _request(self) -> Opening | None:
        """Take the request: 5, command, 0, kind of address, address, port."""
        data = self._data
        if len(data) < 5:
            return None
        length = {IPV4: 4, IPV6: 16, NAME: 1 + data[4]}.get(data[3])
        if data[0] != 5 or length is None:
            raise DepotFailure("malformed", "the SOCKS5 request is malformed")
        if data[1] != CONNECT:
            raise DepotFailure("unsupported", "this depot supports only the SOCKS5 command CONNECT")
        if len(data) < 6 + length:
            return None
        raw = self._take(6 + length)[4:]
        address, port = raw[:-2], int.from_bytes(raw[-2:])
        try:
            host = address[1:].decode("ascii") if data[3] == NAME else str(ip_address(address))
            return Opening(HostPort.of(host, port), self._ticket, rest=self._data)
        except ValueError as error:
            raise DepotFailure("malformed", f"the SOCKS5 request is malformed: {error}") from None

    def _take(self, count: int) -> bytes:
        taken, self._data = self._data[:count], self._data[count:]
        return taken


def _reply(code: int) -> bytes:
    return bytes([5, code, 0, IPV4]) + bytes(6)
