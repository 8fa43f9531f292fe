import asyncio
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress

import pytest

from coalloc.depot.automatic import BestDepotDialer
from coalloc.depot.dialer import DepotRoutes, RelayedDialer, RouteTimes
from coalloc.depot.protocol.addresses import HostPort
from coalloc.errors import Unreachable
from coalloc.util.addresses import ANYWHERE
from coalloc.util.dialer import RelayedSocket, ordered
from tests.support.waiting import PATIENCE, until


def over(*places: object, text: str = "auto", listed=None, times: Mapping[str, float] | None = None) -> BestDepotDialer:
    routes = DepotRoutes.parse([text], {}, [str(place) for place in places])
    fixed = RelayedDialer(ANYWHERE, routes, times=RouteTimes({"localhost": times or {}}))
    return BestDepotDialer(ANYWHERE, fixed, listed)


def place(listener: socket.socket) -> HostPort:
    return HostPort(*listener.getsockname())


async def greet(dialer: BestDepotDialer, server: socket.socket, first: bytes = b"hello") -> None:
    """Connect, and check that the server gets the first bytes."""
    with await dialer.dial("localhost", place(server).port, PATIENCE, first) as sock:
        assert isinstance(sock, RelayedSocket)
        assert sock.getpeername()[1] == place(server).port
        assert heard(server) == first


def heard(server: socket.socket) -> bytes:
    """Return what the server gets on the first connection that is used; others are closed."""
    while True:
        with server.accept()[0] as taken, suppress(ConnectionResetError):
            if data := taken.recv(100):
                return data


@pytest.mark.parametrize("number", [1, 2])
async def test_the_first_bytes_arrive_once(two, server, number: int):
    dialer = over(*(each.place for each in two[:number]))
    for _ in range(2):
        await greet(dialer, server)


async def test_the_depot_that_answers_first_is_taken_again(two, server):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dialer = over(place(silent), two[0].place)
        assert dialer.route("localhost") == "auto"
        for _ in range(2):
            await greet(dialer, server)
            assert dialer.route("localhost") == str(two[0].place)
        silent.accept()[0].close()  # only the first time
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()
    assert await until(lambda: len(two[0].lines) == 2)


async def test_the_depot_that_is_expected_to_be_fastest_is_taken(two, server):
    times = {str(two[0].place): 1.0, str(two[1].place): 0.5, "none": 2.0, "elsewhere.example:4000": 0.1}
    dialer = over(*(each.place for each in two), times=times)
    assert dialer.expected("localhost") == 0.5
    await greet(dialer, server)
    assert await until(lambda: two[1].lines)
    assert not two[0].lines


