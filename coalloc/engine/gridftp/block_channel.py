"""Reception of ranges over one persistent data connection (MODE E), which the server opens.

In stream mode, each range needs a new data connection. From a distant server, this costs round trips and TCP's slow
start, which takes capacity from other connections on the link without using all of it. In MODE E, ranges are requested
ahead and follow each other without a pause. Requested bytes that are no longer wanted are skipped, if there are few;
otherwise the connection is closed. `sharing` decides which session fetches which range; `source` handles servers that
cannot connect to this machine.
"""

import asyncio
import socket
from functools import partial
from ipaddress import ip_address

from coalloc.engine.batched_reads import BUFFERS, ReadBuffer
from coalloc.engine.gridftp.control import PendingReply
from coalloc.engine.gridftp.refusals import refusal
from coalloc.engine.gridftp.replies import port_command
from coalloc.engine.gridftp.request_queue import RangeRequests
from coalloc.engine.gridftp.session import Session
from coalloc.engine.gridftp.stream import final_reply, lost
from coalloc.engine.range_request import RangeRequest
from coalloc.engine.span import Deliver, Span
from coalloc.errors import NoSuchFile, PermissionRefused, SourceError
from coalloc.model.routes import PathState
from coalloc.util.tcp_info import path_state_of

__all__ = ["BlockChannel", "BlockModeUnavailable"]

CONNECT_BACK_SECONDS, CONNECT_BACK_TRIPS = 2.0, 4.0
"""Time limit for the server to connect, in seconds or round trips, whichever is longer. A firewall may drop the
connection without an answer; one lost packet delays the server by a second.
"""
SKIPPED, SKIPPED_SECONDS = 1 << 20, 1.0
"""Maximum to skip, in bytes or in seconds' worth of data, whichever is more; beyond it, a new session is cheaper."""


class BlockModeUnavailable(Exception):
    """A server without MODE E, or one that cannot connect to this machine or keep a connection. Use stream mode."""


