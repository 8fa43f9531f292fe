"""The next data connection to a server, in passive mode: asked for and made before it is needed.

At distance a data connection costs two round trips, one for its address and one to connect; made ahead it costs none.
What goes over it is left to `stream`.
"""

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

from coalloc.addresses import AddressClass, class_of, server
from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.address import Address
from coalloc.engine.gridftp.control import ControlConnection, PendingReply
from coalloc.engine.gridftp.protocol import Reply, extended_passive_port, passive_address
from coalloc.engine.gridftp.refusals import refusal
from coalloc.errors import PermissionRefused, Unreachable

__all__ = ["DataConnections"]


class DataConnections:
    """Makes the data connections of one session; one at a time is ready or on its way."""

    def __init__(self, control: ControlConnection, address: Address, options: EngineOptions) -> None:
        self._control = control
        self._address = address
        self._options = options
        self.command = "EPSV" if ":" in control.peer else "PASV"
        """What asks for an address."""
        self._asked: PendingReply | None = None
        self._coming: asyncio.Task[socket.socket] | None = None

    def prepare(self) -> None:
        """Ask for the next one's address, behind what is under way, and connect as soon as it is told."""
        self.forget()
        self._asked = self._control.submit(self.command)
        self._coming = asyncio.create_task(self._follow(self._asked))
        self._coming.add_done_callback(_noted)

    async def _follow(self, asked: PendingReply) -> socket.socket:
        return await self.connect(await asyncio.shield(asked))

    def forget(self) -> None:
        """Do without what was prepared; may be called twice."""
        if self._coming:
            self._coming.add_done_callback(_close)
            self._coming.cancel()
        self._asked = self._coming = None

    async def take(self) -> socket.socket:
        """A connection that the next transfer will use. If this is cancelled, what was prepared stays so."""
        if self._asked and self._coming:
            await self._control.reply(self._asked)
            try:
                data = await asyncio.shield(self._coming)
            except Unreachable:  # a port that was opened long ago may be closed again
                self.forget()
            else:
                self._asked = self._coming = None
                if _stands(data):
                    return data
                data.close()
        return await self.connect(await self._control.ask(self.command))

    async def connect(self, reply: Reply) -> socket.socket:
        """The connection to where a reply to `command` says."""
        host, port = await self.address(reply)
        dialer = self._options.dialer
        checked = dialer.under(dialer.policy.with_address(host))
        return await checked.dial(host, port, self._options.connect_seconds)

    async def address(self, reply: Reply) -> tuple[str, int]:
        """Where a reply to `command` says that the server listens; where one to EPSV does, if PASV was refused.

        :raises PermissionRefused: when that is a third host which nobody has allowed
        """
        if reply.code == 227:
            host, port = passive_address(reply)
            return await self._checked(host), port
        if reply.code == 229:
            return self._control.peer, extended_passive_port(reply)
        if self.command == "PASV":
            self.command = "EPSV"
            return await self.address(await self._control.ask(self.command))
        raise refusal(reply, self._address.shown)

    async def _checked(self, host: str) -> str:
        """The host to connect to when a reply names `host`: it, the server itself, or none (a third host)."""
        said, peer = ip_address(host), ip_address(self._control.peer)
        if said == peer or said in await self.allowed_hosts():
            return host
        if said.is_unspecified or (said.is_private and not peer.is_private):
            return self._control.peer  # a server behind address translation that does not know its own address
        raise PermissionRefused(
            f"{self._address.shown}: the server says its data come from another host, {host}",
            f"if you trust that host, allow it: --data-host {host}, or data_hosts of a broker's endpoint",
        )

    async def allowed_hosts(self) -> set[IPv4Address | IPv6Address]:
        """The addresses that data may come from: the URL's host's and those the user or the server's record named.

        Of the URL's host those that it was dialled by, and none that is more inner than the server that answered.
        """
        dialer, most = self._options.dialer, class_of(self._control.peer)
        own = await dialer.addresses(self._address.host)
        found = {ip_address(each) for each in own if class_of(each) <= most or dialer.policy.lists(each)}
        loop = asyncio.get_running_loop()
        recorded = dialer.policy.data_hosts_of(server(self._address.host, self._address.port))
        for name in self._options.data_hosts | recorded:
            try:
                told = {str(info[4][0]) for info in await loop.getaddrinfo(name.strip("[]"), None)}
            except OSError:
                continue  # a name that does not resolve allows nothing
            reachable = (each for each in told if dialer.policy.anywhere or class_of(each) < AddressClass.LINK_LOCAL)
            found |= {ip_address(each.partition("%")[0]) for each in reachable}
        return found


def _noted(coming: asyncio.Task[socket.socket]) -> None:
    """Its failure is told to who takes it, if anyone does."""
    if not coming.cancelled():
        coming.exception()


def _close(coming: asyncio.Task[socket.socket]) -> None:
    if not (coming.cancelled() or coming.exception()):
        coming.result().close()


def _stands(data: socket.socket) -> bool:
    """Whether the server has neither ended a connection nor sent on it what no one asked for."""
    try:
        data.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False