@pytest.fixture
def unused() -> Iterator[HostPort]:
    """An address at which nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield place(sock)


async def test_a_depot_that_fails_is_not_the_best_any_more(two, server, unused):
    dialer = over(unused, two[0].place, times={str(unused): 0.1, str(two[0].place): 1.0})
    assert dialer.expected("localhost") == 0.1
    await greet(dialer, server)
    assert dialer.expected("localhost") == 1.0
    assert dialer.route("localhost") == str(two[0].place)


@pytest.fixture
def silent() -> Iterator[list[socket.socket]]:
    """Four depots that accept connections, and answer nothing."""
    with ExitStack() as stack:
        made = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(4)]
        for each in made:
            each.setblocking(False)
        yield made


async def test_silent_depots_are_tried_once(server, silent, monkeypatch):
    monkeypatch.setattr("coalloc.depot.automatic.AGAIN", 0.0)  # as if the first had failed long ago
    places = list(map(place, silent))
    dialer = over(*places, times={str(each): number for number, each in enumerate(places, 1)})
    with pytest.raises(Unreachable, match=r"over a depot: the route .* gave no answer in time"):
        async with asyncio.timeout(PATIENCE):
            await dialer.dial("localhost", place(server).port, 0.5)
    for each in silent:
        with suppress(BlockingIOError):
            each.accept()[0].close()
        with pytest.raises(BlockingIOError):
            each.accept()


async def test_a_silent_best_depot_leaves_time_for_the_others(two, server, silent):
    best = place(silent[0])
    dialer = over(best, two[0].place, times={str(best): 0.1})
    with await dialer.dial("localhost", place(server).port, 4.0) as sock:
        assert isinstance(sock, RelayedSocket)
    assert dialer.route("localhost") == str(two[0].place)


@pytest.mark.parametrize("some", [True, False])
async def test_without_a_depot_that_answers_the_server_is_unreachable(server, unused, some: bool):
    dialer = over(*[unused] * some)
    for why in ("refused the connection" if some else "no depot is known", "no depot is known"):
        with pytest.raises(Unreachable, match=f"over a depot: .*{why}"):
            await dialer.dial("localhost", place(server).port, PATIENCE)


async def test_a_server_that_refuses_is_no_fault_of_the_depot(two, server, unused):
    dialer = over(two[0].place)
    with pytest.raises(Unreachable, match="refused the connection"):
        await dialer.dial("127.0.0.1", unused.port, PATIENCE)
    await greet(dialer, server)


async def test_other_servers_are_connected_by_their_own_route(two, server):
    dialer = over(two[0].place, text="ftp.example=auto")
    with await dialer.dial("localhost", place(server).port, PATIENCE) as sock:
        server.accept()[0].close()
        assert not isinstance(sock, RelayedSocket)
    assert dialer.route("localhost") == "none"


async def test_routes_that_are_not_over_one_depot_are_no_candidates():
    async def listed() -> list[HostPort]:
        return []

    times = {"none": 1, "a:4000,b:4000": 0.2, "a:4000,*": 0.3, "auto": 0.1}
    assert over(listed=listed, times=times).expected("localhost") is None


async def test_a_cancelled_dial_leaves_no_connection():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        task = asyncio.create_task(over(place(silent)).dial("127.0.0.1", 9, PATIENCE))
        taken, _ = await asyncio.to_thread(silent.accept)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with taken:
            taken.settimeout(PATIENCE)
            while taken.recv(1000):
                pass


async def test_only_automatic_routes_go_over_the_best_depot():
    dialer = over(text="ftp.example=auto")
    assert dialer.serves("FTP.example")
    assert not dialer.serves("localhost")


async def test_depots_of_a_broker_are_candidates_too(two, server):
    async def listed() -> list[HostPort]:
        return [two[1].place]

    dialer = over(listed=listed, times={str(two[1].place): 1.0, "none": 0.1})
    assert dialer.expected("localhost") == 1.0
    await greet(dialer, server)
    assert await until(lambda: two[1].lines)


@pytest.mark.parametrize(
    ("times", "first"),
    [
        ({}, "direct"),
        ({"none": 0.3, "a:4000": 0.2}, "depot"),
        ({"none": 0.2, "a:4000": 0.3}, "direct"),
        ({"a:4000": 0.2}, "direct"),
        ({"none": 0.3}, "direct"),
    ],
)
def test_the_expected_fastest_route_comes_first_if_all_are_known(times: dict[str, float], first: str):
    routes = DepotRoutes.parse(["auto"], {}, ["a"])
    direct = RelayedDialer(ANYWHERE, routes, times=RouteTimes({"localhost": times}))
    depot = over("a:4000", times=times)
    assert ordered([direct, depot], "localhost")[0] is {"direct": direct, "depot": depot}[first]


async def test_times_that_the_history_lacks_are_asked_for_once():
    asked = []

    async def ask(hosts):
        asked.append(list(hosts))
        return {"a": {"none": 9.0, "d:4000": 2.0}, "b": {"none": 1.0}}

    times = RouteTimes({"a": {"none": 3.0}, "c": {"none": 1.0, "d:4000": 1.0}}, ask)
    await times.learn(["a", "b", "b", "c"])
    await times.learn(["a", "b"])
    assert asked == [["a", "b"]]
    assert [dict(times.to(host)) for host in ("a", "b", "x")] == [{"none": 3.0, "d:4000": 2.0}, {"none": 1.0}, {}]


@pytest.mark.parametrize("error", [Unreachable("the broker is down", ""), TimeoutError()])
async def test_without_an_answer_the_times_stay_unknown(error: Exception):
    async def ask(hosts):
        raise error

    times = RouteTimes({}, ask)
    await times.learn(["a"])
    assert not times.to("a")