class BlockChannel:
    """A data connection that the server opens, and on which it sends one range after another.

    After a failure, neither the channel nor its session can be used, as it is unknown to which command the next reply
    belongs.
    """

    def __init__(self, session: Session) -> None:
        self.usable = True
        self._session = session
        self._turns = RangeRequests()
        self._coming: asyncio.Task[None] | None = None
        self._data: socket.socket | None = None
        self._gather: ReadBuffer | None = None

    @property
    def path_state(self) -> PathState | None:
        """The state of the network path of the data; None if unknown."""
        return path_state_of(self._data) if self._data and self.usable else None

    async def fetch(self, span: Span, deliver: Deliver, about: Session | None = None) -> None:
        """Receive `span`, after the ranges requested before.

        :param about: the session for the file; None for the channel's own session
        :raises BlockModeUnavailable: when this connection cannot be made, or carries no second range
        """
        if self._coming is None:
            self._begin()
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turn = RangeRequest(span, deliver, over)
        self._turns.ask(turn)
        session = about or self._session
        reply = await session.retrieve(span.start, span.end)
        reply.add_done_callback(partial(self._replied, turn, session.address.shown))
        try:
            await over
        finally:
            turn.end()
            self._skip()
        if not turn.complete:
            gap = turn.received.gaps(turn.start, span.end)[0][0]
            raise lost(session, await final_reply(reply), span, gap)

    @property
    def reused(self) -> bool:
        """Return whether the server has sent a second range on the same connection."""
        return self._turns.ended > 1

    def _begin(self) -> None:
        """Open a port for the server to connect to, and send it the address, in MODE E."""
        control = self._session.control
        host = control.local
        if control.relayed or translated(host, control.peer):  # the server's connection would not come over depots
            raise BlockModeUnavailable
        self._session.data.forget()
        listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener.setblocking(False)
        requests = [control.submit(command) for command in ("MODE E", port_command(host, listener.getsockname()[1]))]
        self._coming = asyncio.create_task(self._connect(listener, requests))
        self._coming.add_done_callback(partial(self._connected, listener))

    async def _connect(self, listener: socket.socket, requests: list[PendingReply]) -> None:
        """Wait for the server's connection and its acceptance of MODE E."""
        control = self._session.control
        seconds = max(CONNECT_BACK_SECONDS, CONNECT_BACK_TRIPS * (self._session.stat.rtt or 0.0))
        try:
            async with asyncio.timeout(seconds):
                if not all([(await control.reply(each)).positive for each in requests]):
                    raise BlockModeUnavailable
                self._data = await self._accept(listener)
        except (TimeoutError, OSError):
            raise BlockModeUnavailable from None

    async def _accept(self, listener: socket.socket) -> socket.socket:
        """Accept the first connection from an address that may send data."""
        control = self._session.control
        allowed = {control.peer, *map(str, await self._session.data.allowed_hosts())}
        if ip_address(control.peer).is_loopback:
            allowed.add(control.local)  # connections of a server on loopback come from this address
        while True:
            data, peer = await asyncio.get_running_loop().sock_accept(listener)
            if peer[0] in allowed:
                return data
            data.close()

    def _connected(self, listener: socket.socket, coming: asyncio.Task[None]) -> None:
        listener.close()
        if coming.cancelled():
            return
        error = coming.exception()
        if error or self._data is None or not self.usable:
            self._fail(error)
            return
        self._gather = ReadBuffer(self._data, self._session.stat.rtt)
        asyncio.get_running_loop().add_reader(self._data, self._readable, self._data, self._gather)

    def _readable(self, data: socket.socket, gather: ReadBuffer) -> None:
        buffer = BUFFERS.receiving
        try:
            count = data.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        if not count:
            self._give_up()
            return
        try:
            self._turns.feed(buffer[:count])
        except SourceError as error:
            self._fail(error)
            return
        first = self._turns.first
        if self._turns.closed or (first and first.refusal):
            self._give_up()
        else:
            gather.received(count, self._turns.left)

    def _replied(self, turn: RangeRequest, shown: str, reply: PendingReply) -> None:
        """Process the reply to a range: a refusal ends the wait for data; success does not, as data may still come."""
        if not (reply.cancelled() or reply.exception() or reply.result().positive):
            turn.refusal = refusal(reply.result(), shown)
            if turn is self._turns.first:  # otherwise data of earlier ranges are still to come
                self._give_up()

    def _give_up(self) -> None:
        """End all ranges: the first with its refusal; or all with BlockModeUnavailable, if MODE E seems unsupported."""
        first = self._turns.first
        if first and not first.received:
            about_it = isinstance(first.refusal, NoSuchFile | PermissionRefused)
            if not about_it and (self._data is None or self._turns.ended == 1):
                self._fail(BlockModeUnavailable())
                return
            first.end(first.refusal)
        self._fail()

    def _skip(self) -> None:
        """Fail if no range is wanted, and skipping the remaining bytes would cost more than a new session."""
        most = max(SKIPPED, SKIPPED_SECONDS * self._gather.rate if self._gather else 0.0)
        if not self._turns.wanted and self._turns.left > most:
            self._fail()

    def close(self) -> None:
        """Close the connection; may be called twice."""
        self._fail()

    def _fail(self, error: BaseException | None = None) -> None:
        """End all pending ranges: with `error`, or with the bytes that have come."""
        self.usable = False
        if self._coming:
            self._coming.cancel()
        if self._data:
            asyncio.get_running_loop().remove_reader(self._data)
            self._data.close()
            self._data = None
        self._turns.end(error)


def translated(local: str, peer: str) -> bool:
    """Return whether this machine's address is private and the server's is public, so that the server cannot connect.

    >>> translated("10.0.0.7", "192.0.2.1"), translated("10.0.0.7", "8.8.8.8"), translated("8.8.4.4", "8.8.8.8")
    (False, True, False)
    """
    return ip_address(peer).is_global and not ip_address(local).is_global
