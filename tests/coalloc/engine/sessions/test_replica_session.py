"""Sessions and their slots: when they are taken, and that they are released."""

import asyncio

import pytest

from coalloc.engine import open_source
from coalloc.engine.limits.claims import Claim
from coalloc.engine.limits.server_slots import Slots
from coalloc.engine.sessions import replica_session
from coalloc.engine.sessions.replica_session import server_of
from coalloc.engine.span import Span
from coalloc.errors import NoFreeConnection, NoSuchFile, SourceError, Stalled
from tests.support.fetching import Collected, collect, opened, options, random_file
from tests.support.listening import connections
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE, until

SIZE = 3_000_001


@pytest.fixture
def slots(tmp_path):
    return Slots(tmp_path / "slots", 4)


@pytest.fixture
def content(gridftp_server):
    return random_file(gridftp_server.root / "file", SIZE)


def source_at(url, slots, engine="auto", **more):
    return open_source(url, engine, options(slots=slots, **more))


def held(slots):
    return sum(".slot." in path.name for path in slots.folder.iterdir())


@pytest.mark.parametrize("engine", ["gridftp", "globus-url-copy"])
async def test_a_slot_is_held_from_open_to_close(gridftp_server, content, slots, engine):
    source = source_at(gridftp_server.url("file"), slots, engine)
    async with opened(source):
        assert held(slots) == 1
        assert await collect(source, 10, 1000) == content[10:1000]
        assert held(slots) == 1
    assert held(slots) == 0
    await source.open()  # again
    assert held(slots) == 1
    await source.close()
    await source.close()
    assert held(slots) == 0


@pytest.fixture(params=["http", "https", "ftp"])
def server(request, tmp_path, grid, monkeypatch):
    """A server of each protocol."""
    monkeypatch.setenv("SSL_CERT_FILE", str(grid.authority.certificate))
    if request.param == "ftp":
        yield request.getfixturevalue("gridftp_server")
        return
    keys = (grid.localhost.certificate, grid.localhost.key) if request.param == "https" else ()
    with Nginx(tmp_path / "www", tmp_path / "run", certificate=keys) as server:
        yield server


async def test_connections_are_closed_before_their_slots_are_free(server, slots, monkeypatch):
    """Otherwise, another process might connect while the server still has the connection."""
    release, still_open = Claim.release, []

    def observed(claim):
        still_open.append(connections(server.port))
        release(claim)

    monkeypatch.setattr(Claim, "release", observed)
    content = random_file(server.root / "x", SIZE)
    source = source_at(server.url("x"), slots)
    for end in (source.close, source.rest):
        await source.open()
        assert await collect(source, 0, SIZE) == content
        assert connections(server.port) == 1
        await end()
    assert still_open == [0, 0]
    await source.close()


async def test_source_without_a_free_slot_can_wait_for_one(gridftp_server, content, slots):
    one = Slots(slots.folder, 1)
    first, second = (source_at(gridftp_server.url("file"), one) for _ in range(2))
    await first.open()
    with pytest.raises(NoFreeConnection, match=f"a free connection to 127.0.0.1:{gridftp_server.port}") as caught:
        await second.open()
    assert not caught.value.permanent
    waiting = asyncio.create_task(caught.value.until_free())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await first.close()
    async with asyncio.timeout(PATIENCE):
        await waiting
    assert held(slots) == 1, "it is kept for the second"
    async with opened(second):
        assert await collect(second, 0, SIZE) == content
    assert held(slots) == 0


async def test_failed_open_releases_its_slot(gridftp_server, slots):
    source = source_at(gridftp_server.url("missing"), slots)
    with pytest.raises(NoSuchFile):
        await source.open()
    assert held(slots) == 0
    gridftp_server.pause()
    opening = asyncio.create_task(source.open())
    await until(lambda: held(slots) == 1)
    opening.cancel()
    await asyncio.wait({opening})
    assert held(slots) == 0


async def test_failed_fetch_releases_its_slot_and_the_next_takes_another(gridftp_server, content, slots):
    source = source_at(gridftp_server.url("file"), slots)
    async with opened(source):
        with pytest.raises(SourceError):
            await source.fetch(Span(SIZE, SIZE + 10), Collected(Span(SIZE, SIZE + 10)))
        assert held(slots) == 0
        assert await collect(source, 0, SIZE) == content
        assert held(slots) == 1


