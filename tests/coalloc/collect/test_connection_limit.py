"""The limit of connections to a GridFTP server: collect jobs keep to it, wait for others, and let others go on."""

import asyncio
from contextlib import asynccontextmanager
from random import Random
from urllib.parse import urlsplit

import pytest

from coalloc import api
from coalloc.collect import methods
from coalloc.collect.methods.actions import Piece
from coalloc.collect.runtime import hop_queue
from coalloc.collect.runtime.gridftp_inward import GridFTPInward
from coalloc.collect.runtime.hop import Hop
from coalloc.collect.runtime.hop_queue import HopQueue
from coalloc.collect.runtime.item import CollectItem
from coalloc.collect.runtime.link_waits import LinkWaits
from coalloc.collect.runtime.local_destination import LocalDestination
from coalloc.collect.runtime.server import CollectServer
from coalloc.engine.gridftp import stream
from coalloc.engine.limits.server_slots import Slots
from tests.support.fetching import options, random_file
from tests.support.relaying import Relay
from tests.support.waiting import PATIENCE, until


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("COGET_HISTORY", str(tmp_path / "history.sqlite"))
    monkeypatch.setenv("COGET_CONNECTIONS", "1")
    monkeypatch.setitem(methods.METHODS, Relay.name, type("Own", (Relay,), {}))


@pytest.fixture
def servers(start_gridftp, tmp_path):
    """Two sources, a relay and a destination."""
    (tmp_path / "via" / "lent").mkdir(parents=True)
    return [start_gridftp(tmp_path / name, f"127.0.0.{at}") for at, name in enumerate(("a", "b", "via", "to"), 2)]


def name_of(server):
    return urlsplit(server.url("")).netloc


@asynccontextmanager
async def peaks(servers):
    """Yield the most connections to each server that were counted at any moment."""
    most = {name_of(server): 0 for server in servers}
    claims = Slots.from_environment()._claims

    async def look():
        while True:
            for name in most:
                most[name] = max(most[name], claims.count(f"{name}.slot."))
            await asyncio.sleep(0.002)

    looking = asyncio.create_task(look())
    try:
        yield most
    finally:
        looking.cancel()


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("method", ["adaptive", "relay"])
async def test_jobs_keep_to_the_limit_and_share_it(servers, tmp_path, method, there):
    a, b, via, to = servers
    sizes = dict(enumerate((3_000_000, 0, 500_000)))
    content = {
        f"{n}.{each}": random_file(s.root / f"{n}.{each}", sizes[n]) for s, each in ((a, "a"), (b, "b")) for n in sizes
    }
    sources = tuple(server.url(name) for name in content for server in (a, b) if name.endswith(server.root.name))
    outs = [to.url(out) if there else str(tmp_path / "to" / out) for out in ("x", "y")]
    lent = (via.url("lent"),)
    async with peaks(servers) as most, asyncio.timeout(PATIENCE):
        jobs = [api.collect(api.CollectRequest(sources, out, lent, method)) for out in outs]
        for report in await asyncio.gather(*jobs):
            assert all(file.verified for file in report.files)
    for out in ("x", "y"):
        assert {name: (tmp_path / "to" / out / name).read_bytes() for name in content} == content
    assert max(most.values()) == 1
    assert most[name_of(a)] == most[name_of(b)] == 1
    assert Slots.from_environment()._claims.count(f"{name_of(a)}.slot.") == 0


async def test_a_job_waits_for_others_and_says_so(servers, tmp_path):
    a = servers[0]
    content = random_file(a.root / "x", 1_000_000)
    others = await Slots.from_environment().wait(name_of(a))
    views = []
    job = asyncio.create_task(api.collect(api.CollectRequest((a.url("x"),), str(tmp_path / "out")), watch=views.append))
    words = f"waiting for a free connection to {name_of(a)}"
    await until(lambda: any(words in str(pair.error) for view in views for pair in view.pairs))
    assert not job.done()
    assert not (tmp_path / "out" / "x").exists()
    others.release()
    async with asyncio.timeout(PATIENCE):
        report = await job
    assert (tmp_path / "out" / "x").read_bytes() == content
    assert report.files[0].verified


@pytest.mark.parametrize("waits", ["before", "after"])
async def test_others_get_a_connection_that_is_idle_while_a_piece_is_in_flight(servers, tmp_path, monkeypatch, waits):
    monkeypatch.setenv("COGET_CONNECTIONS", "2")
    server, slots, size = servers[0], Slots.from_environment(), 1_000_000
    source = CollectServer("a", server.url(""), options(slots=slots))
    here, begun, in_line = LocalDestination(tmp_path / "out", overwrite=False), asyncio.Event(), asyncio.Event()
    channel = GridFTPInward(source, here, LinkWaits(lambda held: None))

    async def connect():
        return channel

    async def ready():
        pass

    fetch = stream.fetch

    async def late(*given):
        await in_line.wait()
        await fetch(*given)

    async def made(name, prepare):
        random_file(server.root / name, size)
        await here.begin(CollectItem(name, size, {"a": f"/{name}"}))
        paths = f"{server.root}/{name}", lambda: name
        return Hop(Piece(name, 0, size), ("a", "here"), paths, prepare, lambda _: None)

    queue = HopQueue(connect, pytest.fail, pytest.fail, Random(0))
    try:
        async with asyncio.timeout(PATIENCE):
            first = [await made(name, ready) for name in ("x", "y")]
            for hop in first:  # at once, so that each needs a connection
                queue.begin(hop)
            if waits == "before":
                monkeypatch.setattr(hop_queue, "LOOK_SECONDS", PATIENCE)  # so the end of a piece gives it back
                monkeypatch.setattr(stream, "fetch", late)
                await until(lambda: channel._seats == 2)
                others = asyncio.create_task(slots.wait(source.name))
                await until(lambda: slots._claims.count(f"{source.name}.line."))
                in_line.set()
            await asyncio.gather(*(hop.landed.wait() for hop in first))
            queue.begin(last := await made("z", begun.wait))
            lease = await (others if waits == "before" else slots.wait(source.name))
            assert not last.over
            begun.set()
            await last.landed.wait()
            lease.release()
        assert [hop.error for hop in (*first, last)] == [None] * 3
    finally:
        await queue.close()
        await here.close()
