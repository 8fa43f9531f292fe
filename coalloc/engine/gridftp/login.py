"""A login to one server: the control connection, the server's features, and the protection of data connections.

If the server allows, all commands are sent together, ahead of its greeting, since with a distant server each round trip
costs more than all else. Subclasses define the purpose of a login: `session` fetches one file, `storage` changes names,
`thirdparty` makes two servers copy.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.address import Address
from coalloc.engine.gridftp.control import ControlConnection, PendingReply
from coalloc.engine.gridftp.data_connections import DataConnections
from coalloc.engine.gridftp.refusals import login_refusal, refusal
from coalloc.engine.gridftp.replies import Reply, features
from coalloc.engine.gridftp.security import DataMode, DataStream, LoginAgain, Security
from coalloc.errors import ConnectionLost, ServerSays, Stalled, Unsupported

__all__ = ["GridFTPLogin", "security_for"]

CHECKSUM_RATE = 20e6  # bytes per second at which a server must read for a checksum, else it counts as silent

ODD = "/\N{LATIN SMALL LETTER E WITH ACUTE}"
"""A path that does not exist; a server that drops non-ASCII characters finds `/` instead."""

Reached = Callable[[ControlConnection], None]
"""Function that receives the control connection as soon as it is connected."""


def security_for(
    address: Address, options: EngineOptions, proxy: Path | None = None, modes: Sequence[DataMode] | None = None
) -> Security | None:
    """Return the security that a login at this address needs; None for ftp://.

    :param options: options with the hosts to which a proxy may be delegated
    :param proxy: the file of the proxy to show; None for the user's usual one
    :param modes: permitted modes of data channel authentication; None for the usual ones
    """
    if address.tls:
        from coalloc.engine.gridftp.tls import TLSSecurity  # a slow import, which plain FTP does not need

        return TLSSecurity(address, options.connect_seconds)
    if address.scheme != "gsiftp":
        return None
    from coalloc.engine.gridftp.gsi import GridSecurity  # a slow import, which plain FTP does not need

    delegates = options.delegates_to(address.host)
    if modes is None:
        return GridSecurity(address, proxy=proxy, delegates=delegates)
    return GridSecurity(address, proxy=proxy, delegates=delegates, modes=modes)


class GridFTPLogin:
    """A logged-in control connection; made by `open`.

    :param pipelined: whether commands are sent without waiting for the previous reply
    """

    def __init__(self, control: ControlConnection, address: Address, options: EngineOptions, pipelined: bool) -> None:
        self.control = control
        self.address = address
        self.options = options
        self.data = DataConnections(control, address, options)
        self.pipelined = pipelined
        self._security: Security | None = None
        self._features: dict[str, str] = {}
        self._odd_reply: PendingReply | None = None

    @classmethod
    async def open(
        cls, address: Address, options: EngineOptions, security: Security | None, reached: Reached, pipelined: bool
    ) -> Self:
        """Connect and log in; if the server loses pipelined commands, try again with one command at a time."""
        while True:
            try:
                return await cls._open(address, options, security, reached, pipelined)
            except LoginAgain:
                continue  # `security` has fewer modes left, so this ends
            except (ConnectionLost, Stalled, ServerSays) as error:
                if not pipelined or error.permanent:
                    raise
                pipelined = False

    @classmethod
    async def _open(
        cls, address: Address, options: EngineOptions, security: Security | None, reached: Reached, pipelined: bool
    ) -> Self:
        address.refuse_unsendable()
        tls = security.from_the_start if security else None
        control = await ControlConnection.connect(
            options.dialer, address.host, address.port, options.connect_seconds, tls, address.password
        )
        reached(control)
        session = cls(control, address, options, pipelined)
        try:
            await session._login(security)
        except BaseException:
            session.close()
            raise
        return session

    async def _login(self, security: Security | None) -> None:
        login: Sequence[str] = [f"USER {self.address.user}", f"PASS {self.address.password}"]
        if not self.pipelined:
            await self.control.greeting()
        if security:
            await security.authenticate(self.control, self.pipelined)
            login = security.login
        replies = await self._ask_all([*login, "TYPE I", "FEAT", *self._questions()], security)
        await self._check_login(security, replies[: len(login)])
        binary, offers, *answers = replies[len(login) :]
        if not binary.positive:
            raise refusal(binary, self.address.shown)
        self._features = features(offers)
        await self._answered(answers)

    def _questions(self) -> Sequence[str]:
        """The commands that are sent right after the login, without waiting for its replies."""
        return ()

    async def _answered(self, answers: Sequence[Reply]) -> None:
        """Process the replies to `_questions`."""

    def _send_ahead(self) -> None:
        """Send further commands that need not wait for the first reply."""

    async def _ask_all(self, commands: Sequence[str], security: Security | None) -> list[Reply]:
        """Return the replies to commands, which are sent together, or one by one if not `pipelined`."""
        pending = [self.control.submit(command) for command in commands] if self.pipelined else []
        self._send_ahead()
        if security:
            await security.admitted(self.control)
        if self.pipelined:
            return [await self.control.reply(each) for each in pending]
        return [await self.control.ask(command) for command in commands]

    async def _check_login(self, security: Security | None, replies: Sequence[Reply]) -> None:
        if security is None:
            self._check_password(*replies)
            return
        await security.check_login(self.control, replies)
        self._security = security
        if security.protects_data and not self.address.tls:
            self.data.forget()  # it was requested before the protection was agreed on

    def _check_password(self, user: Reply, password: Reply) -> None:
        if error := login_refusal(user, password, self.control.where, self.address.user):
            raise error

    async def locate(self, path: str) -> Address:
        """Return the address of a path, if the server receives the path unchanged.

        :raises Unsupported: if not, as Globus servers drop non-ASCII characters on unprotected connections
        """
        address = self.address.at(path)
        if not path.isascii():
            self._odd_reply = self._odd_reply or self.control.submit(f"MLST {ODD}", self.options.connect_seconds)
            reply = await asyncio.shield(self._odd_reply)
            if reply.code == 250 and not reply.lines[1].endswith(ODD):
                raise Unsupported(f"{address.shown}: the server drops non-ASCII characters from names", "try gsiftp://")
        return address

    @property
    def usable(self) -> bool:
        """Return whether the connection is open, as far as is known, and its delegated proxy, if any, is valid."""
        return self.control.usable and not (self._security and self._security.outlived)

    @property
    def protects_data(self) -> bool:
        """Return whether data connections are authenticated or encrypted."""
        return bool(self._security and self._security.protects_data)

    async def secure(self, data: socket.socket) -> DataStream:
        """Protect a data connection as agreed at the login; return the stream of its data."""
        return await self._security.secure(data) if self._security else data

    @cached_property
    def _algorithms(self) -> dict[str, str]:
        """The server's names for the checksums that it offers, by these names without hyphens."""
        offered = (name.partition(":")[0] for name in self._features.get("CKSM", "").upper().split(";"))
        return {name.replace("-", ""): name for name in offered if name}

    def _checksum_of(self, path: str, algorithm: str, start: int, end: int) -> PendingReply | None:
        """Ask for the server's digest of bytes [start, end); return the future reply, or None if not offered."""
        name = self._algorithms.get(algorithm.upper())
        if name is None:
            return None
        seconds = self.options.connect_seconds + (end - start) / CHECKSUM_RATE
        return self.control.submit(f"CKSM {name} {start} {end - start} {path}", seconds)

    def close(self) -> None:
        """Close the session; may be called twice."""
        self.data.forget()
        self.control.close()

    def quit(self) -> None:
        """Close the session with QUIT, which tells the server that the end is intended."""
        self.data.forget()
        self.control.quit()