@pytest.mark.parametrize("streams", [3, 30])
async def test_no_more_slots_than_streams_and_no_more_streams_than_slots(gridftp_server, slots, streams):
    content = random_file(gridftp_server.root / "big", 10 * SIZE)
    seen, collected = set(), Collected(Span(0, len(content)))

    def deliver(start, end, data):
        seen.add(held(slots))
        collected(start, end, data)

    async with opened(source_at(gridftp_server.url("big"), slots, streams=streams)) as source:
        await source.fetch(collected.span, deliver)
    assert bytes(collected.bytes) == content
    assert 1 <= max(seen) <= min(streams, slots.most)


@pytest.fixture
def slow(tmp_path):
    """A server that sends 4 MB/s per connection, and its file."""
    with Nginx(tmp_path / "www", tmp_path / "run", more="limit_rate 4m;") as server:
        yield server, random_file(server.root / "file", 24_000_000)


async def fetch_and_look(source, slots, size, full):
    """Fetch everything; set `full` when all slots are taken."""
    span = Span(0, size)
    collected = Collected(span)

    def deliver(start, end, data):
        if held(slots) == slots.most:
            full.set()
        collected(start, end, data)

    await source.fetch(span, deliver)
    assert collected.count == size
    return bytes(collected.bytes)


async def test_sessions_that_are_not_granted_are_done_without(slow, slots):
    server, content = slow
    async with opened(source_at(server.url("file"), slots)) as other, opened(source_at(server.url("file"), slots)):
        async with opened(source_at(server.url("file"), slots, streams=4)) as source:
            full = asyncio.Event()
            assert await fetch_and_look(source, slots, len(content), full) == content
            assert full.is_set(), "two of others, two of the four that were wished for"
        assert await collect(other, 0, 10) == content[:10]


async def test_borrowed_slot_is_released_when_another_source_waits(slow, slots):
    server, content = slow
    url = server.url("file")
    full, late = asyncio.Event(), source_at(url, slots)
    async with opened(source_at(url, slots)) as source, opened(source_at(url, slots)):
        source.widen(8)

        async def come():
            await full.wait()
            with pytest.raises(NoFreeConnection) as caught:
                await late.open()
            await caught.value.until_free()
            await late.open()

        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            coming = group.create_task(come())
            fetching = group.create_task(fetch_and_look(source, slots, len(content), full))
            await coming
            assert not fetching.done(), "it was let in while the other one was at work"
            assert await fetching == content
        await late.close()
    assert held(slots) == 0


def test_local_files_take_no_slot(tmp_path, slots):
    content = random_file(tmp_path / "file", 10)

    async def fetch():
        async with opened(source_at(f"file://{tmp_path}/file", slots)) as source:
            assert not slots.folder.exists()
            return await collect(source, 0, 10)

    assert asyncio.run(fetch()) == content


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("ftp://me:secret@HOST/x", "host:21"),
        ("ftp://host:2811/x", "host:2811"),
        ("gsiftp://host/x", "host:2811"),
        ("http://host/x", "host:80"),
        ("https://[::1]/x", "::1:443"),
        ("s3://bucket/x", "bucket:s3"),
        ("file:///x", None),
    ],
)
def test_a_server_is_its_host_and_port(url, server):
    assert server_of(url) == server


@pytest.mark.parametrize("host", ["a%2Fb", "x" * 1000, "ü.example"])
def test_any_host_makes_a_name_for_a_file(host, slots):
    assert slots.take(server_of(f"ftp://{host}/x"))
    assert held(slots) == 1


async def test_a_server_that_falls_silent_is_not_asked_again_for_ever(slow, slots, monkeypatch):
    server, content = slow
    async with opened(source_at(server.url("file"), slots)) as source:
        assert await collect(source, 0, 10_000_000) == content[:10_000_000]  # long enough for another version to appear
        server.pause()
        monkeypatch.setattr(replica_session, "RECHECK", 0.5 / PATIENCE)
        with pytest.raises(Stalled, match="did not answer again"):
            await source.recheck()
        assert held(slots) == 0
        server.resume()
        await until(lambda: answers(source))
        assert await collect(source, 10, 1000) == content[10:1000]


async def answers(source) -> bool:
    """Return whether a source can be opened; a server that was stopped needs a moment."""
    try:
        await source.open()
    except SourceError:
        return False
    return True
