"""Copies between two real servers: whole files, ranges, many at once; servers that refuse, die, stall or fill up."""

import asyncio
import os
from contextlib import AsyncExitStack, closing, suppress
from functools import partial
from pathlib import Path

import pytest

from coalloc import api
from coalloc.errors import (
    ConnectionLost,
    IsDirectory,
    LoginRefused,
    NoSpace,
    NoSuchFile,
    PermissionRefused,
    ReplicaChanged,
    SourceError,
    Stalled,
    Unsupported,
)
from coalloc.util.intervals import Intervals
from tests.support.fetching import random_file
from tests.support.mounts import small_tmpfs
from tests.support.waiting import PATIENCE

SIZE = 3_000_001
HUGE = 64 << 30
"""Size of a sparse file, in bytes: more than is copied before the test continues."""


@pytest.fixture
def servers(start_gridftp, tmp_path):
    return start_gridftp(tmp_path / "source", "127.0.0.2"), start_gridftp(tmp_path / "sink", "127.0.0.3")


@pytest.fixture
async def pair(servers):
    async with await third_party(servers) as pair:
        yield pair


async def third_party(servers, **options):
    source, sink = servers
    return await api.third_party(source.url(""), sink.url(""), **options)


def huge(server):
    path = server.root / "huge"
    path.touch()
    os.truncate(path, HUGE)
    return str(path)


async def until(condition):
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - a file grows, without an event
            await asyncio.sleep(0.01)


def begun(path: Path):
    return lambda: path.exists() and path.stat().st_size > 0


@pytest.mark.parametrize("refusing", ["source", "sink"])
async def test_the_server_that_refuses_the_login_is_named(start_gridftp, tmp_path, refusing):
    ends = [start_gridftp(tmp_path / end, anonymous=end != refusing) for end in ("source", "sink")]
    with pytest.raises(LoginRefused) as caught:
        await third_party(ends)
    assert (caught.value.at_source, caught.value.at_destination) == (refusing == "source", refusing == "sink")


@pytest.mark.parametrize("streams", [1, 4])
async def test_a_file_is_copied_whole_and_in_place_of_what_was_there(servers, streams):
    source, sink = servers
    content = random_file(source.root / "file", SIZE)
    (sink.root / "file").write_bytes(bytes(2 * SIZE))
    kept = Intervals()
    async with await third_party(servers, parallelism=streams) as pair:
        await pair.copy(f"{source.root}/file", f"{sink.root}/file", SIZE, received=kept.add)
        assert pair.usable
    assert (sink.root / "file").read_bytes() == content
    assert list(kept) == [(0, SIZE)]


async def test_ranges_go_to_their_place_and_nothing_else_is_touched(servers, pair):
    source, sink = servers
    content = random_file(source.root / "file", SIZE)
    (sink.root / "file").write_bytes(b"." * 100)
    kept = Intervals()
    ranges = [(10, 20), (1_000_000, 2_000_000), (SIZE - 1, SIZE)]
    await pair.copy(f"{source.root}/file", f"{sink.root}/file", SIZE, ranges, kept.add)
    written = (sink.root / "file").read_bytes()
    assert len(written) == SIZE
    assert all(written[start:end] == content[start:end] for start, end in ranges)
    assert (written[:10], written[20:100]) == (b"." * 10, b"." * 80)
    assert list(kept) == ranges


async def test_many_small_files_on_one_pair(servers, pair):
    source, sink = servers
    sizes = [number * 7 % 300 for number in range(500)]
    contents = [random_file(source.root / f"file {number}", size) for number, size in enumerate(sizes)]
    await asyncio.gather(
        *(
            pair.copy(f"{source.root}/file {number}", f"{sink.root}/-{number}", size)
            for number, size in enumerate(sizes)
        )
    )
    assert [(sink.root / f"-{number}").read_bytes() for number in range(500)] == contents


async def test_refusals_by_the_source_harm_no_other_file(servers, pair):
    source, sink = servers
    content = random_file(source.root / "file", 1000)
    names = [f"{source.root}/file" if number % 3 else f"{source.root}/none" for number in range(100)]
    results = await asyncio.gather(
        *(pair.copy(name, f"{sink.root}/{number}", 1000) for number, name in enumerate(names)), return_exceptions=True
    )
    assert [type(result) for result in results] == [type(None) if number % 3 else NoSuchFile for number in range(100)]
    assert all((sink.root / f"{number}").read_bytes() == content for number in range(100) if number % 3)
    assert not (sink.root / "0").exists()
    assert pair.usable


