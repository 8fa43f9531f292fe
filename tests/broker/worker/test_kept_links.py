"""Links that a task keeps: by sync level, in one step, and in place of files."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.models.tasks import Item
from broker.services.collections.trees import GridFTPTree
from broker.worker.policy import faults
from tests.broker.worlds import ANN, Servers, World, working, world_at, write

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)  # decisions here need no database
KEEP = {"recursive_symlinks": "keep"}


@pytest.fixture
async def world(servers: Servers, database: str, tmp_path: Path) -> AsyncIterator[World]:
    async with world_at(servers, database, tmp_path) as world, working(world):
        write(world.source.root, {"d/a": 10, "d/b": 20})
        (world.source.root / "d/l").symlink_to("a")
        (world.sink.root / "d").mkdir()
        yield world


def at(world: World) -> str | bytes:
    """Return a link's target, or else the file's content."""
    path = world.sink.root / "d/l"
    return path.readlink().name if path.is_symlink() else path.read_bytes()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("there", "level", "becomes"),
    [
        ("nothing", None, "a"),
        ("nothing", 0, "a"),
        ("the same", None, "a"),
        ("the same", 2, "a"),
        ("another link", None, "a"),
        ("another link", 0, "b"),
        ("another link", 1, "a"),
        ("a dangling link", None, "a"),
        ("a file", None, "a"),
        ("a file", 0, b"x" * 10),
        ("a file", 1, b"x" * 10),  # of the size of the link's target
        ("a larger file", 1, "a"),
    ],
)
async def test_a_kept_link_replaces_the_same_entries_as_a_file(world, there, level, becomes):
    path = world.sink.root / "d/l"
    (world.sink.root / "d/b").write_bytes(b"b")
    match there:
        case "the same":
            (world.sink.root / "d/a").write_bytes(b"a")
            path.symlink_to(world.sink.root / "d/a")
        case "another link":
            path.symlink_to(world.sink.root / "d/b")
        case "a dangling link":
            path.symlink_to("nowhere")
        case "a file":
            path.write_bytes(b"x" * 10)
        case "a larger file":
            path.write_bytes(b"x" * 11)
    made = path.lstat().st_ino if there == "the same" else None
    task = await world.done("TRANSFER", [Item(source="/d/", destination="/d/")], sync_level=level, **KEEP)
    assert (task.status, task.faults) == ("SUCCEEDED", 0), task.error
    assert at(world) == becomes
    assert made is None or path.lstat().st_ino == made, "it was not made again"
    assert sorted(each.name for each in (world.sink.root / "d").iterdir()) == ["a", "b", "l"]


async def test_a_kept_link_without_a_target_is_named(world, monkeypatch):
    """A server lists no link whose target is missing at the source, but counts it."""
    monkeypatch.setattr(faults, "FIRST_PAUSE", 0.05)
    (world.source.root / "e").write_bytes(b"e")
    (world.source.root / "d/out").symlink_to("../e")  # nothing copies /e
    (world.source.root / "d/gone").symlink_to("nowhere")
    item = Item(source="/d/", destination="/d/")
    task = await world.done("TRANSFER", [item], **KEEP)
    assert (task.status, task.error) == ("FAILED", "/d/out would lead to /e, which does not exist")
    task = await world.done("TRANSFER", [item], skip_source_errors=True, **KEEP)
    assert task.status == "SUCCEEDED", task.error
    (skipped,) = await world.factory.tasks.done(ANN, task.id, "skipped", 0, 10)
    assert (skipped.source, skipped.error_code) == ("/d/out", "FILE_NOT_FOUND")
    events, _ = await world.factory.tasks.events(ANN, task.id, None, 100, 0)
    (hidden,) = [each.details for each in events if each.code == "NOT_LISTED"]
    assert hidden == "/d/: the server counts 1 entries more than it names, for example dangling links"


async def test_a_folder_in_its_place_stays(world):
    write(world.sink.root, {"d/l/precious": 5})
    task = await world.done("TRANSFER", [Item(source="/d/", destination="/d/")], **KEEP)
    assert (task.status, task.error) == ("FAILED", "/d/l is a directory")
    assert (world.sink.root / "d/l/precious").stat().st_size == 5


async def test_the_name_is_there_at_each_moment(world, monkeypatch):
    """Either the old entry or the link exists at every moment."""
    path = world.sink.root / "d/l"
    path.write_bytes(b"before")
    seen = []
    for name in ("link", "replace", "delete"):
        method = getattr(GridFTPTree, name)

        async def watched(self, *paths, method=method):
            try:
                await method(self, *paths)
            finally:
                seen.append(path.is_symlink() or path.exists())

        monkeypatch.setattr(GridFTPTree, name, watched)
    task = await world.done("TRANSFER", [Item(source="/d/", destination="/d/")], **KEEP)
    assert task.status == "SUCCEEDED", task.error
    assert at(world) == "a"
    assert len(seen) >= 2
    assert all(seen)
