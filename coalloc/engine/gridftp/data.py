"""The next data connection to a server, in passive mode: requested and made before it is needed.

With a distant server a data connection costs two round trips, one for its address and one to connect; made ahead it
costs none. `stream` does the transfer over it.
"""

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.address import Address
from coalloc.engine.gridftp.control import ControlConnection, PendingReply
from coalloc.engine.gridftp.refusals import refusal
from coalloc.engine.gridftp.replies import Reply, extended_passive_port, passive_address
from coalloc.errors import PermissionRefused, Unreachable
from coalloc.util.addresses import AddressClass, class_of, server

__all__ = ["DataConnections"]


class DataConnections:
    """Makes the data connections of one session; at most one is ready or being made."""

    def __init__(self, control: ControlConnection, address: Address, options: EngineOptions) -> None:
        self._control = control
        self._address = address
        self._options = options
        self.command = "EPSV" if ":" in control.peer else "PASV"
        """The command that requests an address."""
        self._address_reply: PendingReply | None = None
        self._coming: asyncio.Task[socket.socket] | None = None

    def prepare(self) -> None:
        """Request the next data connection's address behind the commands under way, and connect when it arrives."""
        self.forget()
        self._address_reply = self._control.submit(self.command)
        self._coming = asyncio.create_task(self._follow(self._address_reply))
        self._coming.add_done_callback(_noted)

    async def _follow(self, reply: PendingReply) -> socket.socket:
        return await self.connect(await asyncio.shield(reply))

    def forget(self) -> None:
        """Discard the prepared connection; may be called twice."""
        if self._coming:
            self._coming.add_done_callback(_close)
            self._coming.cancel()
        self._address_reply = self._coming = None

    async def take(self) -> socket.socket:
        """Return a connection for the next transfer. If this is cancelled, the prepared connection is kept."""
        if self._address_reply and self._coming:
            await self._control.reply(self._address_reply)
            try:
                data = await asyncio.shield(self._coming)
            except Unreachable:  # a port opened long ago may be closed again
                self.forget()
            else:
                self._address_reply = self._coming = None
                if _stands(data):
                    return data
                data.close()
        return await self.connect(await self._control.ask(self.command))

    async def connect(self, reply: Reply) -> socket.socket:
        """Connect to the address in a reply to `command`."""
        host, port = await self.address(reply)
        dialer = self._options.dialer
        checked = dialer.under(dialer.policy.with_address(host))
        return await checked.dial(host, port, self._options.connect_seconds)

    async def address(self, reply: Reply) -> tuple[str, int]:
        """Return the address in a reply to `command` at which the server listens; asks again with EPSV if PASV was
        refused.

        :raises PermissionRefused: when that is a third host which is not allowed
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
        """Return the host to connect to for a reply that names `host`: that host, or the server itself.

        :raises PermissionRefused: when it is a third host
        """
        named, peer = ip_address(host), ip_address(self._control.peer)
        if named == peer or named in await self.allowed_hosts():
            return host
        if named.is_unspecified or (named.is_private and not peer.is_private):
            return self._control.peer  # a server behind address translation that does not know its own address
        raise PermissionRefused(
            f"{self._address.shown}: the server says its data come from another host, {host}",
            f"if you trust that host, allow it: --data-host {host}, or data_hosts of a broker's endpoint",
        )

    async def allowed_hosts(self) -> set[IPv4Address | IPv6Address]:
        """Return the addresses that data may come from: those of the URL's host, the user's and the server record's.

        Of the URL's host, those that it was dialled by are allowed, except addresses more internal than that of the
        server that answered.
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
                continue  # a name that does not resolve allows nothing
            reachable = (
                each for each in addresses if dialer.policy.anywhere or class_of(each) < AddressClass.LINK_LOCAL
            )
            found |= {ip_address(each.partition("%")[0]) for each in reachable}
        return found


def _noted(coming: asyncio.Task[socket.socket]) -> None:
    """Mark the failure of a prepared connection as retrieved; `take` raises it if it is used."""
    if not coming.cancelled():
        coming.exception()


def _close(coming: asyncio.Task[socket.socket]) -> None:
    if not (coming.cancelled() or coming.exception()):
        coming.result().close()


def _stands(data: socket.socket) -> bool:
    """Return whether a connection is still open and the server has sent nothing unrequested on it."""
    try:
        data.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False
