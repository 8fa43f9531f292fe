"""Deletion by a sync: only certain extras; never after an incomplete listing, and never at the source."""

import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from broker.models.catalogue import Endpoint
from broker.models.collections import NewCollection
from broker.models.tasks import Item
from broker.storage.collections import CollectionStore
from broker.worker.actions.pruning import Pruning
from tests.broker.worlds import ANN, Servers, World, read, working, world_at, write

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)  # decisions here need no database


@pytest.fixture
async def world(servers: Servers, database: str, tmp_path: Path) -> AsyncIterator[World]:
    async with world_at(servers, database, tmp_path) as world, working(world):
        yield world


async def synced(world: World, *items: Item, to: str = "sink", origin: str = "source", **options: object):
    """Run a sync of these items, or of /d/ to /d/; return the task, and its events about skipped deletions."""
    options = {"delete_destination_extra": True, **options}
    wanted = list(items) or [Item(source="/d/", destination="/d/")]
    task = await world.over(await world.submit("TRANSFER", wanted, to, origin, **options))
    events, _ = await world.factory.tasks.events(ANN, task.id, None, 100, 0)
    messages = [event.details for event in events if event.code == "DELETE_DESTINATION_EXTRA_SKIPPED"]
    assert task.status == "SUCCEEDED", task.error
    return task, messages


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_no_extra_file_is_deleted_in_a_folder_with_an_incomplete_listing(world):
    files = write(world.source.root, {"d/in/a": 1, "d/all/b": 1})
    (world.source.root / "d/in/gone").symlink_to("/mount/that/is/away")
    kept = write(world.sink.root, {"d/in/gone": 5, "d/in/other": 5})
    write(world.sink.root, {"d/all/extra": 5})
    task, messages = await synced(world, recursive_symlinks="copy")
    assert read(world.sink.root) == files | kept
    assert task.folders_not_cleared == 1
    assert messages == [
        "nothing in /d/in/ is deleted: the source's server counts 1 entries more than it names, for example "
        "dangling links"
    ]


async def test_an_incomplete_listing_is_not_reported_without_extra_files(world):
    write(world.source.root, {"d/a": 1})
    (world.source.root / "d/gone").symlink_to("nowhere")
    task, messages = await synced(world, recursive_symlinks="copy")
    assert (task.folders_not_cleared, messages) == (0, [])


@pytest.mark.parametrize("to", ["sink", "local"])
async def test_no_file_is_deleted_through_a_link_at_the_destination(world, to, tmp_path):
    write(world.source.root, {"d/sub/deep/a": 1, "d/b": 1})
    root = world.sink.root if to == "sink" else world.local
    kept = write(tmp_path / "outside", {"one": 5, "deep/two": 5})
    write(root, {"d/extra": 5})
    (root / "d/sub").symlink_to(tmp_path / "outside")
    if to == "local":  # where no link is followed
        number = await world.submit(
            "TRANSFER", [Item(source="/d/", destination="/d/")], to, delete_destination_extra=True
        )
        assert (await world.over(number)).status == "FAILED"
        assert read(tmp_path / "outside") == kept
        return
    task, messages = await synced(world)
    assert {name: read(tmp_path / "outside").get(name) for name in kept} == kept
    assert task.folders_not_cleared == 2
    assert not (root / "d/extra").exists()
    assert "a symbolic link at the destination leads there" in messages[0]


async def test_an_extra_link_is_deleted_and_its_target_is_kept(world, tmp_path):
    write(world.source.root, {"d/b": 1})
    kept = write(tmp_path / "outside", {"one": 5})
    write(world.sink.root, {"d/extra": 5})
    (world.sink.root / "d/sub").symlink_to(tmp_path / "outside")
    await synced(world)
    assert names(world.sink.root / "d") == ["b"]
    assert read(tmp_path / "outside") == kept


async def beside(world: World, base: str, host: str = "", prefix: str | None = None) -> None:
    """Return another collection at the source's server, which is called "sink" from now on."""
    where = {"scheme": "ftp", "host": host or world.source.host, "port": world.source.port}
    endpoint = Endpoint(name="again", site="here", prefix=prefix or f"{world.source.root}/", **where)
    await world.factory.places.put_endpoint("root", endpoint)
    number = world.collections["sink"] = uuid4()
    async with world.factory.database.write() as connection:
        new = NewCollection(name="again", endpoint="again", base=base)
        await CollectionStore(connection).put(number, "ann", new, time.time())


@pytest.mark.parametrize(
    ("source", "to", "base", "host"),
    [
        ("/t/new/", "/t/", None, ""),
        ("/t/new/", "/", None, ""),
        ("/t/new/", "/", "/t/", ""),
        ("/t/new/", "/", "/t/", "localhost"),
    ],
)
async def test_a_source_in_the_destination_is_not_deleted(world, source, to, base, host):
    files = write(world.source.root, {"t/new/a": 1, "t/new/deep/b": 1})
    write(world.source.root, {"t/old": 5})
    if base:
        await beside(world, base, host)
    _, messages = await synced(world, Item(source=source, destination=to), to="sink" if base else "source")
    there = read(world.source.root)
    assert {name: there.get(name) for name in files} == files
    assert "it is the source of the task, is inside it, or contains it" in messages[0]
    assert ("t/old" in there) == (to == "/" and not base)


