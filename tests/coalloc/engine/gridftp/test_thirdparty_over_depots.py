"""Copies between two real servers whose data go over a real depot, and directly where that fails."""

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path

import pytest

from coalloc import api
from coalloc.depot import data_routes
from coalloc.depot.data_routes import DataRoutes, DepotPort
from coalloc.depot.dialer import DepotRoutes
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.protocol.failures import DepotFailure
from coalloc.depot.protocol.session_header import Answer
from coalloc.engine.gridftp import thirdparty
from coalloc.errors import PermissionRefused, SourceError
from coalloc.util.intervals import Intervals
from tests.support.depot import LOOPBACK, RunningDepot, depots
from tests.support.fetching import random_file
from tests.support.scripted import raw_server
from tests.support.waiting import until

SIZE = 3_000_001
LARGE = 64 << 20


@pytest.fixture
def servers(start_gridftp, tmp_path):
    """A source that connects to others from its own address, and a sink."""
    return start_gridftp(tmp_path / "source", "127.0.0.1"), start_gridftp(tmp_path / "sink", "127.0.0.3")


@pytest.fixture
def depot(tmp_path: Path) -> Iterator[RunningDepot]:
    """A depot that may connect to this machine."""
    with depots(tmp_path, LOOPBACK) as (running,):
        yield running


def over(*routes: object) -> DataRoutes:
    return DataRoutes(DepotRoutes.parse(list(map(str, routes)), {}))


def relayed(depot: RunningDepot) -> int:
    """Return the bytes that a depot has carried to the sink, in connections that have ended."""
    return sum(line["up"] for line in depot.lines if "up" in line)


async def third_party(servers, via: DataRoutes, **options):
    source, sink = servers
    return await api.third_party(source.url(""), sink.url(""), via=via, **options)


async def copied(servers, via: DataRoutes) -> tuple[str, str]:
    """Copy a file, check it, and return the route and the notice of its pair of sessions."""
    source, sink = servers
    content = random_file(source.root / "file", SIZE)
    async with await third_party(servers, via) as pair:
        await pair.copy(f"{source.root}/file", f"{sink.root}/file", SIZE)
        assert (sink.root / "file").read_bytes() == content
        return pair.route, pair.notice


@pytest.mark.parametrize("streams", [1, 4, 8])
async def test_files_and_ranges_arrive_over_the_depot_byte_for_byte(servers, depot, streams):
    source, sink = servers
    content = random_file(source.root / "file", SIZE)
    kept = Intervals()
    async with await third_party(servers, over(depot.place), parallelism=streams) as pair:
        for _ in range(3):
            await pair.copy(f"{source.root}/file", f"{sink.root}/whole", SIZE)
        ranges = [(0, 10), (1_000_000, 2_000_000), (SIZE - 1, SIZE)]
        await pair.copy(f"{source.root}/file", f"{sink.root}/parts", SIZE, ranges, kept.add)
        assert (pair.route, pair.notice, pair.usable) == (str(depot.place), "", True)
    assert (sink.root / "whole").read_bytes() == content
    written = (sink.root / "parts").read_bytes()
    assert all(written[start:end] == content[start:end] for start, end in ranges)
    assert list(kept) == ranges
    await until(lambda: relayed(depot) > 3 * SIZE + 1_000_000)
    assert {line["peer"] for line in depot.lines} == {"127.0.0.1"}


async def test_many_small_files_on_one_pair(servers, depot):
    source, sink = servers
    contents = [random_file(source.root / f"{number}", number * 7 % 300) for number in range(300)]
    async with await third_party(servers, over(depot.place)) as pair:
        copies = (
            pair.copy(f"{source.root}/{number}", f"{sink.root}/-{number}", len(content))
            for number, content in enumerate(contents)
        )
        await asyncio.gather(*copies)
        assert pair.route == str(depot.place)
    assert [(sink.root / f"-{number}").read_bytes() for number in range(300)] == contents


async def test_both_ends_by_certificate(start_gridftp, tmp_path, grid, as_alice, depot):
    env = grid.server_env(grid.localhost)
    names = ("source", "sink")
    source, sink = (start_gridftp(tmp_path / name, "127.0.0.1", env=env, anonymous=False) for name in names)
    content = random_file(source.root / "file", SIZE)
    ends = source.url("", "gsiftp"), sink.url("", "gsiftp")
    async with await api.third_party(*ends, via=over(depot.place)) as pair:
        await pair.copy(f"{source.root}/file", f"{sink.root}/file", SIZE)
        assert pair.route == str(depot.place)
    assert (sink.root / "file").read_bytes() == content


