import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from coalloc.depot import dialer as module
from coalloc.depot.dialer import DepotRoutes, RelayedDialer
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.protocol.session_header import Answer
from coalloc.depot.route import DepotRoute
from coalloc.errors import AddressRefused, Unreachable
from coalloc.util.addresses import ANYWHERE, AddressClass, AddressPolicy
from coalloc.util.dialer import RelayedSocket, round_trip
from tests.support.waiting import PATIENCE, until


def over(*places: object, policy: AddressPolicy = ANYWHERE) -> RelayedDialer:
    return RelayedDialer(policy, DepotRoutes(DepotRoute(tuple(places))))


def port(server: socket.socket) -> int:
    return server.getsockname()[1]


async def test_a_connection_looks_like_one_to_the_server(two, server):
    dialer = over(two[0].place, two[1].place)
    with await dialer.dial("localhost", port(server), PATIENCE) as sock, closing(server.accept()[0]) as far:
        assert sock.getpeername() == ("127.0.0.1", port(server))
        assert not sock.getblocking()
        assert round_trip(sock) > 0
        far.sendall(b"banner")
        assert await asyncio.get_running_loop().sock_recv(sock, 10) == b"banner"
    assert "127.0.0.1" in await dialer.addresses("localhost")


async def test_a_transport_knows_the_server_and_the_whole_round_trip(two, server):
    sock = await over(two[0].place).dial("127.0.0.1", port(server), PATIENCE)
    assert isinstance(sock, RelayedSocket)
    sock.further = 5.0
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=sock)
    assert transport.get_extra_info("peername") == ("127.0.0.1", port(server))
    assert round_trip(transport.get_extra_info("socket")) > 5.0
    transport.abort()
    await asyncio.sleep(0)  # the loop closes the socket in its next round


async def test_a_depot_cannot_claim_longer_round_trips_than_its_answer_took(server):
    over_now = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(Answer(None, (1e14,)).encode())
        await reader.read()
        writer.close()
        await writer.wait_closed()
        over_now.set()

    depot = await asyncio.start_server(answer, "127.0.0.1", 0)
    place = HostPort(*depot.sockets[0].getsockname())
    with await over(place).dial("127.0.0.1", port(server), PATIENCE) as sock:
        assert round_trip(sock) < PATIENCE
    await over_now.wait()
    depot.close()
    await depot.wait_closed()


async def test_a_route_that_fails_is_left_alone_for_a_while(server, unused, caplog):
    dialer = over(HostPort("127.0.0.1", unused))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with await dialer.dial("127.0.0.1", port(server), PATIENCE) as sock:
                assert sock.getpeername() == ("127.0.0.1", port(server))
    (message,) = caplog.messages
    assert (
        message == f"depot 127.0.0.1:{unused} refused the connection; connecting to 127.0.0.1:{port(server)} directly"
    )


@pytest.fixture
def unused() -> Iterator[int]:
    """A port at which nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


@contextmanager
def silent() -> Iterator[socket.socket]:
    """A depot that accepts connections, and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


async def test_a_depot_that_does_not_answer_costs_a_moment(server, monkeypatch, caplog):
    monkeypatch.setattr(module, "HEAD_START", 0.05)
    with silent() as depot, caplog.at_level(logging.WARNING):
        sock = await over(HostPort("127.0.0.1", port(depot))).dial("127.0.0.1", port(server), PATIENCE)
        sock.close()
        given_up, _ = depot.accept()
        with given_up:
            while given_up.recv(1000):  # the request, then the end
                pass
    assert "is slow; connecting to" in caplog.text


async def test_a_slow_route_is_taken_if_the_direct_way_fails(two, monkeypatch):
    monkeypatch.setattr(module, "HEAD_START", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sock = await over(two[0].place).dial("127.0.0.1", port(listener), PATIENCE)
        assert sock.getpeername() == ("127.0.0.1", port(listener))
        sock.close()


async def test_direct_error_is_raised_if_both_routes_fail(two, unused):
    with pytest.raises(Unreachable, match=f"127.0.0.1:{unused} refused the connection"):
        await over(two[0].place).dial("127.0.0.1", unused, PATIENCE)


async def test_addresses_are_judged_before_a_depot_learns_them(two, server):
    dialer = over(two[0].place).under(AddressPolicy(AddressClass.PUBLIC))
    for host in ("127.0.0.1", "localhost", "127.1"):
        with pytest.raises(AddressRefused):
            await dialer.dial(host, port(server), PATIENCE)
    assert two[0].lines == []


async def test_a_server_may_have_a_route_of_its_own(two, server):
    routes = DepotRoutes.parse([str(two[0].place), f"LOCALHOST={two[1].place}"], {})
    dialer = RelayedDialer(ANYWHERE, routes)
    for host in ("localhost", "127.0.0.1"):  # the second as for a data connection
        (await dialer.dial(host, port(server), PATIENCE)).close()
    (await RelayedDialer(ANYWHERE, routes).dial("127.0.0.1", port(server), PATIENCE)).close()
    for _ in range(3):
        server.accept()[0].close()
    assert await until(lambda: (len(two[0].lines), len(two[1].lines)) == (1, 2))


async def test_a_cancelled_attempt_leaves_no_connection(server):
    with silent() as depot:
        task = asyncio.create_task(over(HostPort("127.0.0.1", port(depot))).dial("127.0.0.1", port(server), PATIENCE))
        taken, _ = await asyncio.to_thread(depot.accept)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with taken:
            while taken.recv(1000):
                pass


@pytest.mark.parametrize("text", ["", "*", "a,a", "a:b", "a,,b", "x=*", ",".join(f"h{n}" for n in range(9)), "none,*"])
def test_other_text_is_no_route(text: str):
    with pytest.raises(ValueError, match=r"."):
        DepotRoutes.parse([text], {})
