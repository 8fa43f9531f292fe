"""Receiving ranges over one data connection that is kept (MODE E): the server makes it, and sends what is asked for.

In stream mode each range costs a new data connection: from a far server round trips, and TCP's slow start, in which it
takes from the others on the same link what it then does not use. Here ranges are asked for ahead and follow each other
without a pause. What is asked for and no longer wanted still comes, and is skipped, as long as it is little.

Who fetches which range is left to `dealing`; what to do where the server cannot connect to us, to `source`.
"""

import asyncio
import socket
from functools import partial
from ipaddress import ip_address

from coalloc.engine.base import Deliver, Span
from coalloc.engine.gather import BUFFER, Gather
from coalloc.engine.gridftp.control import PendingReply
from coalloc.engine.gridftp.protocol import port_command
from coalloc.engine.gridftp.refusals import refusal
from coalloc.engine.gridftp.session import Session
from coalloc.engine.gridftp.stream import lost, said
from coalloc.engine.gridftp.turns import Turns
from coalloc.engine.turn import Turn
from coalloc.engine.way import way_of
from coalloc.errors import NoSuchFile, PermissionRefused, SourceError
from coalloc.model import Way

__all__ = ["BlockChannel", "NoWayBack"]

CONNECT_BACK_SECONDS, CONNECT_BACK_TRIPS = 2.0, 4.0
"""How long a server has to connect to us, this or so many round trips: a firewall that drops it says nothing.

One packet that is lost costs it a second.
"""
SKIPPED, SKIPPED_SECONDS = 1 << 20, 1.0
"""Bytes that may be skipped, this or what comes in so much time: more cost more than a new session."""


class NoWayBack(Exception):
    """The server does not speak MODE E, could not connect to us, or keeps no connection. Internal: do without."""


class BlockChannel:
    """A data connection that the server makes to us and sends one range after the other on.

    Once it has failed it is of no use, and neither is its session, since what the server will answer next is not known.
    """

    def __init__(self, session: Session) -> None:
        self.usable = True
        self._session = session
        self._turns = Turns()
        self._coming: asyncio.Task[None] | None = None
        self._data: socket.socket | None = None
        self._gather: Gather | None = None

    @property
    def way(self) -> Way | None:
        """How data come at the moment; None if not known."""
        return way_of(self._data) if self._data and self.usable else None

    async def fetch(self, span: Span, deliver: Deliver, about: Session | None = None) -> None:
        """Receive `span`, behind what was asked for before.

        :param about: the session, for another file than its own
        :raises NoWayBack: when no byte can come this way
        """
        if self._coming is None:
            self._begin()
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turn = Turn(span, deliver, over)
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
            raise lost(session, await said(reply), span, gap)

    @property
    def kept(self) -> bool:
        """Whether the server has sent a second range on the connection of the first."""
        return self._turns.ended > 1

    def _begin(self) -> None:
        """Open a port for the server to connect to, and tell it, in MODE E."""
        control = self._session.control
        host = control.local
        if translated(host, control.peer):
            raise NoWayBack
        self._session.data.forget()
        listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener.setblocking(False)
        told = [control.submit(command) for command in ("MODE E", port_command(host, listener.getsockname()[1]))]
        self._coming = asyncio.create_task(self._connect(listener, told))
        self._coming.add_done_callback(partial(self._connected, listener))

    async def _connect(self, listener: socket.socket, told: list[PendingReply]) -> None:
        """Wait for the server's connection, and for its word that MODE E is what it sends there."""
        control = self._session.control
        seconds = max(CONNECT_BACK_SECONDS, CONNECT_BACK_TRIPS * (self._session.stat.rtt or 0.0))
        try:
            async with asyncio.timeout(seconds):
                if not all([(await control.reply(each)).positive for each in told]):
                    raise NoWayBack
                self._data = await self._accept(listener)
        except (TimeoutError, OSError):
            raise NoWayBack from None

    async def _accept(self, listener: socket.socket) -> socket.socket:
        """The first connection from where the data may come from."""
        control = self._session.control
        allowed = {control.peer, *map(str, await self._session.data.allowed_hosts())}
        if ip_address(control.peer).is_loopback:
            allowed.add(control.local)  # what a loopback server's connection comes from
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
        self._gather = Gather(self._data, self._session.stat.rtt)
        asyncio.get_running_loop().add_reader(self._data, self._readable, self._data, self._gather)

    def _readable(self, data: socket.socket, gather: Gather) -> None:
        try:
            count = data.recv_into(BUFFER)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        if not count:
            self._give_up()
            return
        try:
            self._turns.feed(BUFFER[:count])
        except SourceError as error:
            self._fail(error)
            return
        first = self._turns.first
        if self._turns.closed or (first and first.refusal):
            self._give_up()
        else:
            gather.received(count, self._turns.left)

    def _replied(self, turn: Turn, shown: str, reply: PendingReply) -> None:
        """The reply to a range is here: a refusal ends the wait for data; success says nothing."""
        if not (reply.cancelled() or reply.exception() or reply.result().positive):
            turn.refusal = refusal(reply.result(), shown)
            if turn is self._turns.first:  # else something is still on its way to us
                self._give_up()

    def _give_up(self) -> None:
        """End all, the first as the server said; it may be that it could not connect to us, or does so only once."""
        first = self._turns.first
        if first and not first.received:
            about_it = isinstance(first.refusal, NoSuchFile | PermissionRefused)
            if not about_it and (self._data is None or self._turns.ended == 1):
                self._fail(NoWayBack())
                return
            first.end(first.refusal)
        self._fail()

    def _skip(self) -> None:
        """Give up where there is more to skip than a new session costs, and nothing else to wait for."""
        most = max(SKIPPED, SKIPPED_SECONDS * self._gather.rate if self._gather else 0.0)
        if not self._turns.wanted and self._turns.left > most:
            self._fail()

    def close(self) -> None:
        """Let go of the connection; may be called twice."""
        self._fail()

    def _fail(self, error: BaseException | None = None) -> None:
        """End all that is asked for: with `error`, or as far as it came."""
        self.usable = False
        if self._coming:
            self._coming.cancel()
        if self._data:
            asyncio.get_running_loop().remove_reader(self._data)
            self._data.close()
            self._data = None
        self._turns.end(error)


def translated(local: str, peer: str) -> bool:
    """Whether the server sees us at another address than we do, which it could connect to.

    >>> translated("10.0.0.7", "192.0.2.1"), translated("10.0.0.7", "8.8.8.8"), translated("8.8.4.4", "8.8.8.8")
    (False, True, False)
    """
    return ip_address(peer).is_global and not ip_address(local).is_global
