"""The interface between a session and its security, which `gsi` and `tls` implement. Plain FTP has none."""

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from coalloc.engine.gridftp.control import ControlConnection
from coalloc.engine.gridftp.replies import Reply
from coalloc.errors import ConnectionLost

if TYPE_CHECKING:
    import ssl

__all__ = ["DataMode", "DataStream", "LoginAgain", "Security"]

DataMode = Literal["N", "S", "A"]


class DataStream(Protocol):
    """The data of a data connection: its socket, or what decrypts them."""

    def fileno(self) -> int:
        """Return the number of the socket, to wait for data."""
        ...

    def recv_into(self, buffer: memoryview, nbytes: int, /) -> int:
        """Receive at most `nbytes` bytes; return their number, 0 at the end. :raises BlockingIOError: if none came"""
        ...


class Security(Protocol):
    """Authentication and protection of a session."""

    @property
    def from_the_start(self) -> "ssl.SSLContext | None":
        """The TLS of a control connection that begins with it; None if it begins in plain text."""
        ...

    @property
    def protects_data(self) -> bool:
        """Return whether data connections need protection by `secure`."""
        ...

    @property
    def outlived(self) -> bool:
        """Return whether a new login is needed before the next data connection."""
        ...

    async def authenticate(self, control: ControlConnection, pipelined: bool) -> None:
        """Authenticate the server, and for GSI the user; protect the control connection."""
        ...

    async def admitted(self, control: ControlConnection) -> None:
        """Wait for the server's final reply to `authenticate`; later commands may have been sent already."""
        ...

    @property
    def login(self) -> Sequence[str]:
        """The commands that log in after `authenticate`."""
        ...

    async def check_login(self, control: ControlConnection, replies: Sequence[Reply]) -> None:
        """Check the replies to `login`; agree on the protection of data connections."""
        ...

    async def secure(self, data: socket.socket) -> DataStream:
        """Apply the agreed protection to a data connection, before its first byte of data; return its stream."""
        ...


class LoginAgain(ConnectionLost):
    """A login that has to be repeated with another mode of data channel authentication."""