async def test_servers_that_authenticate_each_other_do_so_over_the_depot(
    start_gridftp, tmp_path, grid, as_alice, depot, monkeypatch
):
    monkeypatch.setattr(thirdparty, "UNPROTECTED", ("Q",))  # so the servers insist
    env, names = grid.server_env(grid.localhost), ("source", "sink")
    source, sink = (start_gridftp(tmp_path / name, "127.0.0.1", env=env, anonymous=False) for name in names)
    content = random_file(source.root / "file", SIZE)
    ends, allowed = (source.url("", "gsiftp"), sink.url("", "gsiftp")), frozenset({source.host})
    async with await api.third_party(*ends, via=over(depot.place), delegate=allowed) as pair:
        await pair.copy(f"{source.root}/file", f"{sink.root}/file", SIZE)
        assert pair.route == str(depot.place)
    assert (sink.root / "file").read_bytes() == content


async def test_over_ipv6(start_gridftp, tmp_path):
    servers = [start_gridftp(tmp_path / name, "::1") for name in ("source", "sink")]
    options = ("--destinations", "[::1/128]", "--listen", "[::1]:0")
    with depots(tmp_path, options) as (depot,):
        assert await copied(servers, over(depot.place)) == (str(depot.place), "")
        await until(lambda: relayed(depot) >= SIZE)


async def test_a_depot_of_the_other_ip_version_is_not_used(servers, tmp_path):
    with depots(tmp_path, (*LOOPBACK, "--listen", "[::1]:0")) as (depot,):
        route, notice = await copied(servers, over(depot.place))
        assert route == "none"
        assert "the IP versions differ" in notice


async def test_routes_are_for_receiving_servers(servers, depot):
    sink = servers[1].host
    assert await copied(servers, over(depot.place, f"{sink}=none")) == ("none", "")
    assert await copied(servers, over(f"{sink}={depot.place}")) == (str(depot.place), "")
    assert await copied(servers, over("none")) == ("none", "")


@pytest.mark.parametrize("route", ["auto", "a.example,b.example", "a.example,*", "x.example=auto"])
def test_only_single_depots_are_routes_between_servers(route):
    with pytest.raises(ValueError, match="not a single depot"):
        over(route)


async def test_a_dead_depot_is_left_out_with_a_note_and_not_tried_for_each_pair(servers, depot, caplog):
    depot.stop(signal.SIGKILL)
    via = over(depot.place)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            route, notice = await copied(servers, via)
            assert route == "none"
            assert str(depot.place) in notice
    assert caplog.text.count("servers connect to 127.0.0.3 directly") == 1


async def test_a_depot_that_refuses_is_left_out(servers, tmp_path):
    with depots(tmp_path, ("--destinations", "192.0.2.0/24")) as (depot,):
        route, notice = await copied(servers, over(depot.place))
    assert route == "none"
    assert "may not connect to 127.0.0.3" in notice


async def scripted(answer: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(answer)
    await reader.read()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(DepotFailure("malformed", "the session header is malformed")).encode(), "too old to open ports"),
        (Answer(None, (0.1,)).encode(), "its answer has no port"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the answer is not a depot's"),
        (b"", "gave no answer in time"),
    ],
)
async def test_depot_without_ports_is_left_out_with_a_reason(servers, monkeypatch, answer, why):
    if not answer:
        monkeypatch.setattr(data_routes, "OPEN_SECONDS", 0.5)
    async with raw_server(partial(scripted, answer)) as port:
        route, notice = await copied(servers, over(f"127.0.0.1:{port}"))
    assert route == "none"
    assert why in notice


async def test_a_depot_at_an_inner_address_is_not_shown_to_an_outer_server(depot):
    via = over(depot.place)
    assert await via.port("x", depot.place, "192.0.2.1", 1) is None
    assert "internal address" in via.why_direct("x")
    await until(lambda: [line for line in depot.lines if "strangers" in line])