async def test_bytes_refused_by_the_sink_never_count(start_gridftp, tmp_path):
    source = start_gridftp(tmp_path / "source", "127.0.0.2")
    closed = start_gridftp(tmp_path / "sink", "127.0.0.3", options=["-restrict-paths", f"R{tmp_path}"])
    (source.root / "a").write_bytes(bytes(300_000))
    for _ in range(20):  # sometimes both answers come at once
        received = []
        async with await third_party((source, closed)) as pair:
            copies = [
                pair.copy(str(source.root / "a"), str(closed.root / "a"), end, [(end - 150_000, end)], tell(received))
                for end in (150_000, 300_000)
            ]
            ends = await asyncio.gather(*copies, return_exceptions=True)
        assert [isinstance(end, SourceError) for end in ends] == [True, True]
        assert received == []


def tell(received):
    return lambda start, end: received.append((start, end))


async def test_no_file_counts_as_copied_that_comes_behind_one_the_sink_refuses(servers, pair):
    source, sink = servers
    contents = [random_file(source.root / f"{number}", 1000) for number in range(40)]
    (sink.root / "20").mkdir()
    results = await asyncio.gather(
        *(pair.copy(f"{source.root}/{number}", f"{sink.root}/{number}", 1000) for number in range(40)),
        return_exceptions=True,
    )
    done = [number for number, result in enumerate(results) if result is None]
    assert done == list(range(20))
    assert [(sink.root / f"{number}").read_bytes() for number in done] == contents[:20]
    assert isinstance(results[20], IsDirectory)
    assert {type(result) for result in results[21:]} == {ConnectionLost}
    assert not pair.usable


@pytest.mark.parametrize("size", [999, 1001])
async def test_a_file_of_another_size(servers, pair, size):
    source, sink = servers
    random_file(source.root / "file", 1000)
    with pytest.raises(ReplicaChanged, match="1000"):
        await pair.copy(f"{source.root}/file", f"{sink.root}/file", size)
    await pair.copy(f"{source.root}/file", f"{sink.root}/file", 1000)


@pytest.mark.parametrize("victim", [0, 1])
async def test_a_server_is_killed_in_the_middle(servers, pair, victim):
    source, sink = servers
    copy = asyncio.create_task(pair.copy(huge(source), f"{sink.root}/file", HUGE))
    await until(begun(sink.root / "file"))
    servers[victim].kill()
    with pytest.raises(SourceError) as raised:
        await copy
    assert not raised.value.permanent
    assert not pair.usable


@pytest.mark.parametrize("victim", [0, 1])
async def test_the_end_that_died_is_named_though_the_other_speaks_first(servers, victim):
    survivor = servers[1 - victim]
    async with LateNews(servers[victim], survivor) as late:
        ends = [f"ftp://{server.host}:{port}/" for server, port in zip(late.servers, late.ports, strict=True)]
        ends = ends if victim == 0 else ends[::-1]
        async with await api.third_party(*ends) as pair:
            copy = asyncio.create_task(pair.copy(huge(servers[0]), f"{servers[1].root}/file", HUGE))
            await until(begun(servers[1].root / "file"))
            servers[victim].kill()
            with pytest.raises(ConnectionLost) as raised:
                await copy
            assert servers[victim].host in str(raised.value)
            assert not pair.usable


class LateNews:
    """A proxy of two control connections that reports the first server's death after the other's refusal."""

    def __init__(self, dies, survives):
        self.servers = (dies, survives)
        self.ports = []
        self._refused = asyncio.Event()
        self._stack = AsyncExitStack()

    async def __aenter__(self):
        for number, server in enumerate(self.servers):
            relay = await asyncio.start_server(partial(self._relay, number), server.host, 0)
            self._stack.push_async_callback(relay.wait_closed)
            self._stack.callback(relay.close)
            self.ports.append(relay.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *error):
        await self._stack.aclose()

    async def _relay(self, number, reader, writer):
        server = self.servers[number]
        there, to_there = await asyncio.open_connection(server.host, server.port)
        for each in (writer, to_there):
            self._stack.push_async_callback(gone, each)
        up = asyncio.create_task(self._pass(reader, to_there))
        self._stack.push_async_callback(cancelled, up)
        with suppress(ConnectionError):
            while data := await there.read(65536):
                writer.write(data)
                if number == 1 and b"\n500 " in data:
                    await writer.drain()
                    self._refused.set()
        if number == 0:
            await self._refused.wait()
        writer.close()

    async def _pass(self, reader, writer):
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()


