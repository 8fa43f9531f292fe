"""Directories of collections at servers or on workers' disks: never shown to users."""

import json
import os

import pytest

from broker.handlers.globus import task_documents
from broker.models.tasks import Item
from broker.services.collections.trees import Naming, message_paths
from broker.storage.decisions import DecisionFilter, DecisionStore
from coalloc.errors import CoallocError
from tests.broker.worlds import ANN, register, working, world_at, write
from tests.support.waiting import until


@pytest.fixture
async def world(servers, database, tmp_path):
    async with world_at(servers, database, tmp_path) as world, working(world):
        yield world


async def read_of(world, number):
    """Return everything that its owner can read about a task."""
    task = await world.task(number)
    events, _ = await world.factory.tasks.events(ANN, number, None, 100, 0)
    skipped = await world.factory.tasks.done(ANN, number, "skipped", 0, 10)
    people = await world.factory.identities.people([ANN.subject])
    documents = [
        task_documents.task(task, people, {}, 0.0),
        *map(task_documents.event, events),
        *map(task_documents.skipped, skipped),
    ]
    return json.dumps(documents)


@pytest.mark.parametrize(
    ("origin", "to", "source", "destination", "message"),
    [
        ("source", "sink", "/no such", "/x", "source:/no such: the server says 550"),
        ("source", "sink", "/a b", "/file/x", "sink:/file"),
        ("source", "sink", "/d/", "/d/", "source:/d/gone c: the server says"),
        ("source", "local", "/d/", "/d/", "source:/d/gone c: the server says"),
        ("source", "local", "/a b", "/pipe", "local:/pipe is not a plain file"),
        ("catalogue", "sink", "/cms/data", "/file/x", "sink:/file/"),
        ("source", None, "/no such", "", "source:/no such: the server says"),
    ],
)
async def test_failures_of_tasks_name_paths_of_collections(world, tmp_path, origin, to, source, destination, message):
    write(world.source.root, {"a b": 1, "d/gone c\nd": 2})  # the server lists only the part before the line's end
    write(world.sink.root, {"file": 1})
    os.mkfifo(world.local / "pipe")
    await register(world, "cms:data", b"x" * 1000, world.source)
    kind = "TRANSFER" if to else "DELETE"
    number = await world.submit(kind, [Item(source=source, destination=destination)], to, origin)

    async def trouble():
        return (await world.task(number)).error

    assert message in await until(trouble)
    read = await read_of(world, number)
    replica = f"ftp://{world.source.host}:{world.source.port}{world.source.root}/cms"  # public in the catalogue
    assert str(tmp_path) not in read.replace(replica, "")
    assert "%20" not in read


async def test_skipped_files_are_named_by_the_paths_of_users(world, tmp_path):
    write(world.source.root, {"d/gone c\nd": 2})
    task = await world.done("TRANSFER", [Item(source="/d/", destination="/d/")], skip_source_errors=True)
    assert (task.status, task.skipped) == ("SUCCEEDED", 1)
    assert str(tmp_path) not in await read_of(world, task.id)


async def test_decisions_name_files_as_users_know_them(world, tmp_path):
    write(world.source.root, {"a b": 20_000_000})
    task = await world.done("TRANSFER", [Item(source="/a b", destination="/a")], "local")
    assert task.status == "SUCCEEDED"

    async def decided():
        async with world.factory.database.read() as connection:
            return (await DecisionStore(connection).page(DecisionFilter(), 10)).decisions

    (listed,) = await until(decided)
    kept = await world.factory.decisions.one(ANN, listed.id)
    assert [part.url for part in kept.sources] == ["source:/a b"]
    assert str(tmp_path) not in repr(kept)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("ftp://h:1/data: it says 550 /data is gone", "runs:/: it says 550 / is gone"),
        ("ftp://h:1/data/x: it says 550 '/data/x' or /mnt/data/x", "runs:/x: it says 550 '/x' or /mnt/data/x"),
        ("ftp://h:1/database/x: it says 550 /data/x", "ftp://h:1/database/x: it says 550 /data/x"),
        ("/data/x had 3 bytes", "/data/x had 3 bytes"),  # a path in the collection
    ],
)
def test_paths_that_only_look_like_the_folder_are_left(message, shown):
    with pytest.raises(CoallocError) as raised, message_paths.called(Naming("runs", "/data/", "ftp://h:1")):
        raise CoallocError(message)
    assert (raised.value.message, str(raised.value)) == (shown, shown)


def test_the_inner_of_nested_folders_is_named():
    outer, inner = Naming("all", "/", "ftp://h:1"), Naming("runs", "/data/", "ftp://h:1")
    with pytest.raises(CoallocError, match=r"^runs:/x$"), message_paths.called(outer, inner):
        raise CoallocError("ftp://h:1/data/x")
