"""One session at a depot, from the client's first byte until its bytes are carried."""

import asyncio
import secrets
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple, Protocol

from aiohappyeyeballs import AddrInfoType

from coalloc.depot.daemon.connecting import keep_alive, open_socket, prepare, unconnected
from coalloc.depot.daemon.forwarding import NextHop
from coalloc.depot.daemon.permissions import SessionPermission, allowed_addresses, look_up, permission
from coalloc.depot.daemon.ports import PortSession, listen
from coalloc.depot.daemon.pump import Account, ConnectionPair, Ending, reset_on_close
from coalloc.depot.daemon.shared import Depot
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.protocol.failures import CONNECTING, UNFIT, DepotFailure
from coalloc.depot.protocol.http_connect import METRICS, HttpConnect, response
from coalloc.depot.protocol.lsl import LogisticalSession
from coalloc.depot.protocol.opening import Opening
from coalloc.depot.protocol.session_header import (
    MAGIC,
    MOST_HOPS,
    Answer,
    SessionHeader,
    SessionRequest,
    credentials,
)
from coalloc.depot.protocol.socks5 import VERSION, Socks5
from coalloc.util.addresses import AddressClass, class_of
from coalloc.util.tcp_info import sent_state_of

__all__ = ["DepotSession", "Front"]

RECEIVE = 1 << 16
CHOSEN_SECONDS = 1.0
"""Time limit for each step with a depot that the broker has chosen, as the session can go on without it."""
MARGIN = 0.01
"""Seconds by which the clock may be adjusted while a session waits."""
LINGER = 2.0
"""Seconds for a client to read why it was refused."""


class Front(Protocol):
    """The messages of a client until its session begins, in one protocol."""

    def receive(self, data: bytes) -> tuple[bytes, Opening | None]:
        """Process bytes; return bytes to send, and the opening once it is complete."""
        ...

    def accepted(self, legs: tuple[float, ...]) -> bytes:
        """Return the reply once the destination is connected."""
        ...

    def refused(self, failure: DepotFailure) -> bytes:
        """Return the reply to a client whose session failed."""
        ...


class _Hop(NamedTuple):
    """The next hop of a session.

    :param header: header to send, if the next hop is a depot
    :param instead: hop to take if this one fails; None if the session fails then
    """

    place: HostPort
    addresses: Sequence[AddrInfoType]
    header: SessionHeader | None = None
    instead: "_Hop | None" = None

    @property
    def address(self) -> str:
        """A numeric address of the host."""
        return str(self.addresses[0][4][0])


