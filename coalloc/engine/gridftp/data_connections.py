"""The next data connection to a server, in passive mode, made before it is needed.

A data connection takes two round trips, one for its address and one to connect; made ahead, it takes no time. If it is
still being made, the request for data can be sent meanwhile, which saves a round trip to the first depot of a route.
`stream` transfers data over it.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.address import Address
from coalloc.engine.gridftp.control import ControlConnection, PendingReply
from coalloc.engine.gridftp.refusals import refusal
from coalloc.engine.gridftp.replies import Reply, extended_passive_port, passive_address
from coalloc.errors import PermissionRefused, SourceError, Unreachable
from coalloc.util.addresses import AddressClass, class_of, server

__all__ = ["ComingConnection", "DataConnections"]

HostAndPort = tuple[str, int]


class ComingConnection:
    """A data connection that is being made: its address is found, and then connected.

    :param address: search for the address
    :param connect: function that connects an address
    """

    def __init__(
        self,
        address: Coroutine[None, None, HostAndPort],
        connect: Callable[[HostAndPort], Awaitable[socket.socket]],
    ) -> None:
        self._connect = connect
        self._address = asyncio.create_task(address)
        self._made = asyncio.create_task(self._make())
        for task in (self._address, self._made):
            task.add_done_callback(_noted)

    async def _make(self) -> socket.socket:
        return await self._connect(await self._address)

    async def located(self) -> None:
        """Wait until the address is known. :raises SourceError: when the server gives none that is allowed"""
        await asyncio.shield(self._address)

    async def made(self) -> socket.socket:
        """Wait until it is connected. :raises Unreachable: when the server cannot be reached there"""
        return await asyncio.shield(self._made)

    @property
    def sock(self) -> socket.socket | None:
        """The connected socket; None while it is being made, or if that failed."""
        done = self._made.done() and not self._made.cancelled() and not self._made.exception()
        return self._made.result() if done else None

    @property
    def looks_usable(self) -> bool:
        """Return True while the connection is being made, or is open and unused."""
        return not self._made.done() or (self.sock is not None and _is_unused(self.sock))

    def close(self) -> None:
        """Close it, or stop making it; may be called twice."""
        self._address.cancel()
        self._made.cancel()
        if self.sock:
            self.sock.close()


class DataConnections:
    """A maker of the data connections of one session; at most one is ready or being made."""

    def __init__(self, control: ControlConnection, address: Address, options: EngineOptions) -> None:
        self._control = control
        self._address = address
        self._options = options
        self.command = "EPSV" if ":" in control.peer else "PASV"
        """The command that requests an address: EPSV or PASV."""
        self._has_epsv = True
        self._elsewhere: PermissionRefused | None = None
        """The refusal of the host in the last reply, while the server's own address is tried instead."""
        self.answers = False
        """Whether a data connection was made, in this session or in another one with the replica."""
        self._prepared: tuple[PendingReply, ComingConnection] | None = None

    def prepare(self) -> None:
        """Request the address of the next data connection, after the commands under way; connect when it arrives."""
        self.forget()
        reply = self._control.submit(self.command)
        self._prepared = reply, ComingConnection(self._located(reply), self._connect)

    def forget(self) -> None:
        """Discard the prepared connection; may be called twice."""
        if self._prepared:
            self._prepared[1].close()
        self._prepared = None

    async def take(self) -> ComingConnection:
        """Return the connection for the next transfer as soon as its address is known.

        If this is cancelled, the prepared connection is kept.
        """
        if self._prepared:
            reply, coming = self._prepared
            await self._control.reply(reply)
            try:
                await coming.located()
            except SourceError:
                self.forget()
                raise
            self._prepared = None
            if coming.looks_usable:
                return coming
            coming.close()  # a port opened long ago may be closed again
        reply = self._control.submit(self.command)
        coming = ComingConnection(self._located(reply), self._connect)
        try:
            await self._control.reply(reply)
            await coming.located()
        except BaseException:
            coming.close()
            raise
        return coming

    async def _located(self, reply: PendingReply) -> HostAndPort:
        return await self._reachable(await asyncio.shield(reply))  # it may come only after a long transfer

    async def connect(self, reply: Reply) -> socket.socket:
        """Connect to the address in a reply to `command`."""
        return await self._connect(await self._reachable(reply))

    async def _connect(self, address: HostAndPort) -> socket.socket:
        host, port = address
        dialer = self._options.dialer
        checked = dialer.under(dialer.policy.with_address(host))
        try:
            connected = await checked.dial(host, port, self._options.connect_seconds)
        except Unreachable:
            if self._elsewhere and not self.answers:
                raise self._elsewhere from None
            raise
        self._elsewhere, self.answers = None, True
        return connected

    async def _reachable(self, reply: Reply) -> HostAndPort:
        """Return the address for a connection from here: the server's own, if its reply names a host not allowed.

        A server behind address translation may name any address. It gets no connection to a host of its choice: only
        the port is taken from EPSV, or from the reply if the server lacks EPSV.
        """
        if reply.code != 227 or await self._allowed(named := passive_address(reply)[0]):
            return await self.address(reply)
        self._elsewhere = self._refused(named)
        if self._has_epsv:
            extended = await self._control.ask("EPSV")
            if extended.code == 229:
                self.command = "EPSV"
                return await self.address(extended)
            self._has_epsv = False
        return self._control.peer, passive_address(reply)[1]

    async def address(self, reply: Reply) -> HostAndPort:
        """Return host and port from a reply to `command`; if the server refused PASV, ask again with EPSV.

        :raises PermissionRefused: when the reply names a third host that is not allowed
        """
        if reply.code == 227:
            host, port = passive_address(reply)
            if allowed := await self._allowed(host):
                return allowed, port
            raise self._refused(host)
        if reply.code == 229:
            return self._control.peer, extended_passive_port(reply)
        if self.command == "PASV":
            self.command = "EPSV"
            return await self.address(await self._control.ask(self.command))
        raise refusal(reply, self._address.shown)

    async def _allowed(self, host: str) -> str | None:
        """Return the host to connect to for a reply that names `host`; None if that is a third host not allowed."""
        named, peer = ip_address(host), ip_address(self._control.peer)
        if named == peer or named in await self.allowed_hosts():
            return host
        if named.is_unspecified or (named.is_private and not peer.is_private):
            return self._control.peer  # behind address translation, a server does not know its public address
        return None

    def _refused(self, host: str) -> PermissionRefused:
        return PermissionRefused(
            f"{self._address.shown}: the server wants to send its data from another host, {host}",
            f"if you trust that host, allow it: --data-host {host}, or data_hosts of a broker's endpoint; otherwise "
            "ask the server's admin to let it name its own public address, and to open its data ports",
        )

    async def allowed_hosts(self) -> set[IPv4Address | IPv6Address]:
        """Return the addresses that may send data: those of the URL's host and of the permitted data hosts.

        Addresses of the URL's host that are more internal than that of the server that answered are left out.
        """
        dialer, most = self._options.dialer, class_of(self._control.peer)
        own = await dialer.addresses(self._address.host)
        found = {ip_address(each) for each in own if class_of(each) <= most or dialer.policy.lists(each)}
        loop = asyncio.get_running_loop()
        recorded = dialer.policy.data_hosts_of(server(self._address.host, self._address.port))
        for name in self._options.data_hosts | recorded:
            try:
                addresses = {str(info[4][0]) for info in await loop.getaddrinfo(name.strip("[]"), None)}
            except OSError:
                continue  # a name that cannot be resolved allows no address
            reachable = (
                each for each in addresses if dialer.policy.anywhere or class_of(each) < AddressClass.LINK_LOCAL
            )
            found |= {ip_address(each.partition("%")[0]) for each in reachable}
        return found


def _noted(task: asyncio.Task[Any]) -> None:
    """Mark the failure of a task as retrieved; the task that waits for the connection receives it."""
    if not task.cancelled():
        task.exception()


def _is_unused(data: socket.socket) -> bool:
    """Return whether a connection is still open, and the server has sent nothing on it yet."""
    try:
        data.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False
