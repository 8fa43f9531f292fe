"""Tickets for real depots: asked for once, and again when they are of no use any more."""

import asyncio
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coalloc.depot.completion import AGAIN, CompletedRoutes
from coalloc.depot.dialer import DepotRoutes, RelayedDialer
from coalloc.depot.protocol.addresses import DestinationPattern, HostPort
from coalloc.depot.route import DepotRoute, DepotTicket
from coalloc.depot.tickets import Ticket, key_of, sign
from coalloc.errors import Unreachable
from coalloc.util.addresses import ANYWHERE, AddressPolicy
from coalloc.util.dialer import RelayedSocket
from tests.support.depot import LOOPBACK, RunningDepot, depots
from tests.support.waiting import PATIENCE

SECRET = b"0123456789abcdef"
SESSIONS = 3


@pytest.fixture
def depot(tmp_path: Path) -> Iterator[RunningDepot]:
    """A depot that needs tickets."""
    (tmp_path / "secret").write_bytes(SECRET)
    with depots(tmp_path, ("--secret-file", str(tmp_path / "secret"), *LOOPBACK)) as (running,):
        yield running


class Issuer:
    """A part in the place of a broker, which gives tickets for a few sessions each."""

    def __init__(self, secret: bytes = SECRET) -> None:
        self.secret = secret
        self.asked = 0
        self.down = False

    async def complete(self, route: DepotRoute, host: str) -> tuple[DepotRoute, AddressPolicy]:
        self.asked += 1
        if self.down:
            raise Unreachable("the broker restarts", "")
        permitted, name = (DestinationPattern.parse("127.0.0.0/8"),), secrets.token_urlsafe(9)
        text = sign(Ticket(name, "ann", "depot", permitted, int(time.time()) + 3600, 10**9, SESSIONS), self.secret)
        tickets = dict.fromkeys(route.depots, DepotTicket(text, key_of(text, self.secret)))
        return route._replace(tickets=tickets), ANYWHERE


async def dialled(over: RelayedDialer, server: socket.socket) -> bool:
    """Connect, and return whether a depot relays the connection."""
    with await over.dial("127.0.0.1", server.getsockname()[1], PATIENCE) as sock:
        return isinstance(sock, RelayedSocket)


async def test_used_up_tickets_are_replaced(depot, server):
    issuer = Issuer()
    over = RelayedDialer(ANYWHERE, DepotRoutes.parse([str(depot.place)], {}), issuer.complete)
    assert await dialled(over, server)
    assert all(await asyncio.gather(*(dialled(over, server) for _ in range(2 * SESSIONS - 1))))
    assert issuer.asked == 2


async def test_tickets_that_are_refused_at_once_are_not_asked_for_again_and_again(depot, server):
    issuer = Issuer(b"another secret, which is wrong")
    over = RelayedDialer(ANYWHERE, DepotRoutes.parse([str(depot.place)], {}), issuer.complete)
    assert not await dialled(over, server)
    assert not await dialled(over, server)
    assert issuer.asked == 2
    assert [line["refused"] for line in depot.lines] == ["ticket", "ticket"]


async def test_a_question_that_failed_is_asked_again_soon(monkeypatch):
    issuer, route, loop = Issuer(), DepotRoute((HostPort("depot-a.example", 4000),)), asyncio.get_running_loop()
    routes, now = CompletedRoutes(issuer.complete), loop.time()
    issuer.down = True
    for _ in range(2):
        assert not (await routes.complete(route, "ftp.example"))[0].tickets
    assert issuer.asked == 1
    issuer.down = False
    monkeypatch.setattr(loop, "time", lambda: now + 2 * AGAIN)
    for _ in range(2):
        assert (await routes.complete(route, "ftp.example"))[0].tickets
    assert issuer.asked == 2