class DepotSession:
    """One session at a depot.

    :param peer: numeric address of the client
    """

    def __init__(self, depot: Depot, client: socket.socket, peer: str) -> None:
        self._depot = depot
        self._client = client
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._front: Front | None = None
        self._opening: Opening | None = None
        self._user = ""

    async def run(self, pending: int) -> None:
        """Carry out the session until its bytes are carried by the pump, or it has failed.

        :param pending: number of connections that are not sessions yet
        """
        try:
            async with asyncio.timeout(self._depot.settings.header_seconds):
                self._opening = await self._receive_opening()
            if self._opening is None:
                self._client.close()
            elif self._opening.destination is METRICS:
                await self._send_metrics(pending)
            elif self._opening.header and self._opening.header.request.port:
                await self._open_port(self._opening, self._opening.header)
            else:
                await self._begin(self._opening)
        except DepotFailure as failure:
            await self._refuse(failure)
        except (OSError, TimeoutError):  # the client is gone, or sent no complete request in time
            self._depot.metrics.refused["client"] += 1
            self._client.close()
        except asyncio.CancelledError:
            await self._refuse(DepotFailure("closing", "this depot is shutting down"))
            raise
        except BaseException:
            self._client.close()
            raise

    async def _receive_opening(self) -> Opening | None:
        data = await self._receive()
        while data:
            if self._front is None:
                self._front = self._front_of(data)
            reply, opening = self._front.receive(data)
            if reply:
                await self._loop.sock_sendall(self._client, reply)
            if opening:
                return opening
            data = await self._receive()
        return None

    async def _receive(self) -> bytes:
        return await self._loop.sock_recv(self._client, RECEIVE)

    def _front_of(self, data: bytes) -> Front:
        """Return the protocol of a client that sends these first bytes.

        :raises DepotFailure: if they belong to none
        """
        if data.startswith(VERSION):
            return Socks5(needs_ticket=self._depot.settings.secret is not None)
        if data[:1] == MAGIC[:1] and MAGIC.startswith(data[:4]):
            return LogisticalSession()
        if data[:1].isalpha():
            return HttpConnect()
        raise DepotFailure("malformed", "the client uses no protocol that depots support")

    async def _begin(self, opening: Opening) -> None:
        now = time.time()
        granted = permission(self._depot.settings, self._peer, opening, now)
        self._user = granted.user
        account, buffer = self._depot.limits.take(granted, opening.header, now)
        try:
            await self._await_time(granted, opening.header)
            server, hop = await self._connect_on(opening, granted)
        except BaseException:
            self._depot.limits.give_back(granted, buffer)
            raise
        account.moved += len(opening.rest)
        self._carry(server, hop, granted, account, buffer)

    async def _open_port(self, opening: Opening, header: SessionHeader) -> None:
        """Open a port for the client, answer with its number, and leave the session to it."""
        now, request = time.time(), header.request
        if len(request.route) > 1 or request.loose or request.buffer or opening.rest:
            raise DepotFailure(
                "unsupported", "a data port does not support several depots, a loose route, a buffer or first bytes"
            )
        granted = permission(self._depot.settings, self._peer, opening, now)
        self._user = granted.user
        self._depot.limits.take(granted, header, now)
        try:
            await self._await_time(granted, header)
            addresses = await self._addresses(opening.destination, granted)
            listener = listen(self._client, header.request, self._depot.settings.data_ports)
            try:
                keep_alive(self._client)
                await self._loop.sock_sendall(self._client, Answer(None, port=listener.getsockname()[1]).encode())
            except BaseException:
                listener.close()
                raise
        except BaseException:
            self._depot.limits.give_back(granted, 0)
            raise
        PortSession(self._depot, self._client, self._peer, listener, request, granted, addresses).start()

    async def _await_time(self, granted: SessionPermission, header: SessionHeader | None) -> None:
        """Wait for the time of a request: a depot refuses those from before its start, which may have been used."""
        ahead = header.request.time - time.time() if granted.ticket and header else 0.0
        if ahead > 0:
            await asyncio.sleep(ahead + MARGIN)

    async def _connect_on(self, opening: Opening, granted: SessionPermission) -> tuple[socket.socket, _Hop]:
        """Connect to the next hop, send header and first bytes, and answer the client; return connection and hop."""
        hop = await self._next_hop(opening, granted)
        try:
            server, legs = await self._open(hop, opening)
        except DepotFailure as failure:
            if hop.instead is None or self._depot.broker is None:
                raise
            chosen, hop = hop.place, hop.instead
            server, legs = await self._open(hop, opening)
            if self._next_is_unfit(failure):  # and the server is up, for which a depot may wait in silence
                self._depot.broker.table.avoid(chosen)
        try:
            assert self._front is not None, "it made the opening"
            keep_alive(self._client)
            reset_on_close(self._client)  # from now on, an end would look like the end of the server's bytes
            await self._loop.sock_sendall(self._client, self._front.accepted(legs))
        except BaseException:
            server.close()
            raise
        return server, hop

    async def _open(self, hop: _Hop, opening: Opening) -> tuple[socket.socket, tuple[float, ...]]:
        """Connect to the next hop, and send header and first bytes; return the connection, and the legs' seconds."""
        began = self._loop.time()
        server = await self._connect(hop, opening.header)
        legs: tuple[float, ...] = (round(self._loop.time() - began, 6),)
        try:
            await self._send_first(server, hop, opening.rest)
            if hop.header:
                legs += await self._await_answer(server, hop)
        except BaseException:
            server.close()
            raise
        return server, legs

    async def _send_first(self, server: socket.socket, hop: _Hop, rest: bytes) -> None:
        """Send the next hop its header, and the first bytes of the session."""
        try:
            first = (hop.header.encode() if hop.header else b"") + rest
            async with asyncio.timeout(self._seconds(hop)):
                await self._loop.sock_sendall(server, first)
        except ValueError as error:
            raise DepotFailure("malformed", str(error)) from None
        except TimeoutError:
            raise DepotFailure("timeout", f"{hop.place} accepts no bytes") from None
        except OSError as error:
            raise DepotFailure("unreachable", f"{hop.place} failed: {error.strerror}") from None

    async def _next_hop(self, opening: Opening, granted: SessionPermission) -> _Hop:
        settings, header, to = self._depot.settings, opening.header, opening.destination
        if header and header.next:
            onward = await allowed_addresses(settings, header.next, granted.ticket)
            return _Hop(header.next, onward, header.forwarded(granted.key))
        addresses = await self._addresses(to, granted)
        if header and not header.request.loose:
            return _Hop(to, addresses)
        known, direct = [str(each[4][0]) for each in addresses], _Hop(to, addresses)
        if self._depot.table and (chosen := await self._depot.table.next_hop(to, known)):
            return _Hop(chosen.depot, await look_up(chosen.depot), self._own_header(chosen, to, header))
        return self._brokers_hop(opening, known, direct) or direct

    def _brokers_hop(self, opening: Opening, addresses: Sequence[str], direct: _Hop) -> _Hop | None:
        """Return the next depot in the broker's table; None to connect to the server directly.

        :param addresses: numeric addresses of the server
        """
        header, to = opening.header, opening.destination
        if self._depot.broker is None or (opening.rest and not header):  # these bytes may not be safe to repeat
            return None
        chosen = self._depot.broker.table.choose(to, addresses, header.request.visited if header else ())
        if chosen is None:
            return None
        return _Hop(chosen.hop.depot, chosen.addresses, self._own_header(chosen.hop, to, header), direct)

    async def _addresses(self, to: HostPort, granted: SessionPermission) -> Sequence[AddrInfoType]:
        return await allowed_addresses(self._depot.settings, to, granted.ticket)

    def _own_header(self, chosen: NextHop, to: HostPort, header: SessionHeader | None) -> SessionHeader:
        """Return the header for a next hop that this depot has chosen.

        :raises DepotFailure: if the session has already passed this depot
        """
        name = self._depot.settings.name
        visited = header.request.visited if header else ()
        if name in visited or len(visited) >= MOST_HOPS:
            raise DepotFailure("loop", f"the session has already passed the depot {name}")
        request = SessionRequest(
            session=header.request.session if header else secrets.token_hex(16),
            route=(chosen.depot,),
            destination=to,
            loose=True,
            time=time.time(),
            buffer=header.request.buffer if header else 0,
            congestion=header.request.congestion if header else "",
            visited=(*visited, name),
        )
        raw = request.encode()
        return SessionHeader(request, raw, credentials(raw, [chosen.ticket]))

    def _seconds(self, hop: _Hop) -> float:
        """Return the time limit for a step with a next hop."""
        seconds = self._depot.settings.connect_seconds
        return min(seconds, CHOSEN_SECONDS) if hop.instead else seconds

    async def _connect(self, hop: _Hop, header: SessionHeader | None) -> socket.socket:
        began = self._loop.time()
        try:
            server = await open_socket(hop.addresses, self._seconds(hop))
        except OSError as error:
            if self._depot.broker:
                self._depot.broker.legs.failed(hop.place, hop.address, error)
            raise unconnected(hop.place, error) from None
        if self._depot.broker:
            self._depot.broker.legs.connected(hop.place, hop.address, self._loop.time() - began)
        prepare(server, (header.request.congestion if header else "") or self._depot.settings.congestion)
        return server

    async def _await_answer(self, server: socket.socket, hop: _Hop) -> tuple[float, ...]:
        """Return the legs that follow, from the answer of the next depot.

        :raises DepotFailure: if it refuses, or gives no answer
        """
        data, place, depots = b"", hop.place, len(hop.header.passes) if hop.header else 0
        try:
            async with asyncio.timeout(self._seconds(hop) * (1 if hop.instead else depots + 1)):
                while missing := Answer.missing(data):
                    if not (more := await self._loop.sock_recv(server, missing)):
                        raise DepotFailure("unreachable", "it closed the connection")
                    data += more
            answer = Answer.decode(data)
        except TimeoutError:
            raise DepotFailure("timeout", f"{place} did not answer") from None
        except OSError as error:
            raise DepotFailure("unreachable", f"{place} failed: {error.strerror}") from None
        except DepotFailure as failure:
            raise DepotFailure("unreachable", f"{place} gave no answer of a depot: {failure.message}") from None
        if answer.failure is None:
            return answer.legs
        at = answer.failure.hop or 0  # a depot that this one has chosen counts from itself
        raise DepotFailure(answer.failure.code, answer.failure.message, at if self._forwards else self._hop + 1 + at)

    def _next_is_unfit(self, failure: DepotFailure) -> bool:
        """Return whether a failure of the next depot concerns other sessions, too."""
        if failure.hop is None:
            return failure.code in CONNECTING
        return failure.code in UNFIT and failure.hop == self._hop + 1

    @property
    def _hop(self) -> int:
        """The position of this depot in the client's route."""
        header = self._opening.header if self._opening else None
        return header.hop if header else 0

    @property
    def _forwards(self) -> bool:
        """Return whether the next hop is in the client's own route."""
        header = self._opening.header if self._opening else None
        return header is not None and header.next is not None

    def _carry(
        self, server: socket.socket, hop: _Hop, granted: SessionPermission, account: Account, buffer: int
    ) -> None:
        opening, began = self._opening, time.time()
        assert opening is not None, "the session has begun"

        def end(pair: ConnectionPair, ending: Ending) -> None:
            up, down = len(opening.rest) + pair.up.moved, pair.down.moved
            self._depot.limits.give_back(granted, buffer)
            self._depot.metrics.ended[ending] += 1
            self._depot.metrics.moved["up"] += up
            self._depot.metrics.moved["down"] += down
            self._log(end=ending, next=str(hop.place), up=up, down=down, seconds=round(time.time() - began, 3))
            self._measure(pair, hop)

        self._depot.pump.add(self._client, server, account, end, buffer=buffer)

    def _measure(self, pair: ConnectionPair, hop: _Hop) -> None:
        """Add what the kernel measured on both connections to the use of the legs."""
        if broker := self._depot.broker:
            with suppress(OSError):  # the kernel reports nothing
                broker.legs.ended(hop.place, hop.address, sent_state_of(pair.server.sock))
                broker.legs.sent_back(self._peer, sent_state_of(pair.client.sock))

    async def _refuse(self, failure: DepotFailure) -> None:
        self._depot.metrics.refused[failure.code] += 1
        self._log(refused=failure.code, reason=failure.message)
        reply = self._front.refused(failure) if self._front else b""
        try:
            self._client.send(reply)  # a few bytes, which fit into the buffer of a new connection
            self._client.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(LINGER):  # unread bytes would become a reset, and the reply could be lost
                while await self._receive():
                    pass
        except (OSError, TimeoutError):  # the client is gone, or does not close
            pass
        finally:
            self._client.close()

    async def _send_metrics(self, pending: int) -> None:
        if class_of(self._peer) != AddressClass.LOOPBACK:
            raise DepotFailure("denied", "metrics are for this machine only")
        text = self._depot.metrics.text(len(self._depot.pump), pending, len(self._depot.ports))
        await self._loop.sock_sendall(self._client, response(HTTPStatus.OK, text))
        self._client.close()

    def _log(self, **fields: object) -> None:
        opening = self._opening
        header = opening.header if opening else None
        self._depot.audit.write(
            session=header.request.session if header else None,
            user=self._user or None,
            client=self._peer,
            protocol=type(self._front).__name__ if self._front else None,
            destination=str(opening.destination) if opening else None,
            **fields,
        )
