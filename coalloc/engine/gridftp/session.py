"""A logged-in session with one server about one file: login, size, what to ask for a range.

Commands go out in one flight where the server allows, ahead of its greeting, since at distance each round trip costs
more than all else. How data connections are made is left to `data`, how data are received to `stream` and `modee`;
when sessions are made and dropped, to `source`.
"""

import socket
from collections.abc import Callable, Sequence
from typing import Protocol

from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.address import Address
from coalloc.engine.gridftp.control import ControlConnection, PendingReply
from coalloc.engine.gridftp.data import DataConnections
from coalloc.engine.gridftp.protocol import Reply, facts, features
from coalloc.engine.gridftp.refusals import refusal
from coalloc.errors import ConnectionLost, NoSuchFile, ServerSays, Stalled, Unsupported
from coalloc.model import Stat

__all__ = ["Security", "Session"]

CHECKSUM_RATE = 20e6  # bytes per second: what the slowest server is granted before it counts as silent

Reached = Callable[[ControlConnection], None]
"""Is told of the control connection as soon as it stands."""


class Security(Protocol):
    """How a session is authenticated in place of USER and PASS (GSI)."""

    @property
    def protects_data(self) -> bool:
        """Whether `secure` has something to do."""
        ...

    async def authenticate(self, control: ControlConnection, pipelined: bool) -> None:
        """Tell the server who we are, and set `control.protection`."""
        ...

    async def admitted(self, control: ControlConnection) -> None:
        """Wait for the server's last word on that; what comes after it may be on its way already."""
        ...

    @property
    def login(self) -> Sequence[str]:
        """The commands that log in after that."""
        ...

    async def check_login(self, control: ControlConnection, replies: Sequence[Reply]) -> None:
        """Judge the replies to `login`; agree on how data connections are protected."""
        ...

    async def secure(self, data: socket.socket) -> None:
        """Do what was agreed on a data connection, before its first byte of data."""
        ...


