import asyncio
import socket
from collections.abc import Iterator

import pytest

from coalloc.depot.automatic import AutomaticDialer, AutomaticRoutes, is_shorter
from coalloc.depot.completion import CompletedRoutes
from coalloc.depot.dialer import DepotRoutes
from coalloc.depot.protocol.addresses import HostPort
from coalloc.errors import Unreachable
from coalloc.util.addresses import ANYWHERE
from coalloc.util.dialer import DirectDialer, RelayedSocket
from tests.support.waiting import PATIENCE, until


def known(*places: object, text: str = "auto", listed=None) -> AutomaticRoutes:
    return AutomaticRoutes(
        DepotRoutes.parse([text], {}, [str(place) for place in places]), CompletedRoutes(None), listed
    )


def ranked(routes: AutomaticRoutes) -> tuple[AutomaticDialer, AutomaticDialer]:
    return tuple(AutomaticDialer(ANYWHERE, routes, rank, DirectDialer()) for rank in (0, 1))


def place(listener: socket.socket) -> HostPort:
    return HostPort(*listener.getsockname())


async def over_depot(dialer: AutomaticDialer, server: socket.socket) -> bool:
    """Connect, and return whether the connection goes over a depot."""
    with await dialer.dial("localhost", place(server).port, PATIENCE) as sock:
        server.accept()[0].close()
        assert sock.getpeername()[1] == place(server).port
        return isinstance(sock, RelayedSocket)


async def test_both_routes_are_used_whichever_is_better(two, server):
    first, second = ranked(known(two[0].place))
    later = asyncio.create_task(over_depot(second, server))  # it waits for the choice of the first
    one = await over_depot(first, server)
    assert await later is not one
    assert await over_depot(first, server) is one
    assert await over_depot(second, server) is not one


@pytest.mark.parametrize(
    ("direct", "legs", "shorter"),
    [
        (0.106, [0.075, 0.0025], True),
        (0.122, [0.040, 0.087], True),
        (0.122, [0.040, 0.100], False),
        (0.106, [0.020, 0.200], False),
        (0.001, [0.0005, 0.0005, 0.0001], True),
        (0.001, [0.002], False),
    ],
)
def test_a_depot_is_better_if_its_legs_are_shorter(direct: float, legs: list[float], shorter: bool):
    assert is_shorter(direct, legs) == shorter


async def test_the_depot_that_answers_first_is_chosen(two, server):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        routes = known(place(silent), two[0].place)
        for _ in range(2):
            (await routes.relay("localhost", place(server), PATIENCE)).close()
            server.accept()[0].close()
        silent.accept()[0].close()  # only the first time
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()
    assert await until(lambda: len(two[0].lines) == 2)


@pytest.fixture
def unused() -> Iterator[HostPort]:
    """An address at which nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield place(sock)


@pytest.mark.parametrize("some", [True, False])
async def test_without_a_depot_that_answers_the_direct_route_is_the_only_one(server, unused, some: bool):
    first, second = ranked(known(*[unused] * some))
    assert not await over_depot(first, server)
    with pytest.raises(Unreachable, match=f"over any of {int(some)} depots"):
        await second.dial("localhost", place(server).port, PATIENCE)


async def test_if_the_server_cannot_be_reached_directly_the_depot_is_taken(two, server, monkeypatch):
    dial = DirectDialer.dial

    async def only_depots(self, host, port, seconds):
        if port == place(server).port:
            raise Unreachable(f"{host} is behind a firewall", "")
        return await dial(self, host, port, seconds)

    monkeypatch.setattr(DirectDialer, "dial", only_depots)
    first, _ = ranked(known(two[0].place))
    for _ in range(2):
        assert await over_depot(first, server)


async def test_a_server_that_nothing_reaches_is_unreachable(two, unused):
    first, second = ranked(known(two[0].place))
    for dialer in (first, second, first):
        with pytest.raises(Unreachable):
            await dialer.dial(unused.host, unused.port, PATIENCE)


async def test_only_automatic_routes_have_a_further_one(server):
    first, second = ranked(known(text="ftp.example=auto"))
    assert second.serves("FTP.example")
    assert not second.serves("localhost")
    assert not await over_depot(first, server)


async def test_depots_of_a_broker_are_candidates_too(two, server):
    async def listed() -> list[HostPort]:
        return [two[1].place]

    (await known(listed=listed).relay("localhost", place(server), PATIENCE)).close()
    server.accept()[0].close()
    assert await until(lambda: two[1].lines)


async def test_a_cancelled_choice_leaves_no_connection(two, server):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        first, second = ranked(known(place(silent)))
        task = asyncio.create_task(first.dial("127.0.0.1", place(server).port, PATIENCE))
        await asyncio.sleep(0)
        task.cancel()
        assert (await asyncio.gather(task, return_exceptions=True))[0].__class__ is asyncio.CancelledError
        with pytest.raises(Unreachable):
            await second.dial("127.0.0.1", place(server).port, 0.1)