@asynccontextmanager
async def picky(server) -> AsyncIterator[int]:
    """Run a proxy of a server's control connection that refuses to connect to this machine; yield its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_there = await asyncio.open_connection(server.host, server.port)

        async def back() -> None:
            while data := await there.read(1 << 16):
                writer.write(data)
            writer.close()

        going = asyncio.create_task(back())
        try:
            while line := await reader.readline():
                if line.startswith(b"PORT 127,0,0,1,"):
                    writer.write(b"500 Illegal PORT command\r\n")
                else:
                    to_there.write(line)
        finally:
            to_there.close()
            going.cancel()

    async with raw_server(serve, server.host) as port:
        yield port


async def test_a_source_that_refuses_the_depots_address_connects_directly(servers, depot):
    source, sink = servers
    content = random_file(source.root / "file", SIZE)
    async with picky(source) as port:
        via = over(depot.place)
        async with await api.third_party(f"ftp://{source.host}:{port}/", sink.url(""), via=via) as pair:
            assert pair.route == "none"
            assert "500 Illegal PORT command" in pair.notice
            await pair.copy(f"{source.root}/file", f"{sink.root}/file", SIZE)
    assert (sink.root / "file").read_bytes() == content
    await until(lambda: [line for line in depot.lines if "strangers" in line])  # the port was closed


async def test_a_source_whose_data_come_from_another_address_is_a_stranger_and_then_copies_directly(
    start_gridftp, tmp_path, depot, caplog
):
    servers = start_gridftp(tmp_path / "source", "127.0.0.2"), start_gridftp(tmp_path / "sink", "127.0.0.3")
    via = over(depot.place)
    with pytest.raises(SourceError) as failed, caplog.at_level(logging.WARNING):
        await copied(servers, via)
    assert not failed.value.permanent
    assert f"depot {depot.place}" in caplog.text
    route, notice = await copied(servers, via)
    assert route == "none"
    assert str(depot.place) in notice
    await until(lambda: [line for line in depot.lines if line.get("strangers")])


async def test_after_the_depot_was_killed_in_the_middle_the_rest_is_copied_directly(servers, depot):
    source, sink = servers
    content = random_file(source.root / "file", LARGE)
    kept, via = Intervals(), over(depot.place)
    quarters = [(start, start + LARGE // 4) for start in range(0, LARGE, LARGE // 4)]

    def received(start: int, end: int) -> None:
        kept.add(start, end)
        depot.process.kill()

    with suppress(SourceError):
        async with await third_party(servers, via) as pair:
            await pair.copy(f"{source.root}/file", f"{sink.root}/file", LARGE, quarters, received)
    had = kept.total
    assert 0 < had < LARGE
    async with await third_party(servers, via) as pair:
        assert pair.route == "none"
        assert str(depot.place) in pair.notice
        await pair.copy(f"{source.root}/file", f"{sink.root}/file", LARGE, kept.gaps(0, LARGE), kept.add)
    assert list(kept) == [(0, LARGE)]
    assert (sink.root / "file").read_bytes() == content


async def test_the_reason_of_a_connection_that_was_not_relayed_is_known(depot):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        to = HostPort(*listener.getsockname())
    port = await over(depot.place).port("x", to, "127.0.0.1", 1)
    with closing(port):
        assert port.trouble() == ""
        with suppress(ConnectionResetError):  # the depot may end the connection before it is noticed here
            _, writer = await asyncio.open_connection(port.host, port.port)
            writer.close()
        assert f"{to} refused the connection" in await until(port.trouble)
        assert "has closed the port" in await until_other(port)


async def until_other(port: DepotPort) -> str:
    """Return what is known once the depot has ended the session."""
    port.session.send(b"x")
    return await until(port.trouble)


async def test_a_refusal_of_the_sink_is_not_blamed_on_the_depot(start_gridftp, tmp_path, depot):
    source = start_gridftp(tmp_path / "source", "127.0.0.1")
    sink = start_gridftp(tmp_path / "sink", "127.0.0.3", options=["-restrict-paths", f"R{tmp_path}"])
    random_file(source.root / "file", SIZE)
    via = over(depot.place)
    for _ in range(2):
        async with await third_party((source, sink), via) as pair:
            assert pair.route == str(depot.place)
            with pytest.raises(PermissionRefused):
                await pair.copy(f"{source.root}/file", f"{sink.root}/file", SIZE)


async def test_a_cancelled_copy_leaves_no_port_and_blames_no_depot(servers, depot):
    source, sink = servers
    random_file(source.root / "file", LARGE)
    via = over(depot.place)
    async with await third_party(servers, via) as pair:
        copy = asyncio.create_task(pair.copy(f"{source.root}/file", f"{sink.root}/file", LARGE))
        await until((sink.root / "file").exists)
        copy.cancel()
        with suppress(asyncio.CancelledError):
            await copy
    await until(lambda: [line for line in depot.lines if "strangers" in line])
    assert via.why_direct(sink.host) == ""


async def test_a_co_allocated_copy_goes_on_directly_when_the_depot_dies(servers, depot):
    source, sink = servers
    content = random_file(source.root / "file", LARGE)

    pieces: list[int] = []

    async def admit(nbytes: int) -> None:
        pieces.append(nbytes)
        if len(pieces) == 3:  # the first two have arrived over the depot
            depot.process.kill()

    limits = {source.url("file"): api.Admission(LARGE // 4, admit)}
    report = await api.copy([source.url("file")], sink.url("out"), limits=limits, via=over(depot.place))
    assert (sink.root / "out").read_bytes() == content
    (used,) = report.sources
    assert [use.route for use in used.routes] == [str(depot.place), "none"]
    assert all(use.bytes for use in used.routes)
    assert report.size == LARGE