class Session:
    """A control connection that is logged in; made by `open`.

    :param pipelined: whether commands are sent without waiting for the reply to the one before
    """

    def __init__(self, control: ControlConnection, address: Address, options: EngineOptions, pipelined: bool) -> None:
        self.control = control
        self.address = address
        self.data = DataConnections(control, address, options)
        self._options = options
        self.pipelined = pipelined
        self._security: Security | None = None
        self._features: dict[str, str] = {}
        self.stat = Stat(0)

    @classmethod
    async def open(
        cls, address: Address, options: EngineOptions, security: Security | None, reached: Reached, pipelined: bool
    ) -> "Session":
        """Connect, log in and ask about the file; once more command by command where a server loses commands."""
        try:
            return await cls._open(address, options, security, reached, pipelined)
        except (ConnectionLost, Stalled, ServerSays):
            if not pipelined:
                raise
            return await cls._open(address, options, security, reached, pipelined=False)

    @classmethod
    async def _open(
        cls, address: Address, options: EngineOptions, security: Security | None, reached: Reached, pipelined: bool
    ) -> "Session":
        address.refuse_unsendable()
        control = await ControlConnection.connect(options.dialer, address.host, address.port, options.connect_seconds)
        reached(control)
        session = cls(control, address, options, pipelined)
        try:
            await session._login(security)
        except BaseException:
            session.close()
            raise
        return session

    async def _login(self, security: Security | None) -> None:
        path = self.address.path
        login: Sequence[str] = [f"USER {self.address.user}", f"PASS {self.address.password}"]
        if not self.pipelined:
            await self.control.greeting()
        if security:
            await security.authenticate(self.control, self.pipelined)
            login = security.login
        ask = ["TYPE I", "FEAT", f"MLST {path}", f"SIZE {path}", f"MDTM {path}"]
        replies = await self._ask_all([*login, *ask], security)
        await self._check_login(security, replies[: len(login)])
        binary, offers, listed, size, modified = replies[-5:]
        if not binary.positive:
            raise refusal(binary, self.address.shown)
        self._features = features(offers)
        ranged = bool({"ERET", "REST"} & self._features.keys()) or (await self.control.ask("REST 1")).code == 350
        self.stat = self._understand(listed, size, modified, ranged)

    async def _ask_all(self, commands: Sequence[str], security: Security | None) -> list[Reply]:
        """The replies to commands that go out in one flight, or one by one."""
        pending = [self.control.submit(command) for command in commands] if self.pipelined else []
        self.ask_ahead()
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
        if security.protects_data:
            self.data.forget()  # it was asked for before that was agreed

    def _check_password(self, user: Reply, password: Reply) -> None:
        # A server that wants no password answers the pipelined PASS with 202 or an error.
        refused = user if not user.positive else password
        if user.code != 230 and not (user.positive and password.code in (202, 230)):
            raise refusal(refused, f"login as {self.address.user} at {self.control.where}")

    def _understand(self, listed: Reply, size: Reply, modified: Reply, ranged: bool) -> Stat:
        known = facts(listed)
        if not self.address.path.isascii():
            self._check_name(listed)
        if known.get("type", "").lower() in ("dir", "cdir", "pdir"):
            raise NoSuchFile(f"{self.address.shown} is a directory", "name a file in it")
        said = known.get("size") or (size.lines[0].strip() if size.code == 213 else "")
        if not said.isdecimal():
            raise refusal(size, self.address.shown)
        validator = known.get("modify") or (modified.lines[0].strip() if modified.code == 213 else None)
        return Stat(int(said), validator, ranged=ranged, rtt=self.control.round_trip)

    def _check_name(self, listed: Reply) -> None:
        """Refuse a server that heard another name: Globus servers drop all but ASCII on unprotected connections."""
        shown, remedy = (
            self.address.shown,
            "GridFTP servers may drop all but ASCII from names over ftp://: try gsiftp://",
        )
        if listed.code == 550:
            raise NoSuchFile(f"{shown}: the server says 550 {listed.text}", f"check the path; {remedy}")
        if listed.code == 250 and not listed.lines[1].endswith(self.address.path):
            raise Unsupported(f"{shown}: the server understood another name, {listed.lines[0]!r}", remedy)

    @property
    def sends_blocks(self) -> bool:
        """Whether the server offers MODE E and takes commands ahead, and data connections need no handshake."""
        offered = {"ERET", "PARALLEL"} <= self._features.keys()
        return offered and self.pipelined and not (self._security and self._security.protects_data)

    @property
    def usable(self) -> bool:
        """Whether the connection still stands, as far as is known."""
        return self.control.usable

    def ask_ahead(self) -> None:
        """Prepare the next data connection already, behind the commands that are under way."""
        if self.pipelined:
            self.data.prepare()

    async def retrieve(self, start: int, end: int) -> PendingReply:
        """Ask for bytes [start, end) on the data connection that is ready; the future is the final reply.

        A server without ERET goes on beyond `end` until the data connection is closed.
        """
        path = self.address.path
        if "ERET" in self._features:
            return self.control.submit(f"ERET P {start} {end - start} {path}")
        restart = self.control.submit(f"REST {start}")
        transfer = self.control.submit(f"RETR {path}")
        reply = await self.control.reply(restart)
        if start and reply.code != 350:
            raise Unsupported(f"{self.address.shown}: the server cannot send a part of a file", "use another replica")
        return transfer

    async def secure(self, data: socket.socket) -> None:
        """Protect a data connection as was agreed when logging in."""
        if self._security:
            await self._security.secure(data)

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        """The server's digest of bytes [start, end) in lower-case hex; None when it does not offer it."""
        offered = {name.partition(":")[0] for name in self._features.get("CKSM", "").upper().split(";")}
        name = next((name for name in offered if name.replace("-", "") == algorithm.upper()), None)
        if name is None:
            return None
        pending = self.control.submit(f"CKSM {name} {start} {end - start} {self.address.path}")
        reply = await self.control.reply(pending, self._options.connect_seconds + (end - start) / CHECKSUM_RATE)
        return reply.lines[0].strip().lower() if reply.code == 213 else None

    def close(self) -> None:
        """End the session; may be called twice."""
        self.data.forget()
        self.control.close()