async def cancelled(task):
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def gone(writer):
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@pytest.mark.parametrize("victim", [0, 1])
async def test_a_server_stands_still(servers, victim):
    source, sink = servers
    async with await third_party(servers, stall_seconds=PATIENCE) as pair:
        copy = asyncio.create_task(pair.copy(huge(source), f"{sink.root}/file", HUGE))
        await until(begun(sink.root / "file"))
        servers[victim].pause()
        pair._look.cancel()  # from now on its patience is short
        pair._stall_seconds = 1.0
        pair._look_now()
        with pytest.raises(Stalled):
            await copy
        assert not pair.usable


async def test_after_a_failure_only_what_is_missing_is_copied(servers):
    source, sink = servers
    content = random_file(source.root / "file", 64 << 20)
    kept = Intervals()
    thirds = [(start, min(start + (22 << 20), 64 << 20)) for start in range(0, 64 << 20, 22 << 20)]
    async with await third_party(servers) as pair:

        def received(start, end):
            kept.add(start, end)
            source.end_sessions()

        with suppress(SourceError):
            await pair.copy(f"{source.root}/file", f"{sink.root}/file", 64 << 20, thirds, received)
        assert kept
    async with await third_party(servers) as pair:
        gaps = kept.gaps(0, 64 << 20)
        await pair.copy(f"{source.root}/file", f"{sink.root}/file", 64 << 20, gaps, kept.add)
    assert list(kept) == [(0, 64 << 20)]
    assert (sink.root / "file").read_bytes() == content


async def test_cancelling_ends_the_copy_at_the_servers_too(servers, pair):
    source, sink = servers
    copy = asyncio.create_task(pair.copy(huge(source), f"{sink.root}/file", HUGE))
    await until(begun(sink.root / "file"))
    copy.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copy
    assert not pair.usable
    sizes = [-1]

    def settled():
        sizes.append((sink.root / "file").stat().st_size)
        return len(sizes) > 20 and sizes[-1] == sizes[-20]

    await until(settled)
    assert sizes[-1] < HUGE


async def test_error_of_a_listener_ends_the_copy(servers, pair):
    source, sink = servers
    random_file(source.root / "file", SIZE)

    def received(start, end):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await pair.copy(f"{source.root}/file", f"{sink.root}/file", SIZE, received=received)
    assert not pair.usable


async def test_a_sink_that_is_full(servers, start_gridftp, tmp_path):
    source, _ = servers
    random_file(source.root / "file", 4 << 20)
    with small_tmpfs(tmp_path / "small", 1 << 20) as small, closing(start_gridftp(small, "127.0.0.4")) as sink:
        async with await third_party((source, sink)) as pair:
            with pytest.raises(NoSpace):
                await pair.copy(f"{source.root}/file", f"{small}/file", 4 << 20)


async def test_both_ends_by_certificate(start_gridftp, tmp_path, grid, as_alice):
    env = grid.server_env(grid.localhost)
    source, sink = (
        start_gridftp(tmp_path / name, "127.0.0.1", env=env, anonymous=False) for name in ("source", "sink")
    )
    content = random_file(source.root / "Ünï", SIZE)
    async with await api.third_party(source.url("", "gsiftp"), sink.url("", "gsiftp")) as pair:
        await pair.copy(f"{source.root}/Ünï", f"{sink.root}/Ünï", SIZE)
    assert (sink.root / "Ünï").read_bytes() == content


async def test_a_server_that_insists_on_protected_data_is_named(
    start_gridftp, gsi_server, tmp_path, as_alice, monkeypatch
):
    plain = start_gridftp(tmp_path / "plain", "127.0.0.2")
    monkeypatch.setattr("coalloc.engine.gridftp.thirdparty.UNPROTECTED", ("Q",))
    with pytest.raises(Unsupported, match="501 Bad DCAU mode"):
        await api.third_party(plain.url(""), gsi_server.url("", "gsiftp"))


async def test_a_sink_that_names_a_third_host_is_refused_unless_that_is_allowed(start_gridftp, tmp_path):
    source = start_gridftp(tmp_path / "source", "127.0.0.2")
    sink = start_gridftp(tmp_path / "sink", "127.0.0.3", options=("-data-interface", "127.0.0.9"))
    content = random_file(source.root / "file", SIZE)
    with pytest.raises(PermissionRefused, match=r"127\.0\.0\.9"):
        await api.third_party(source.url(""), sink.url(""))
    async with await api.third_party(source.url(""), sink.url(""), data_hosts=frozenset(["127.0.0.9"])) as pair:
        await pair.copy(f"{source.root}/file", f"{sink.root}/file", SIZE)
    assert (sink.root / "file").read_bytes() == content
