"""Rate limits of collections, over all workers: real servers, both databases.

Tests check only upper bounds of the rate, by their own clock, and allow one piece more, which may move at once.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from broker.config.settings import Settings
from broker.errors import Unavailable
from broker.factory import Factory
from broker.models.catalogue import CatalogueReplica, Dataset, Endpoint
from broker.models.collections import NewCollection
from broker.models.tasks import Item, Task
from broker.schema.collections import collections
from broker.schema.tasks import lanes
from broker.storage.collections import CollectionStore
from broker.storage.database import addressed
from broker.storage.lanes import LaneStore
from broker.storage.migration import upgrade
from broker.worker import worker
from broker.worker.rate_limits import RateLimits, RateReservations
from tests.broker.worker.test_traces import decided
from tests.broker.worlds import ANN, Servers, World, begun, held, read, register, working, world_at, world_of, write
from tests.support.gridftp import GridFTPServer
from tests.support.nginx import Nginx
from tests.support.postgres import postgres
from tests.support.waiting import PATIENCE, until

RATE = 2_000_000
SIZE = 3 * RATE
FILE = [Item(source="/a", destination="/a")]
DATASET = [Item(source="/cms/a", destination="/a")]


@pytest.fixture
async def world(servers: Servers, database: str, tmp_path: Path) -> AsyncIterator[World]:
    async with world_at(servers, database, tmp_path) as world, working(world):
        yield world


async def paced(world: World, *numbers: str, since: float, rate: float = RATE) -> Task:
    """Wait for these tasks, check that no more bytes came than the rate allows plus one piece; return the last one."""
    async with asyncio.timeout(PATIENCE):
        while True:
            tasks = [await world.task(number) for number in numbers]
            moved = sum(task.bytes_transferred for task in tasks)
            assert moved <= rate * (time.time() - since) + rate
            if all(task.status != "ACTIVE" for task in tasks):
                break
            await asyncio.sleep(0.02)
    assert {task.status for task in tasks} == {"SUCCEEDED"}, tasks[-1].error
    assert sum(task.faults for task in tasks) == 0
    assert max(task.completed_at or 0.0 for task in tasks) - since >= (moved - rate) / rate
    return tasks[-1]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("limited", ["source", "local"])
async def test_a_download_into_a_folder_keeps_the_rate_of_either_end(world, limited):
    files = write(world.source.root, {"a": SIZE})
    await held(world, limited, rate=RATE)
    since = time.time()
    await paced(world, await world.submit("TRANSFER", FILE, "local"), since=since)
    assert read(world.local) == files


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("to", "limited"), [("sink", "sink"), ("local", "local"), ("sink", "source")])
async def test_a_dataset_comes_at_the_rate_of_where_it_goes_and_where_it_is(world, tmp_path, to, limited):
    """The limit of the source counts: a collection at the server of the only replica, which the task does not name."""
    content = os.urandom(SIZE)
    with GridFTPServer(tmp_path / "other", "127.0.0.3") as other:
        servers = [world.source] if limited == "source" else [world.source, other]
        await register(world, "cms:a", content, *servers)
        await held(world, limited, rate=RATE)
        since = time.time()
        await paced(world, await world.submit("TRANSFER", DATASET, to, "catalogue"), since=since)
    assert ((world.sink.root if to == "sink" else world.local) / "a").read_bytes() == content


@pytest.mark.parametrize("to", ["sink", "local"])
async def test_only_the_limited_one_of_several_replicas_is_slowed_down(world, tmp_path, to):
    content = os.urandom(20 * RATE)
    with GridFTPServer(tmp_path / "other", "127.0.0.3") as other:
        await register(world, "cms:a", content, world.source, other)
        await held(world, "source", rate=RATE)
        number = await world.submit("TRANSFER", DATASET, to, "catalogue")
        task = await world.over(number)
        kept = await decided(world, number)
    assert (task.status, task.faults) == ("SUCCEEDED", 0), task.error
    (limited,) = [each for each in kept.sources if each.source.endswith(f":{world.source.port}")]
    assert limited.bytes <= RATE * kept.listed.seconds + RATE
    assert ((world.sink.root if to == "sink" else world.local) / "a").read_bytes() == content


async def test_replicas_at_web_servers_come_at_the_rate_of_the_folder(world, tmp_path):
    content = os.urandom(SIZE)
    with Nginx(tmp_path / "web", tmp_path / "nginx") as web:
        (web.root / "a").write_bytes(content)
        where = Endpoint(name="web", site="here", scheme="http", host=web.host, port=web.port)
        await world.factory.places.put_endpoint("root", where)
        checksums = {"md5": hashlib.md5(content).hexdigest()}
        await world.factory.catalogue.put("root", Dataset(name="cms:a", size=SIZE, checksums=checksums))
        await world.factory.catalogue.put_replica("root", CatalogueReplica(dataset="cms:a", endpoint="web"))
        await held(world, "local", rate=RATE)
        since = time.time()
        await paced(world, await world.submit("TRANSFER", DATASET, "local", "catalogue"), since=since)
    assert (world.local / "a").read_bytes() == content


async def test_two_workers_share_a_rate(servers, database, tmp_path, monkeypatch):
    for name, value in (("MOST_LANES", 1), ("LOOK", 0.2)):  # each has one, and looks for it
        monkeypatch.setattr(worker, name, value)
    async with world_at(servers, database, tmp_path) as world:
        write(world.source.root, {"a": SIZE, "b": SIZE})
        await held(world, "source", rate=RATE)
        second = World(Factory.of(Settings(database, site="here"), compiled=False), *world[1:])
        async with working(world), working(second):
            since = time.time()
            fetched = await world.submit("TRANSFER", FILE, "local")
            copied = await world.submit("TRANSFER", [Item(source="/b", destination="/b")])
            await until(lambda: workers_of(world, 2))
            await paced(world, fetched, copied, since=since)
        second.factory.trees.close()
        await second.factory.database.close()


async def workers_of(world: World, count: int) -> bool:
    """Return whether this many workers are busy."""
    async with world.factory.database.read() as connection:
        return len({row.worker for row in await connection.execute(lanes.select())}) == count


async def test_a_stopped_task_frees_its_reserved_rate_within_moments(world):
    """The limit holds for any number of files in flight; here four."""
    write(world.source.root, {f"d/{i}": 10 * RATE for i in range(8)})
    await held(world, "source", rate=RATE)
    number = await world.submit("TRANSFER", [Item(source="/d/", destination="/d/")], "local")
    await begun(world, number, RATE)
    await world.factory.tasks.cancel(ANN, number)
    async with world.factory.database.read() as connection:
        promised = max(row.rate_until for row in await connection.execute(collections.select()))
    assert promised <= time.time() + 2.5  # two pieces of a second each


async def test_a_clock_that_is_set_back_holds_up_no_bytes(world):
    await held(world, "source", rate=RATE)
    async with world.factory.database.write() as connection:
        await connection.execute(collections.update().values(rate_until=time.time() + 90_000))
        waits = [await LaneStore(connection).reserve([str(world.collections["source"])], RATE) for _ in range(2)]
    assert max(waits) <= 1.1


async def test_a_database_crash_does_not_fail_copies_under_way(tmp_path):
    """A failed copy stores nothing: without a database it waits for the rate limiter."""
    content = os.urandom(SIZE)
    with postgres() as server:
        database = server.create()
        upgrade(addressed(database))
        async with world_of(database, tmp_path) as world, working(world):
            await register(world, "cms:a", content, world.source)
            await held(world, rate=RATE)
            number = await world.submit("TRANSFER", DATASET, origin="catalogue")
            await begun(world, number, 1)
            await asyncio.to_thread(server.crash)
            with suppress(Unavailable):  # the pool finds out which of its connections are gone
                await world.task(number)
            task = await world.over(number)
    assert (task.status, task.faults) == ("SUCCEEDED", 0), task.error
    assert (world.sink.root / "a").read_bytes() == content


async def test_a_rate_limits_its_folder_under_every_name(world):
    """A folder's limit holds through its own or an enclosing collection, or a replica's address, and for it alone."""
    async with world.factory.database.write() as connection:
        kept = CollectionStore(connection)
        for name, base, rate in (("inner", "/d e/", 10.0), ("deep", "/d e/f/", 5.0)):
            new = NewCollection(name=name, endpoint="source", base=base, rate=rate)
            await kept.put(uuid4(), "ann", new, time.time())
        limited = await kept.limited()

    def piece(url: str, *pair: str) -> int | None:
        admission = RateLimits(RateReservations(world.factory.database), limited, pair, {}).of(url)
        return admission and admission.piece

    assert [piece(world.source.url(path)) for path in ("d e/a", "d e/f/a", "d ee/a", "a")] == [10, 5, None, None]
    assert [piece("http://elsewhere.example/d%20e/f/a", each.id) for each in limited] == [10, 5]
