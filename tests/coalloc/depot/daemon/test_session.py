"""Sessions of a depot in this process."""

import asyncio
import fcntl
import json
import socket
import struct
import termios
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from coalloc.depot.daemon import session as module
from coalloc.depot.daemon.audit import AuditLog
from coalloc.depot.daemon.forwarding import ForwardingTable
from coalloc.depot.daemon.limits import Limits
from coalloc.depot.daemon.metrics import Metrics
from coalloc.depot.daemon.permissions import permission
from coalloc.depot.daemon.pump import Pump
from coalloc.depot.daemon.session import DepotSession
from coalloc.depot.daemon.settings import DepotSettings
from coalloc.depot.daemon.shared import Depot
from coalloc.depot.protocol.addresses import DestinationPattern, HostPort
from coalloc.depot.protocol.failures import DepotFailure
from coalloc.depot.protocol.lsl import LogisticalSession
from coalloc.depot.protocol.opening import Opening
from coalloc.depot.protocol.session_header import Answer, SessionHeader, SessionRequest, credentials
from coalloc.depot.route import DepotRoute, DepotTicket
from coalloc.depot.tickets import Ticket, key_of, sign
from tests.support.waiting import PATIENCE, until

HERE = HostPort("127.0.0.1", 4000)
MUCH = bytes(150_000)
"""More bytes than wait in the connection to a server that takes few."""


class Served:
    """The client of one session at a depot in this process.

    :ivar inner: the depot's end of the connection
    """

    def __init__(self, folder: Path, settings: DepotSettings, table: ForwardingTable | None = None) -> None:
        limits, self.audit = Limits(settings, 0.0), folder / "audit"
        shared = Pump(), AuditLog(self.audit), Metrics(), table, None, set(), asyncio.Event()
        self.depot = Depot(settings, limits, *shared)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * len(MUCH))
            self.client = socket.create_connection(listener.getsockname(), PATIENCE)
            self.inner, _ = listener.accept()
        for each in (self.client, self.inner):
            each.setblocking(False)

    async def answer(self, data: bytes) -> Answer:
        """Send bytes, begin the session once all have arrived, and return the depot's answer."""
        loop, received = asyncio.get_running_loop(), b""
        await loop.sock_sendall(self.client, data)
        await until(lambda: waiting(self.inner) == len(data))
        self._session = asyncio.create_task(DepotSession(self.depot, self.inner, "127.0.0.1").run(0))
        while missing := Answer.missing(received):
            more = await loop.sock_recv(self.client, missing)
            assert more, "the depot closed the connection"
            received += more
        return Answer.decode(received)

    async def aclose(self) -> None:
        self._session.cancel()
        await asyncio.gather(self._session, return_exceptions=True)
        self.client.close()
        self.depot.pump.close()
        self.depot.audit.close()


def waiting(sock: socket.socket) -> int:
    """Return how many bytes can be received."""
    return struct.unpack("i", fcntl.ioctl(sock, termios.FIONREAD, bytes(4)))[0]


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr(module, "RECEIVE", 2 * len(MUCH))
    async with aclosing(Served(tmp_path, DepotSettings(connect_seconds=0.5))) as made:
        yield made


@pytest.fixture
def stalled() -> Iterator[socket.socket]:
    """A server that takes few bytes."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 88)  # the sender's buffer depends on it
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        yield listener


def header(to: socket.socket) -> bytes:
    return DepotRoute((HERE,)).header(HostPort(*to.getsockname()), time.time()).encode()


async def test_a_server_that_takes_no_bytes_is_given_up(served, stalled):
    answer = await served.answer(header(stalled) + MUCH)
    assert answer.failure.code == "timeout"


async def test_a_server_that_resets_during_the_first_bytes_is_reported(served, stalled):
    async def reset() -> None:
        loop = asyncio.get_running_loop()
        server, _ = await loop.sock_accept(stalled)
        with server:
            await loop.sock_recv(server, 1)  # the rest is unread, so the close is a reset

    _, answer = await asyncio.gather(reset(), served.answer(header(stalled) + MUCH))
    assert answer.failure.code == "unreachable"
    assert json.loads(served.audit.read_text())["refused"] == "unreachable"


async def test_a_depot_killed_before_its_first_bytes_is_a_reset(served, monkeypatch):
    loop, lingers = asyncio.get_running_loop(), []
    connect = loop.sock_connect

    async def recorded(sock: socket.socket, address: tuple[str, int]) -> None:
        lingers.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))
        await connect(sock, address)

    monkeypatch.setattr(loop, "sock_connect", recorded)
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert (await served.answer(header(server))).failure is None
    assert lingers == [struct.pack("ii", 1, 0)]


async def test_a_depot_killed_after_its_answer_is_a_reset(served, monkeypatch):
    lingers = []

    def accepted(_: LogisticalSession, legs: tuple[float, ...]) -> bytes:
        lingers.append(served.inner.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))
        return Answer(None, legs).encode()

    monkeypatch.setattr(LogisticalSession, "accepted", accepted)
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert (await served.answer(header(server))).failure is None
    assert lingers == [struct.pack("ii", 1, 0)]


async def test_a_header_that_grows_too_long_for_the_next_depot_is_malformed(tmp_path):
    table = tmp_path / "table"
    with socket.create_server(("127.0.0.1", 0)) as server:
        to, visited = HostPort(*server.getsockname()), ("ä" * 300,) * 5
        table.write_text(f'[[next]]\ndestinations = ["127.0.0.0/8"]\ndepot = "{to}"\n')
        request = SessionRequest("0" * 32, (HERE,), to, True, time.time(), visited=visited)
        raw = json.dumps(json.loads(request.encode()), ensure_ascii=False).encode()
        data = SessionHeader(request, raw, credentials(raw, [None])).encode()
        async with aclosing(Served(tmp_path, DepotSettings(connect_seconds=0.5), ForwardingTable(table))) as served:
            assert (await served.answer(data)).failure.code == "malformed"


async def test_a_header_from_a_clock_ahead_opens_nothing_after_a_restart(tmp_path):
    permitted, secret = (DestinationPattern.parse("127.0.0.0/8"),), b"0123456789abcdef"
    settings = DepotSettings(secret=secret, destinations=permitted)
    text = sign(Ticket("id", "ann", "depot", permitted, int(time.time()) + 600, 1000, 3), secret)
    route = DepotRoute((HERE,), tickets={HERE: DepotTicket(text, key_of(text, secret))})
    with socket.create_server(("127.0.0.1", 0)) as server:
        header = route.header(HostPort(*server.getsockname()), time.time() + 0.5)
        async with aclosing(Served(tmp_path, settings)) as served:
            assert (await served.answer(header.encode())).failure is None
        now = time.time()
        opening = Opening(header.request.destination, text, b"", header)
        granted = permission(settings, "127.0.0.1", opening, now)
        with pytest.raises(DepotFailure, match="used before"):
            Limits(settings, started=now).take(granted, header, now)
