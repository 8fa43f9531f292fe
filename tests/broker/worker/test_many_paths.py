"""Directories with several paths: links, mounts, names that differ in case, other servers of the same disk.

A task deletes as extra nothing that it reads or writes under any path, and copies nothing into itself.
"""

import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from broker.models.catalogue import Endpoint
from broker.models.collections import NewCollection
from broker.models.tasks import FilterRule, Item, Task
from broker.storage.collections import CollectionStore
from broker.worker.policy import faults
from coalloc.engine.gridftp.storage import Storage
from coalloc.model.listings import Entry
from tests.broker.random_trees import seen
from tests.broker.worlds import ANN, Server, Servers, World, begun, held, read, register, working, world_at, write
from tests.support.effort import effort
from tests.support.gridftp import GridFTPServer
from tests.support.mounts import caseless

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)  # decisions here need no database
FOLDERS = effort(30, 100)
"""Directories that are deleted while links take their places."""


@pytest.fixture
async def world(
    servers: Servers, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    monkeypatch.setattr(faults, "FIRST_PAUSE", 0.05)
    async with world_at(servers, database, tmp_path) as world, working(world):
        yield world


async def synced(world: World, *pairs: tuple[str, str], to: str = "sink", origin: str = "source", **options) -> Task:
    """Run a sync from and to these paths, by default of /d/; return the finished task."""
    items = [Item(source=here, destination=there) for here, there in pairs or [("/d/", "/d/")]]
    return await world.over(
        await world.submit("TRANSFER", items, to, origin, **{"delete_destination_extra": True, **options})
    )


async def collection(world: World, server: Server, prefix: str, name: str = "again") -> None:
    """Return another collection of a directory at a server."""
    where = {"scheme": "ftp", "host": server.host, "port": server.port, "prefix": prefix}
    await world.factory.places.put_endpoint("root", Endpoint(name=name, site="here", write_priority=1, **where))
    number = world.collections[name] = uuid4()
    async with world.factory.database.write() as connection:
        await CollectionStore(connection).put(number, "ann", NewCollection(name=name, endpoint=name), time.time())


class Twofold:
    """A source and a destination on one disk, under different names.

    :ivar root: where the files are
    """

    def __init__(self, origin: str, to: str, root: Path) -> None:
        self.ends = {"origin": origin, "to": to}
        self.root = root


@pytest.fixture(params=["a link to the folder", "another address", "a worker's folder"])
async def twofold(world: World, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Twofold]:
    if request.param == "a link to the folder":
        (tmp_path / "alias").symlink_to(world.source.root)
        await collection(world, world.source, f"{tmp_path}/alias/")
        yield Twofold("source", "again", world.source.root)
        return
    local = request.param == "a worker's folder"
    root = world.local.resolve() if local else world.source.root
    with GridFTPServer(root, "127.0.0.3") as server:
        await collection(world, server, f"{root}/")
        yield Twofold("again", "local", root) if local else Twofold("source", "again", root)


@contextmanager
def bound(folder: Path, place: Path) -> Iterator[None]:
    """Make a directory reachable at a second place."""
    place.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["mount", "--bind", folder, place], check=False, capture_output=True).returncode:
        pytest.skip("mounting takes root")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


async def test_files_of_another_item_are_not_extra_through_a_link(world):
    write(world.source.root, {"a/one": 5, "b/two": 6})
    (world.sink.root / "t").mkdir()
    (world.sink.root / "alias").symlink_to("t")
    for _ in range(3):
        task = await synced(world, ("/a/", "/t/"), ("/b/", "/alias/"))
        assert sorted(read(world.sink.root / "t")) == ["one", "two"]
    assert task.folders_not_cleared == 2


async def test_a_folder_keeps_files_that_came_through_a_link_to_it(world):
    write(world.source.root, {"d/sub/x": 5, "d/other/y": 6})
    write(world.sink.root, {"d/other/y": 6})
    (world.sink.root / "d/sub").symlink_to("other")
    for _ in range(3):
        await synced(world)
        assert (world.sink.root / "d/sub/x").exists()
        assert (world.sink.root / "d/other/y").exists()


@pytest.mark.sampled(3)
async def test_the_source_of_another_item_is_not_extra(world, twofold):
    files = write(twofold.root, {"p/a": 5, "t/old/b": 6, "t/gone": 1})
    await synced(world, ("/p/", "/t/"), ("/t/old/", "/u/"), **twofold.ends)
    there = read(twofold.root)
    assert there["t/old/b"] == files["t/old/b"] == there["u/b"]
    assert "t/gone" not in there


