"""Receiving a range over several data connections in MODE E (`--streams N`): the server connects to us.

Blocks come out of order and say their place; the bytes counted decide when a range is complete, the servers' ends
of data only when nothing more can come. Connections are kept for the next range. What to do where the server cannot
connect to us is left to `source`, by `NoWayBack`.
"""

import asyncio
import socket
from ipaddress import ip_address

from coalloc.engine.base import Deliver, Span
from coalloc.engine.gridftp.control import PendingReply
from coalloc.engine.gridftp.protocol import Block, BlockReader, EndOfData, EndOfFile
from coalloc.engine.gridftp.refusals import refusal
from coalloc.engine.gridftp.session import Session
from coalloc.engine.gridftp.stream import BUFFER, lost, said
from coalloc.errors import NoSuchFile, PermissionRefused, SourceError
from coalloc.intervals import Intervals

__all__ = ["BlockChannel", "NoWayBack"]

CONNECT_BACK_SECONDS = 4.0  # a firewall that drops the server's connection says nothing


class NoWayBack(Exception):
    """The server does not speak MODE E, or could not connect to us. Internal: a source then does without."""


class BlockChannel:
    """The data connections that one server makes to us, for one transfer at a time.

    :param streams: how many connections to ask for
    """

    def __init__(self, session: Session, streams: int) -> None:
        self._session = session
        self._streams = streams
        self._loop = asyncio.get_running_loop()
        self._agreed = False
        self._listener: socket.socket | None = None
        self._allowed: set[str] = set()
        self._connections: dict[socket.socket, BlockReader] = {}
        self._transfer: _Transfer | None = None

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        """Receive `span`.

        :raises NoWayBack: when no byte can come this way
        """
        if not self._agreed:
            await self._agree()
        await self._rest()
        if span.start >= span.end:  # lowered meanwhile
            return
        whole = span.end - span.start
        transfer = self._transfer = _Transfer(span, deliver)
        if not self._connections:
            self._session.control.submit(self._listen()).add_done_callback(transfer.port_refused)
        asked = await self._session.retrieve(span.start, span.end)
        asked.add_done_callback(transfer.refused)
        patience = self._loop.call_later(CONNECT_BACK_SECONDS, self._lose_patience)
        try:
            await transfer.over
        finally:
            patience.cancel()
            if transfer.received.total < whole:
                self._hang_up()
        if not transfer.complete:
            raise await self._failure(asked, transfer)

    async def _agree(self) -> None:
        """Agree on MODE E."""
        if not self._session.sends_blocks:
            raise NoWayBack
        control, n = self._session.control, self._streams
        asked = [control.submit(command) for command in (f"OPTS RETR Parallelism={n},{n},{n};", "MODE E")]
        _, mode = [await control.reply(each) for each in asked]
        if not mode.positive:
            raise NoWayBack
        self._allowed = {control.peer, *map(str, await self._session.data.allowed_hosts())}
        if ip_address(control.peer).is_loopback:
            self._allowed.add(control.local)  # what a loopback server's connection comes from
        self._agreed = True

    def _listen(self) -> str:
        """Open a port for the server to connect to; the command that says so.

        It is a new one after a transfer that was given up: connections of that one may still be on their way, and
        their blocks count from another start.
        """
        self._hang_up()
        host = self._session.control.local
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener, self._accept)
        port = self._listener.getsockname()[1]
        if ":" in host:
            return f"EPRT |2|{host}|{port}|"
        return f"PORT {host.replace('.', ',')},{port >> 8},{port & 255}"

    async def _rest(self) -> None:
        """Read the ends of data of the transfer before, so that they are not taken for the next one's."""
        if self._transfer is None or not self._connections:
            return
        await asyncio.wait({self._transfer.quiet}, timeout=self._session.control.seconds)
        if not self._transfer.quiet.done():
            self._hang_up()

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            data, peer = self._listener.accept()
        except OSError:  # it went away again
            return
        if peer[0] not in self._allowed or self._transfer is None:
            data.close()
            return
        data.setblocking(False)
        self._connections[data] = BlockReader()
        self._loop.add_reader(data, self._readable, data)

    def _readable(self, data: socket.socket) -> None:
        assert self._transfer is not None
        try:
            count = data.recv_into(BUFFER)
            events = self._connections[data].feed(BUFFER[:count])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count, events = 0, []
        except SourceError as error:
            self._transfer.end(error)
            return
        if not count:
            self._drop(data)
        for event in events:
            self._transfer.take(event)
            if isinstance(event, EndOfData) and event.closes:
                self._drop(data)
        if not self._connections:
            self._transfer.end()

    def _lose_patience(self) -> None:
        if self._transfer and not self._connections:
            self._transfer.end(NoWayBack())

    async def _failure(self, asked: PendingReply, transfer: "_Transfer") -> Exception:
        reply = await said(asked)
        if reply and not reply.positive and not transfer.received:
            error = refusal(reply, self._session.address.shown)
            return error if isinstance(error, NoSuchFile | PermissionRefused) else NoWayBack()
        gap = transfer.received.gaps(transfer.span.start, transfer.span.end)[0][0]
        return lost(self._session, reply, transfer.span, gap)

    def _drop(self, data: socket.socket) -> None:
        if self._connections.pop(data, None) is not None:
            self._loop.remove_reader(data)
            data.close()

    def _hang_up(self) -> None:
        for data in list(self._connections):
            self._drop(data)
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def close(self) -> None:
        """Let go of the port and all connections; may be called twice."""
        self._hang_up()


class _Transfer:
    """One range on its way: which bytes are here, and which ends of data were seen."""

    def __init__(self, span: Span, deliver: Deliver) -> None:
        loop = asyncio.get_running_loop()
        self.span = span
        self.received = Intervals()
        self.over: asyncio.Future[None] = loop.create_future()
        self.quiet: asyncio.Future[None] = loop.create_future()
        self._start = span.start
        self._deliver = deliver
        self._ends = 0
        self._expected: int | None = None

    @property
    def complete(self) -> bool:
        return self.received.covers(self._start, self.span.end)

    def take(self, event: Block | EndOfData | EndOfFile) -> None:
        match event:
            case Block(offset, view):
                self._take_block(self._start + offset, view)
            case EndOfFile(connections):
                self._expected = connections
            case EndOfData():
                self._ends += 1
        if self._expected is not None and self._ends >= self._expected:
            self.end()
            if not self.quiet.done():
                self.quiet.set_result(None)

    def _take_block(self, start: int, view: memoryview) -> None:
        if self.over.done():
            return
        end = min(start + len(view), self.span.end)
        if start < end:
            self.received.add(start, end)
            try:
                self._deliver(start, view[: end - start])
            except Exception as error:
                self.end(error)
        if self.complete:
            self.end()

    def refused(self, asked: PendingReply) -> None:
        """The reply to the transfer is here: a refusal ends the wait for data; success says nothing."""
        if not (asked.cancelled() or asked.exception() or asked.result().positive):
            self.end()

    def port_refused(self, asked: PendingReply) -> None:
        """The reply to our port is here."""
        if not (asked.cancelled() or asked.exception() or asked.result().positive):
            self.end(NoWayBack())

    def end(self, error: Exception | None = None) -> None:
        if self.over.done():
            return
        if error:
            self.over.set_exception(error)
        else:
            self.over.set_result(None)
