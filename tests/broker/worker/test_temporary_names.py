"""Users' files whose names look like partial data: handled like all other files, and kept."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.models.tasks import Item
from broker.models.work import PlannedWork
from broker.storage.work import WorkStore
from broker.worker.temporary_names import folder, temporary, written
from tests.broker.worlds import Servers, World, begun, held, read, working, world_at, write

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
KEY = "0123456789abcdef" * 2
NAMES = [
    *("run2", "run2.coget/data", "run2.coget/journal", "run2.coget/lock", ".run2.coget", "run2.coget.coget/data"),
    *(".run2.0123abcd.coget", ".run2.coget-0123abcd-7", f".run2.coget-{KEY}-7", f".run2.coget-{KEY}-7-1"),
    *(f".run2.coget-{KEY}-7.coget/data", ".coget-staging/x", ".coget-staging-now-12/x", ".coget/data", ".coget-"),
    *("x" * 245, f".{'x' * 200}.coget-0123abcd-7"),
]
TREE = [Item(source="/d/", destination="/d/")]


@pytest.fixture
async def world(servers: Servers, database: str, tmp_path: Path) -> AsyncIterator[World]:
    async with world_at(servers, database, tmp_path) as world, working(world):
        yield world


def root(world: World, to: str) -> Path:
    return world.sink.root if to == "sink" else world.local


@pytest.mark.parametrize("to", ["sink", "local"])
async def test_they_are_copied_as_they_are(world, to):
    files = write(world.source.root, {f"d/{name}": 1000 + i for i, name in enumerate(NAMES)})
    task = await world.over(await world.submit("TRANSFER", TREE, to))
    assert task.status == "SUCCEEDED", task.error
    assert read(root(world, to)) == files


@pytest.mark.parametrize("to", ["sink", "local"])
async def test_a_sync_deletes_files_with_names_only_similar_to_ours(world, to):
    files = write(world.source.root, {"d/a": 10})
    write(root(world, to), {f"d/{name}": 10 for name in NAMES})
    task = await world.over(await world.submit("TRANSFER", TREE, to, delete_destination_extra=True))
    assert task.status == "SUCCEEDED", task.error
    assert read(root(world, to)) == files


@pytest.mark.parametrize("to", ["sink", "local"])
async def test_a_sync_deletes_nothing_of_another_task_under_way(world, to):
    content = write(world.source.root, {"slow": 60_000_000, "d/a": 10})
    await held(world, to, rate=2e6)  # so that it runs until the sync is over
    slow = await world.submit("TRANSFER", [Item(source="/slow", destination="/d/slow")], to)
    await begun(world, slow, 1_000_000)
    task = await world.over(await world.submit("TRANSFER", TREE, to, delete_destination_extra=True))
    assert task.status == "SUCCEEDED", task.error
    await held(world, to, rate=None)
    done = await world.over(slow)
    assert (done.status, done.faults) == ("SUCCEEDED", 0)
    assert read(root(world, to)) == {"d/a": content["d/a"], "d/slow": content["slow"]}


async def test_the_name_of_a_piece_of_work_leads_to_it(world):
    number = await world.submit("TRANSFER", [Item(source="/none", destination="/none")])
    async with world.factory.database.write() as connection:
        works = WorkStore(connection)
        await works.add(number, [PlannedWork("copy", "/a", "/d/" + "x" * 250)])
        (work,) = [each for each in await works.some() if each.kind == "copy"]
    for lost in (0, 3):
        beside = temporary(work.destination, work._replace(lost=lost)).rpartition("/")[2]
        for name in (beside, folder(beside)):
            assert written(name) == work.id
            assert len(os.fsencode(name)) <= 255