@pytest.mark.sampled(3)
async def test_files_in_the_source_are_not_extra(world, twofold):
    files = write(twofold.root, {"s/a/x": 5, "s/copy/a/old": 6})
    rule = FilterRule(name="copy", type="dir")  # so that it is not seen at the source
    await synced(world, ("/s/", "/s/copy/"), filter_rules=(rule,), **twofold.ends)
    assert read(twofold.root)["s/copy/a/old"] == files["s/copy/a/old"]


@pytest.mark.sampled(3)
async def test_a_folder_is_not_copied_into_itself(world, twofold):
    write(twofold.root, {"t/a": 5, "t/sub/b": 6})
    task = await synced(world, ("/t/", "/t/new/"), delete_destination_extra=False, **twofold.ends)
    assert task.status == "SUCCEEDED", task.error
    assert sorted(read(twofold.root)) == ["t/a", "t/new/a", "t/new/sub/b", "t/sub/b"]


@pytest.mark.sampled(3)
async def test_a_folder_is_not_copied_onto_itself(world, twofold):
    files = write(twofold.root, {"t/a": 5})
    task = await synced(world, ("/t/", "/t/"), **twofold.ends)
    assert (task.status, task.error) == ("FAILED", "/t/ and /t/ are the same directory")
    assert read(twofold.root) == files


async def test_folders_with_equal_ids_at_two_servers_are_different(world, monkeypatch):
    """Two machines from one installation: a file made in one folder does not appear in the other."""
    files = write(world.source.root, {"d/a": 5})
    asked = Storage.stat

    async def alike(self: Storage, path: str) -> Entry:
        found = await asked(self, path)
        return found._replace(unique="fd01-80") if path.rstrip("/").endswith("/d") else found

    monkeypatch.setattr(Storage, "stat", alike)
    task = await synced(world, delete_destination_extra=False)
    assert task.status == "SUCCEEDED", task.error
    assert read(world.sink.root) == files


async def test_the_destination_may_be_a_link_into_the_source(world):
    files = write(world.source.root, {"src/a": 5, "src/sub/b": 6})
    (world.source.root / "alias").symlink_to("src/sub")
    await synced(world, ("/src/", "/alias/"), to="source", filter_rules=(FilterRule(name="sub", type="dir"),))
    assert read(world.source.root)["src/sub/b"] == files["src/sub/b"]


async def test_the_source_may_be_a_link_into_an_extra_folder(world):
    files = write(world.source.root, {"t/2024/final/a": 5, "t/2024/final/deep/b": 5, "t/2024/draft": 4})
    (world.source.root / "current").symlink_to("t/2024/final")
    task = await synced(world, ("/current/", "/t/"), to="source")
    there = read(world.source.root)
    assert {name: there.get(name) for name in files} == files
    assert task.folders_not_cleared == 1