async def test_a_source_that_the_destination_reaches_by_a_link_is_not_deleted(world, tmp_path):
    files = write(world.source.root, {"t/new/a": 1})
    (tmp_path / "alias").symlink_to(world.source.root)
    await beside(world, "/t/", prefix=f"{tmp_path}/alias/")
    await synced(world, Item(source="/t/new/", destination="/"))
    assert read(world.source.root / "t/new") == {"a": files["t/new/a"]}


async def test_a_folder_is_not_copied_into_itself(world):
    files = write(world.source.root, {"t/a": 1, "t/sub/b": 1, "t/new/mine": 1})
    task, _ = await synced(world, Item(source="/t/", destination="/t/new/"), to="source")
    copied = {name.replace("t/", "t/new/", 1): content for name, content in files.items() if name != "t/new/mine"}
    assert read(world.source.root) == files | copied
    events, _ = await world.factory.tasks.events(ANN, task.id, None, 100, 0)
    assert "NOT_INTO_ITSELF" in [event.code for event in events]


async def test_a_link_that_the_task_makes_is_there_after_its_second_run(world):
    write(world.source.root, {"d/a": 1, "links/a": 1})
    (world.source.root / "links/to").symlink_to("a")
    (world.source.root / "d/in").symlink_to("a")
    items = Item(source="/d/", destination="/d/"), Item(source="/links/to", destination="/d/to", symlink=True)
    for _ in range(2):
        await synced(world, *items, recursive_symlinks="keep")
        assert names(world.sink.root / "d") == ["a", "in", "to"]


def before_pruning(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Make a change between the copies of a sync and its search for extra files."""
    prune = Pruning.prune

    async def changed(self, work):
        if work.source == "/d/":
            change()
        return await prune(self, work)

    monkeypatch.setattr(Pruning, "prune", changed)


async def test_nothing_is_deleted_after_the_source_folder_is_replaced(world, monkeypatch):
    """The file system behind a directory may be unmounted during a sync, which leaves an empty directory."""
    files = write(world.source.root, {"d/new": 1, "d/same": 1, "d/sub/deep": 1})
    kept = write(world.sink.root, {"d/same": 1, "d/extra": 5})

    def unmount():
        (world.source.root / "d").rename(world.source.root / "away")
        (world.source.root / "d").mkdir()

    before_pruning(monkeypatch, unmount)
    task, messages = await synced(world, sync_level=0)
    assert read(world.sink.root) == files | kept
    assert task.folders_not_cleared == 1
    assert messages == ["nothing in /d/ is deleted: the directory at the source was replaced during the task"]


async def test_files_that_vanish_at_the_source_after_they_were_copied_are_kept(world, monkeypatch):
    files = write(world.source.root, {"d/a": 1, "d/sub/b": 1, "d/stays": 1})
    (world.source.root / "d/link").symlink_to("stays")
    write(world.sink.root, {"d/extra": 5})

    def vanish():
        shutil.rmtree(world.source.root / "d/sub")
        for name in ("a", "link"):
            (world.source.root / "d" / name).unlink()

    before_pruning(monkeypatch, vanish)
    _, messages = await synced(world, recursive_symlinks="keep")
    assert read(world.sink.root) == {**files, "d/link": files["d/stays"]}
    assert messages == ["/d/a is not deleted: it was at the source when the task began"]
    monkeypatch.undo()
    assert (await synced(world, recursive_symlinks="keep"))[1] == []
    assert read(world.sink.root) == {"d/stays": files["d/stays"]}


async def test_extra_files_are_deleted_beside_copies_of_linked_folders(world):
    files = write(world.source.root, {"real/a": 1, "d/b": 1})
    (world.source.root / "d/linked").symlink_to("../real")
    write(world.sink.root, {"d/linked/extra": 5})
    _, messages = await synced(world, recursive_symlinks="copy")
    assert messages == []
    assert read(world.sink.root) == {"d/b": files["d/b"], "d/linked/a": files["real/a"]}


async def test_a_file_that_replaces_an_extra_file_is_kept(world, monkeypatch):
    write(world.source.root, {"d/a": 1})
    write(world.sink.root, {"d/taken": 5, "d/gone": 5, "d/written": 5})
    os.utime(world.sink.root / "d/written", (1, 1))
    fresh = write(world.sink.root, {"fresh": 7})["fresh"]
    prune = Pruning.prune

    async def planned(self, work):
        result = await prune(self, work)
        (world.sink.root / "fresh").rename(world.sink.root / "d/taken")
        (world.sink.root / "d/written").write_bytes(b"more")
        (world.sink.root / "d/gone").unlink()
        return result

    monkeypatch.setattr(Pruning, "prune", planned)
    task, messages = await synced(world)
    there = read(world.sink.root / "d")
    assert (sorted(there), there["taken"], there["written"]) == (["a", "taken", "written"], fresh, b"more")
    assert "is not deleted: it was replaced since it was listed (and 1 more)" in messages[0]
    assert task.folders_not_cleared == 2
