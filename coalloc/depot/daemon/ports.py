"""Ports that a depot opens for one client, so that one other host can connect to one destination over the depot.

GridFTP servers that copy from one to the other connect to each other, and do not know the protocol of sessions.
"""

import asyncio
import errno
import logging
import random
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_address

from aiohappyeyeballs import AddrInfoType

from coalloc.depot.daemon.connecting import accept, connect, keep_alive
from coalloc.depot.daemon.permissions import SessionPermission
from coalloc.depot.daemon.pump import Account, ConnectionPair, Ending, reset_on_close
from coalloc.depot.daemon.shared import Depot
from coalloc.depot.protocol.failures import DepotFailure
from coalloc.depot.protocol.session_header import Answer, SessionRequest
from coalloc.util.addresses import carried

__all__ = ["PortSession", "listen"]

log = logging.getLogger(__name__)

BACKLOG = 64
SWEEP = 5.0
"""Maximum seconds between checks for an idle port."""


def listen(client: socket.socket, request: SessionRequest, ports: tuple[int, int] | None) -> socket.socket:
    """Return a socket that listens on the address at which the client has reached the depot.

    :param ports: first and last port to choose from; None for any free one
    :raises DepotFailure: if no port is free, or the peer has an address of the other family
    """
    assert request.port is not None, "the client asks for a port"
    address = carried(client.getsockname()[0])[0]
    if ip_address(address).version != ip_address(carried(request.port.peer)[0]).version:
        raise DepotFailure("unsupported", f"{request.port.peer} cannot connect to {address}: the IP versions differ")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    choice = range(ports[0], ports[1] + 1) if ports else (0,)
    for port in random.sample(choice, len(choice)):  # so that a late connection seldom meets another client's port
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise DepotFailure("busy", f"this depot cannot open a port: {error.strerror}") from None
        else:
            return listener
    raise DepotFailure("busy", "all ports of this depot are in use")