async def test_files_behind_a_link_of_the_source_are_not_extra(world):
    files = write(world.source.root, {"s/a": 5, "t/x/b": 6})
    (world.source.root / "s/l").symlink_to("../t/x")
    for _ in range(2):
        await synced(world, ("/s/", "/t/"), to="source", recursive_symlinks="copy")
    assert read(world.source.root)["t/x/b"] == files["t/x/b"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("to", ["sink", "local"])
@pytest.mark.parametrize(("what", "where"), [("d", "d/old/mnt"), ("d/sub", "d/e"), ("d/sub", "d/old/e"), ("d", "d/e")])
async def test_the_source_may_be_mounted_in_the_destination(world, to, what, where):
    files = write(world.source.root, {"d/a": 10, "d/sub/c": 10})
    root = world.sink.root if to == "sink" else world.local
    with bound(world.source.root / what, root / where):
        task = await synced(world, to=to)
        assert task.status == "SUCCEEDED", task.error
    assert read(world.source.root) == files


@pytest.mark.sampled(2)
@pytest.mark.parametrize("to", ["sink", "local"])
async def test_a_folder_mounted_in_itself_keeps_the_copied_files(world, to):
    files = write(world.source.root, {"d/a": 10, "d/b/c": 10})
    root = world.sink.root if to == "sink" else world.local
    (root / "d").mkdir()
    with bound(root / "d", root / "d/loop"):
        task = await synced(world, to=to)
        assert task.status == "SUCCEEDED", task.error
    assert read(root) == files


@pytest.mark.sampled(4)
@pytest.mark.parametrize("to", ["sink", "local"])
@pytest.mark.parametrize("level", [None, 1])
async def test_names_that_the_destination_holds_for_others_are_not_extra(servers, database, tmp_path, to, level):
    async with world_at(servers, database, tmp_path) as world, working(world):
        write(world.source.root, {"d/File": 5, "d/Sub/x": 5})
        async with without_case(world, tmp_path, to) as (name, where):
            write(where, {"d/file": 7, "d/sub/y": 6})
            for _ in range(2):
                await synced(world, to=name, sync_level=level)
                assert {"d/file", "d/sub/x"} <= {path.lower() for path in read(where)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("to", ["sink", "local"])
async def test_the_second_of_two_names_that_are_one_at_the_destination_fails(servers, database, tmp_path, to):
    async with world_at(servers, database, tmp_path) as world, working(world):
        files = write(world.source.root, {"d/File": 5, "d/file": 6, "d/x": 1})
        async with without_case(world, tmp_path, to) as (name, where):
            task = await synced(world, to=name, delete_destination_extra=False)
            there = read(where)
        assert (task.status, task.failed) == ("FAILED", 1)
        assert "does not distinguish" in task.error
        assert sorted(there.values()) in [sorted([files["d/x"], files[each]]) for each in ("d/File", "d/file")]


class without_case:
    """A collection on a disk that ignores case; its name and root."""

    def __init__(self, world: World, tmp_path: Path, to: str) -> None:
        self._world, self._to = world, to
        self._where = world.local if to == "local" else tmp_path / "exfat"
        if to == "local":
            world.local.rmdir()
        self._mounted = caseless(self._where)
        self._server: GridFTPServer | None = None

    async def __aenter__(self) -> tuple[str, Path]:
        self._mounted.__enter__()
        if self._to == "local":
            return "local", self._where
        self._server = GridFTPServer(self._where, "127.0.0.4")
        await collection(self._world, self._server, f"{self._where}/")
        return "again", self._where

    async def __aexit__(self, *about: object) -> None:
        if self._server:
            self._server.close()
        self._mounted.__exit__(None, None, None)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("to", ["sink", "local"])
async def test_replicas_of_copied_datasets_are_not_extra(world, to):
    """The only replica of a dataset lies in the destination, at another path."""
    root = world.sink.root if to == "sink" else world.local
    with GridFTPServer(world.local, "127.0.0.3") as local:
        await register(world, "cms:store/run/a", b"precious", world.sink if to == "sink" else local)
        write(root, {"extra": 5})
        await synced(world, ("/cms/store/run/", "/"), origin="catalogue", to=to)
    assert read(root) == {"store/run/a": b"precious", "a": b"precious"}


async def test_a_link_that_replaces_an_extra_folder_protects_its_target(world, tmp_path):
    """A user replaces a folder by a link during the copy: nothing at its target is deleted."""
    write(world.source.root, {"d/a": 40_000_000})
    kept = write(tmp_path / "outside", {"one": 5, "deep/two": 5})
    write(world.sink.root, {"d/old/f": 5})
    await held(world, rate=1e6)
    number = await world.submit("TRANSFER", [Item(source="/d/", destination="/d/")], delete_destination_extra=True)
    await begun(world, number, 1_000_000)
    (world.sink.root / "d/old").rename(world.sink.root / "moved")
    (world.sink.root / "d/old").symlink_to(tmp_path / "outside")
    await held(world, rate=None)
    await world.over(number)
    assert read(tmp_path / "outside") == kept


@pytest.mark.long
async def test_links_take_the_place_of_folders_that_are_deleted(world, tmp_path):
    """A GridFTP server deletes by path, so that this cannot be excluded there: see docs/explanation/trust.md."""
    names = {f"f{i}": 10 for i in range(10)}
    kept = write(tmp_path / "outside", names)
    root = world.local
    write(root, {f"d/{folder}/{name}": 1 for folder in range(FOLDERS) for name in names})
    number = await world.submit("DELETE", [Item(source="/d", destination="")], None, "local", recursive=True)
    exchanged = 0
    while (await world.task(number)).status == "ACTIVE":
        place = root / f"d/{FOLDERS - 1 - exchanged}"
        if exchanged < FOLDERS * 9 // 10 and place.is_dir():
            place.rename(root / f"moved{exchanged}")
            place.symlink_to(tmp_path / "outside")
        exchanged += 1
    assert read(tmp_path / "outside") == kept


async def test_files_added_to_the_source_during_a_task_are_not_deleted(world):
    write(world.source.root, {"d/a": 40_000_000})
    write(world.sink.root, {"d/back": 5})
    await held(world, rate=1e6)
    number = await world.submit("TRANSFER", [Item(source="/d/", destination="/d/")], delete_destination_extra=True)
    await begun(world, number, 1_000_000)
    write(world.source.root, {"d/back": 5})
    await held(world, rate=None)
    await world.over(number)
    assert (world.sink.root / "d/back").exists()


async def test_a_name_with_a_line_end_does_not_make_up_for_a_link_that_is_not_listed(world):
    """Its second line looks like another entry, so that the server's count seems right."""
    write(world.source.root, {"d/a": 10})
    (world.source.root / "d/hidden").symlink_to("/nowhere/at/all")
    os.mkfifo(world.source.root / "d/p\nType=OS.other; q")
    write(world.sink.root, {"d/hidden/precious": 10})
    task = await synced(world)
    assert (task.status, task.folders_not_cleared) == ("SUCCEEDED", 1)
    assert "d/hidden/precious" in read(world.sink.root)


async def test_an_extra_folder_that_is_not_empty_is_reported(world):
    """Servers do not list dangling links, so that their folder cannot be removed."""
    write(world.source.root, {"d/a": 5})
    write(world.sink.root, {"d/old/f": 5})
    (world.sink.root / "d/old/gone").symlink_to("nowhere")
    task = await synced(world)
    assert (task.status, task.folders_not_cleared) == ("SUCCEEDED", 1)
    events, _ = await world.factory.tasks.events(ANN, task.id, None, 100, 0)
    assert any("it is not empty" in event.details for event in events)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", ["made anew", "a link", "moved out"])
async def test_a_folder_that_is_moved_while_a_file_comes_gets_none(world, tmp_path, how):
    files = write(world.source.root, {"d/sub/slow": 40_000_000})
    (tmp_path / "outside").mkdir()
    await held(world, "local", rate=1e6)
    number = await world.submit("TRANSFER", [Item(source="/d/", destination="/d/")], "local")
    await begun(world, number, 1_000_000)
    place = world.local / "d/sub"
    place.rename(tmp_path / "outside/sub" if how == "moved out" else world.local / "moved")
    if how == "a link":
        place.symlink_to(tmp_path / "outside")
    else:
        place.mkdir()
    await held(world, "local", rate=None)
    task = await world.over(number)
    assert not [path for path in seen(tmp_path / "outside").files if ".coget" not in path]
    assert "moved/slow" not in read(world.local)
    assert task.status == "FAILED" if how == "a link" else read(world.local)["d/sub/slow"] == files["d/sub/slow"]


async def test_names_under_which_files_are_written_cannot_be_foreseen(world, tmp_path):
    """A user who sees one temporary name of a task cannot predict another one, and so cannot plant a link there."""
    write(world.source.root, {"d/slow": 40_000_000, "d/z": 1000})
    kept = write(tmp_path / "outside", {"victim": 50})
    (world.sink.root / "d").mkdir()
    await held(world, rate=1e6)
    items = [Item(source=f"/d/{name}", destination=f"/d/{name}") for name in ("slow", "z")]
    number = await world.submit("TRANSFER", items, perf_pp=1)
    await begun(world, number, 500_000)
    (seen_one,) = [path.name for path in (world.sink.root / "d").iterdir() if ".coget-" in path.name]
    beginning, work = seen_one.rsplit("-", 1)
    for other in range(int(work) - 3, int(work) + 6):
        (world.sink.root / "d" / f"{beginning.replace('slow', 'z')}-{other}").symlink_to(tmp_path / "outside/victim")
    await held(world, rate=None)
    assert (await world.over(number)).status == "SUCCEEDED"
    assert read(tmp_path / "outside") == kept


@pytest.mark.sampled(2)
@pytest.mark.parametrize("to", ["sink", "local"])
async def test_partial_data_of_another_task_are_no_files(world, to):
    """The destination of one task is the source of another."""
    write(world.source.root, {"slow": 40_000_000, "x": 5})
    await held(world, rate=1e6)
    slow = await world.submit("TRANSFER", [Item(source="/slow", destination="/d/slow")])
    await begun(world, slow, 1_000_000)
    write(world.sink.root, {"d/x": 5})
    task = await synced(world, origin="sink", to="local" if to == "local" else "source", delete_destination_extra=False)
    root = world.local if to == "local" else world.source.root
    assert (task.status, [path.name for path in (root / "d").iterdir()]) == ("SUCCEEDED", ["x"])
    await held(world, rate=None)
    await world.over(slow)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["fifo", "socket"])
async def test_a_fifo_or_socket_given_as_an_item_fails(world, kind):
    place = world.source.root / "odd"
    if kind == "fifo":
        os.mkfifo(place)
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(place))
    task = await world.done("TRANSFER", [Item(source="/odd", destination="/odd")], "local")
    assert (task.status, task.error) == ("FAILED", "/odd is neither a file nor a directory")


async def test_names_that_are_no_text_stay_apart_from_those_that_look_like_them(world):
    """A name of raw bytes, and one that looks like their usual representation."""
    write(world.source.root, {"d/caf\\udce9": 5})
    (world.local / "d").mkdir()
    (world.local / "d/caf\udce9").write_bytes(b"extra")
    await synced(world, to="local")
    assert sorted(read(world.local)) == ["d/caf\\udce9"]
