"""The control connection: it sends any number of commands, and receives their replies in the same order.

Commands are pipelined: `submit` sends at once, even before the server's greeting, and returns a future for `reply` to
await; `send` takes a callback instead, for very many commands. A reply that no task awaits is read nevertheless, so a
session survives abandoned transfers. `session` decides which commands to send; a `Protection` encrypts them.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from coalloc.engine.gridftp.refusals import refusal
from coalloc.engine.gridftp.replies import LineReader, Reply, ReplyReader, command_shown, format_command
from coalloc.errors import (
    ConnectionLost,
    LimitExceeded,
    NoGreeting,
    NotThatProtocol,
    PermissionRefused,
    ServerBusy,
    SourceError,
    Stalled,
)
from coalloc.safe_text import hide
from coalloc.util import trace
from coalloc.util.dialer import Dialer, RelayedSocket, round_trip

if TYPE_CHECKING:
    import ssl  # a slow import, which plain FTP does not need

__all__ = ["ControlConnection", "PendingReply", "Protection"]

PendingReply = asyncio.Future[Reply]
PreliminaryCallback = Callable[[Reply], None]
Answered = Callable[[Reply | SourceError], None]
"""Function that receives the final reply to a command, or the error if no reply will come."""

LOOK_SECONDS = 1.0
"""Seconds between checks of the oldest pending command, while that command has no time limit."""


MOST_PRELIMINARIES = 10_000
"""Maximum number of preliminary replies to a command without a callback for them: one every 5 s for 14 hours."""


class Protection(Protocol):
    """The protection of the control connection, as agreed with GSI; without I/O."""

    def seal(self, command: bytes) -> bytes:
        """Return the protected form of a command line; both end with CRLF."""
        ...

    def open(self, line: bytes) -> bytes:
        """Return the plain line or lines, each with CRLF, in a received line, which has no CRLF."""
        ...


class _PendingCommand(NamedTuple):
    """A command whose reply has not come yet; the reply has the same protection as the command.

    The server may be silent for `patience` seconds after it has answered all earlier commands; None for no limit.
    `on_preliminary` receives preliminary replies.
    """

    answered: Answered
    protection: Protection | None
    patience: float | None = None
    on_preliminary: PreliminaryCallback | None = None


class ControlConnection(asyncio.Protocol):
    """A connection to one server, made by `connect`. Two tasks must not wait for the same reply.

    :param where: host:port, for messages
    :param seconds: time limit for any one reply
    :param password: the session's password, which is hidden in all messages about what the server says
    :ivar relayed: whether other hosts relay the connection
    """

    def __init__(self, where: str, seconds: float, password: str = "") -> None:
        self.where = where
        self.seconds = seconds
        self.protection: Protection | None = None
        self.relayed = False
        self._password = password
        self._lines = LineReader()
        self._plain_lines = LineReader()
        self._replies = ReplyReader()
        self._loop = asyncio.get_running_loop()
        self._greeting: PendingReply = self._loop.create_future()
        self._pending: deque[_PendingCommand] = deque([_PendingCommand(partial(_settle, self._greeting), None)])
        self._transport: asyncio.Transport | None = None
        self._unsent = bytearray()
        self._lost: SourceError | None = None
        self._time = self._loop.time
        self._preliminaries = 0
        self._stirred = 0.0
        self._look: asyncio.TimerHandle | None = None

    @classmethod
    async def connect(
        cls,
        dialer: Dialer,
        host: str,
        port: int,
        seconds: float,
        tls: "ssl.SSLContext | None" = None,
        password: str = "",
    ) -> "ControlConnection":
        """Connect, without waiting for the greeting.

        :param tls: TLS of a connection that begins with it
        :raises PermissionRefused: when the server's certificate is not trusted
        :raises Unreachable: when nothing answers
        :raises ConnectionLost: when the connection was reset at once
        """
        sock = await dialer.dial(host, port, seconds)
        control = cls(f"{host}:{port}", seconds, password)
        control.relayed = isinstance(sock, RelayedSocket)
        try:
            named = (host, seconds) if tls else (None, None)
            transport, _ = await asyncio.get_running_loop().create_connection(
                lambda: control, sock=sock, ssl=tls, server_hostname=named[0], ssl_handshake_timeout=named[1]
            )
            if transport.get_extra_info("peername") is None:  # the connection was reset as soon as it was made
                raise ConnectionLost(f"{control.where} closed the connection", "try again")
        except BaseException as error:
            control.close()
            if tls and isinstance(error, OSError):
                raise _tls_failure(error, control.where) from None
            raise
        return control

    async def start_tls(self, context: "ssl.SSLContext", host: str) -> None:
        """Encrypt the connection from now on; no command may be pending.

        :raises PermissionRefused: when the server's certificate is not trusted, or when text came in between, which an
            attacker on the network path may have inserted (CVE-2011-0411)
        """
        assert self._transport is not None
        self._refuse_early_text()
        try:
            self._transport = await self._loop.start_tls(
                self._transport, self, context, server_hostname=host, ssl_handshake_timeout=self.seconds
            )
        except OSError as error:
            raise _tls_failure(error, self.where) from None
        self._refuse_early_text()

    def _refuse_early_text(self) -> None:
        """Refuse text that came before TLS, but after the reply to AUTH: it must not count as a reply over TLS."""
        if self._lost or self._preliminaries or self._lines.pending or self._replies.pending:
            raise self._lost or PermissionRefused(
                f"{self.where} sent text before TLS that belongs to no command",
                "use another network, or tell its admin",
            )

    @property
    def tls(self) -> "ssl.SSLObject | None":
        """The connection's TLS, whose session data connections resume; None without TLS."""
        assert self._transport is not None
        return cast("ssl.SSLObject | None", self._transport.get_extra_info("ssl_object"))

    async def greeting(self) -> Reply:
        """Wait for the server's greeting. If it does not come, every pending reply fails, too.

        :raises NotThatProtocol: when something other than an FTP server answers
        :raises ServerBusy: when the server is full
        """
        return await self.reply(self._greeting)

    @property
    def usable(self) -> bool:
        """Return whether commands can still be sent."""
        return self._lost is None

    @property
    def peer(self) -> str:
        """The numeric address of the server."""
        return self._address("peername")

    @property
    def local(self) -> str:
        """The numeric address of this machine on the connection."""
        return self._address("sockname")

    def _address(self, which: str) -> str:
        assert self._transport is not None
        return str(self._transport.get_extra_info(which)[0])

    @property
    def round_trip(self) -> float | None:
        """The round-trip time in seconds, if known."""
        assert self._transport is not None
        return round_trip(self._transport.get_extra_info("socket"))

    def submit(self, command: str, patience: float | None = None) -> PendingReply:
        """Send a command and return a future for its final reply (2xx to 6xx), which need not be awaited.

        :param patience: seconds of silence, counted from the last reply to an earlier command, after which the server
            is given up; None for no limit other than that of `reply`
        """
        pending: PendingReply = self._loop.create_future()
        self.send(command, partial(_settle, pending), patience)
        return pending

    def send(
        self,
        command: str,
        answered: Answered,
        patience: float | None = None,
        on_preliminary: PreliminaryCallback | None = None,
    ) -> None:
        """Send a command; call `answered` with its final reply as soon as it is read, or with the error.

        :param on_preliminary: called with preliminary replies (1xx)
        """
        line = format_command(command)
        if trace.is_on():
            trace.asked(self.where, command_shown(command))
        if self._lost is not None:
            answered(self._lost)
            return
        if not self._pending:
            self._stirred = self._time()
        self._pending.append(_PendingCommand(answered, self.protection, patience, on_preliminary))
        if patience is not None and self._look is None:
            self._look_after(patience)
        if not self._unsent:
            self._loop.call_soon(self._send)
        self._unsent += self.protection.seal(line) if self.protection else line

    def _send(self) -> None:
        """Send the commands submitted in this iteration of the event loop, in one packet if they fit."""
        if self._transport is not None and self._lost is None:
            self._transport.write(bytes(self._unsent))
        self._unsent.clear()

    def reset_timer(self) -> None:
        """Restart the timer for the server's silence, because it sent something on another connection."""
        self._stirred = self._time()

    def _look_after(self, seconds: float) -> None:
        self._look = self._loop.call_later(seconds, self._look_now)

    def _look_now(self) -> None:
        """Give up a server that has been silent for longer than the pending command may take."""
        self._look = None
        if not self._pending:
            return
        patience = self._pending[0].patience
        left = LOOK_SECONDS if patience is None else self._stirred + patience - self._time()
        if left > 0.0:
            self._look_after(left)
        elif patience is not None:
            self._end(self._silence(patience))

    async def reply(self, pending: PendingReply, seconds: float | None = None) -> Reply:
        """Wait for a reply; `seconds` replaces the usual time limit.

        :raises ConnectionLost: when the connection ended first
        :raises Stalled: when the server is silent; the connection is closed
        """
        try:
            return await self._wait(pending, seconds or self.seconds)
        except TimeoutError:
            error = self._silence(seconds or self.seconds)
            self._end(error)
            raise error from None

    def _silence(self, seconds: float) -> SourceError:
        if self._greeting.done():
            return Stalled(f"{self.where} did not answer for {seconds:g} s", "try again later")
        return NoGreeting(
            f"{self.where} accepts the connection but sends nothing",
            "check that this is the port of a GridFTP server, and that the server is not overloaded",
        )

    async def ask(self, command: str) -> Reply:
        """Send a command and wait for its final reply."""
        return await self.reply(self.submit(command))

    @staticmethod
    async def _wait(pending: PendingReply, seconds: float) -> Reply:
        async with asyncio.timeout(seconds):
            return await asyncio.shield(pending)

    def quit(self) -> None:
        """Send QUIT and close the connection without waiting for an answer."""
        if self._transport is not None and self._lost is None:
            goodbye = format_command("QUIT")
            self._unsent += self.protection.seal(goodbye) if self.protection else goodbye
            self._send()
        self.close()

    def close(self) -> None:
        """Close the connection; pending replies fail. May be called twice."""
        self._end(ConnectionLost(f"the connection to {self.where} was closed", "connect again"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for line in self._lines.feed(data):
                protection = self._pending[0].protection if self._pending else self.protection
                if protection is None:
                    self._line_received(line)
                    continue
                for plain in self._plain_lines.feed(protection.open(line)):
                    self._line_received(plain)
        except SourceError as error:
            where = f"{self.where} is not a GridFTP server" if isinstance(error, NotThatProtocol) else self.where
            said = hide(error.message, secrets=(self._password,))
            self._end(type(error)(f"{where}: {said}", error.remedy))

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f": {exc}" if exc else ""
        self._end(ConnectionLost(f"{self.where} closed the connection{reason}", "try again"))

    def _line_received(self, line: bytes) -> None:
        reply = self._replies.feed(line)
        if reply is None:
            return
        reply = reply._replace(password=self._password)
        if trace.is_on():
            trace.answered(self.where, f"{reply.code} {reply.text}")
        self.reset_timer()  # only by a whole reply, else a server could prolong one reply for ever
        if reply.preliminary:
            self._preliminary(reply)
            return
        self._preliminaries = 0
        if not self._greeting.done():
            self._greeted(reply)
        if not self._pending:  # an unsolicited reply such as "421 Idle timeout"
            self._end(ConnectionLost(f"{self.where} ended the session: {reply.code} {reply.text}", "try again"))
            return
        self._pending.popleft().answered(reply)

    def _preliminary(self, reply: Reply) -> None:
        if self._pending and (on_preliminary := self._pending[0].on_preliminary):
            on_preliminary(reply)
            return
        self._preliminaries += 1
        if self._preliminaries > MOST_PRELIMINARIES:
            raise LimitExceeded(
                f"it sent more than {MOST_PRELIMINARIES} preliminary replies to one command",
                "use another replica, or tell the server's admin",
            )

    def _greeted(self, reply: Reply) -> None:
        if reply.code == 421:
            self._end(ServerBusy(f"{self.where} is busy: {reply.text}"))
        elif reply.code != 220:
            self._end(refusal(reply, self.where))

    def _end(self, error: SourceError) -> None:
        if self._look:
            self._look.cancel()
            self._look = None
        if self._lost is None:
            self._lost = error
            while self._pending:
                self._pending.popleft().answered(error)
        if self._transport is not None:
            self._transport.abort()


def _tls_failure(error: OSError, where: str) -> SourceError:
    from coalloc.engine.gridftp.tls_failures import tls_failure

    return tls_failure(error, where)


def _settle(pending: PendingReply, answer: Reply | SourceError) -> None:
    if pending.done():
        return
    if isinstance(answer, Reply):
        pending.set_result(answer)
    else:
        pending.set_exception(answer)
        pending.exception()  # mark as retrieved: most replies of a lost connection are never awaited