class PortSession:
    """A session with a port, which is open until the client ends the session.

    :param peer: numeric address of the client
    :param addresses: addresses of the destination
    """

    def __init__(
        self,
        depot: Depot,
        client: socket.socket,
        peer: str,
        listener: socket.socket,
        request: SessionRequest,
        granted: SessionPermission,
        addresses: Sequence[AddrInfoType],
    ) -> None:
        assert request.port is not None, "the client asks for a port"
        self._depot = depot
        self._client = client
        self._address = peer
        self._listener = listener
        self._request = request
        self._granted = granted
        self._addresses = addresses
        self._peer = ip_address(carried(request.port.peer)[0])
        self._most = request.port.connections
        self._port = listener.getsockname()[1]
        self._connecting: set[asyncio.Task[None]] = set()
        self._pairs: set[ConnectionPair] = set()
        self._strangers = 0
        self._reported = False
        self._loop = asyncio.get_running_loop()
        self._active = self._loop.time()
        """Time at which the last connection ended."""
        self._unused = asyncio.Event()
        """Set while there is no connection."""
        self._unused.set()

    def start(self) -> None:
        """Begin to relay."""
        task = self._loop.create_task(self._run())
        self._depot.ports.add(task)
        task.add_done_callback(self._depot.ports.discard)

    async def _run(self) -> None:
        began, ending = time.time(), "drained"
        accepting = self._loop.create_task(self._accept())
        ends = {
            self._loop.create_task(self._client_ends()): "closed",
            self._loop.create_task(self._becomes_idle()): "idle",
            self._loop.create_task(self._drains(accepting)): "drained",
        }
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            ending = next(ending for task, ending in ends.items() if task.done())
        finally:
            await self._end([*ends, accepting])
            self._log(end=ending, strangers=self._strangers, seconds=round(time.time() - began, 3))

    async def _client_ends(self) -> None:
        """Return once the client has closed the session, sent anything, or is gone."""
        with suppress(OSError):
            await self._loop.sock_recv(self._client, 1)

    async def _becomes_idle(self) -> None:
        seconds = self._depot.settings.idle_seconds
        while True:
            await self._unused.wait()
            if self._loop.time() - self._active > seconds:
                return
            await asyncio.sleep(min(SWEEP, seconds / 4))

    async def _drains(self, accepting: "asyncio.Task[None]") -> None:
        """Accept no more once the depot shuts down; return when no connection is left."""
        await self._depot.closing.wait()
        accepting.cancel()
        await asyncio.wait([accepting])
        self._listener.close()
        await self._unused.wait()

    async def _end(self, tasks: "Sequence[asyncio.Task[None]]") -> None:
        """Close the port; connections that are not over are reset."""
        tasks = [*tasks, *self._connecting]
        for task in tasks:
            task.cancel()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(error, Exception):
                log.error("a port failed", exc_info=error)
        self._listener.close()
        for pair in list(self._pairs):
            self._depot.pump.reset(pair, "drained" if self._depot.closing.is_set() else "reset")
        self._client.close()
        self._depot.limits.give_back(self._granted, 0)

    async def _accept(self) -> None:
        while True:
            sock, address = await accept(self._listener)
            reset_on_close(sock)
            if ip_address(carried(address)[0]) != self._peer:
                self._strangers += 1
                self._refuse(sock, "stranger")
            elif self._full:
                self._refuse(sock, "busy")
            else:
                task = self._loop.create_task(self._relay(sock))
                self._connecting.add(task)
                self._unused.clear()
                task.add_done_callback(partial(self._forget, sock))
            await asyncio.sleep(0)  # a flood of connections must not stop other sessions

    def _forget(self, sock: socket.socket, task: "asyncio.Task[None]") -> None:
        self._connecting.discard(task)
        if task.cancelled() or task.exception():
            sock.close()
        if not task.cancelled() and (error := task.exception()):
            log.error("a connection at a port failed", exc_info=error)
        self._note_use()

    def _note_use(self) -> None:
        if not (self._pairs or self._connecting):
            self._active = self._loop.time()
            self._unused.set()

    @property
    def _full(self) -> bool:
        # a task that has just ended is still in the set, and its connection among the pairs already
        own = len(self._pairs) + sum(not task.done() for task in self._connecting)
        return own >= self._most or self._depot.sessions >= self._depot.settings.most_sessions

    def _refuse(self, sock: socket.socket, reason: str) -> None:
        self._depot.metrics.refused[reason] += 1
        sock.close()

    async def _relay(self, sock: socket.socket) -> None:
        """Connect to the destination, and carry the bytes of a connection of the peer."""
        try:
            keep_alive(sock)
            account = self._take(time.time())
            try:
                server = await connect(
                    self._depot.settings, self._request.destination, self._addresses, self._request.congestion
                )
            except BaseException:
                self._depot.limits.give_back(self._granted, 0)
                raise
        except DepotFailure as failure:
            self._refuse(sock, failure.code)
            self._log(refused=failure.code, reason=failure.message)
            self._tell(failure)
        except OSError:  # the peer is gone
            self._refuse(sock, "client")
        else:
            self._carry(sock, server, account)

    def _take(self, now: float) -> Account:
        """Count a connection as a session.

        :raises DepotFailure: if the ticket has expired, or a limit is reached
        """
        if self._granted.ticket and now >= self._granted.ticket.expires:
            raise DepotFailure("ticket", "the ticket has expired")
        return self._depot.limits.take(self._granted, None, now)[0]

    def _carry(self, sock: socket.socket, server: socket.socket, account: Account) -> None:
        began = time.time()

        def end(pair: ConnectionPair, ending: Ending) -> None:
            self._pairs.discard(pair)
            self._note_use()
            self._depot.limits.give_back(self._granted, 0)
            self._depot.metrics.ended[ending] += 1
            self._depot.metrics.moved["up"] += pair.up.moved
            self._depot.metrics.moved["down"] += pair.down.moved
            seconds = round(time.time() - began, 3)
            self._log(end=ending, up=pair.up.moved, down=pair.down.moved, seconds=seconds)

        self._pairs.add(self._depot.pump.add(sock, server, account, end))

    def _tell(self, failure: DepotFailure) -> None:
        """Tell the client why a connection was not relayed; only once, as the client need not read it."""
        if not self._reported:
            self._reported = True
            with suppress(OSError):  # the client is gone
                self._client.send(Answer(failure).encode())

    def _log(self, **fields: object) -> None:
        self._depot.audit.write(
            session=self._request.session,
            user=self._granted.user,
            client=self._address,
            protocol="LogisticalSession",
            destination=str(self._request.destination),
            port=self._port,
            peer=str(self._peer),
            **fields,
        )
