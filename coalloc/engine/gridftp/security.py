"""The interface between a GridFTP session and its security, which `gsi` implements. Plain FTP has none."""

import socket
from collections.abc import Sequence
from typing import Literal, Protocol

from coalloc.engine.gridftp.control import ControlConnection
from coalloc.engine.gridftp.replies import Reply
from coalloc.errors import ConnectionLost

__all__ = ["DataMode", "LoginAgain", "Security"]

DataMode = Literal["N", "S", "A"]


class Security(Protocol):
    """Authentication of a session in place of USER and PASS (GSI)."""

    @property
    def protects_data(self) -> bool:
        """Return whether data connections need protection by `secure`."""
        ...

    @property
    def outlived(self) -> bool:
        """Return whether a new login is needed before the next data connection."""
        ...

    async def authenticate(self, control: ControlConnection, pipelined: bool) -> None:
        """Authenticate the user to the server, and set `control.protection`."""
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

    async def secure(self, data: socket.socket) -> None:
        """Apply the agreed protection to a data connection, before its first byte of data."""
        ...


class LoginAgain(ConnectionLost):
    """A login that has to be repeated with another mode of data channel authentication."""
