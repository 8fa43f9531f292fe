"""Collections as trees of directories and files: a local directory, a directory of a GridFTP server, the catalogue."""

import asyncio
import threading
from contextlib import aclosing, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from broker.errors import Invalid
from broker.models.catalogue import Dataset
from broker.services.catalogue.formats import CatalogueEntry as Said
from broker.services.collection_paths import normal
from broker.services.collections.trees import CatalogueTree, GridFTPTree, LocalTree
from broker.services.collections.trees import catalogue as catalogue_trees
from broker.services.collections.trees import local as local_trees
from broker.services.collections.trees.gridftp import MOST, ServerLogin, ServerSessions
from coalloc.errors import AlreadyThere, NoSuchFile, NotDirectory, PermissionRefused
from coalloc.util.addresses import ANYWHERE
from tests.support.gridftp import GridFTPServer
from tests.support.waiting import PATIENCE, until


async def listed(tree, path):
    return {entry.name: entry async for batch in tree.list(path) for entry in batch}


@pytest.fixture
def disk(tmp_path):
    """A collection's directory with a secret beside it."""
    base = tmp_path / "base"
    (base / "data" / "inner").mkdir(parents=True)
    (base / "data" / "a.root").write_bytes(b"x" * 1000)
    (tmp_path / "secret").write_text("secret")
    return base


async def test_a_folder_of_this_machine_is_looked_at_and_changed(disk):
    tree = LocalTree(disk, "disk")
    found = await listed(tree, "/data/")
    assert {name: (entry.kind, entry.size) for name, entry in found.items() if entry.kind == "file"} == {
        "a.root": ("file", 1000)
    }
    assert found["inner"].kind == "dir"
    assert found["a.root"] == await tree.stat("/data/a.root")
    assert (await tree.stat("/")).kind == "dir"
    await tree.make("/data/new")
    await tree.rename("/data/a.root", "/data/new/b.root")
    assert (disk / "data" / "new" / "b.root").stat().st_size == 1000
    assert set(await listed(tree, "/data")) == {"inner", "new"}


@pytest.mark.parametrize("kind", ["file", "folder", "empty folder", "link", "dangling link"])
async def test_a_rename_replaces_no_existing_entry(disk, kind):
    made = {
        "file": lambda path: path.write_text("theirs"),
        "folder": lambda path: (path.mkdir(), (path / "x").touch()),
        "empty folder": lambda path: path.mkdir(),
        "link": lambda path: path.symlink_to("a.root"),
        "dangling link": lambda path: path.symlink_to("nowhere"),
    }
    made[kind](disk / "data" / "there")
    tree, before = LocalTree(disk, "disk"), (disk / "data" / "there").lstat()
    for old in ("/data/a.root", "/data/inner"):
        with pytest.raises(AlreadyThere, match="/data/there exists already"):
            await tree.rename(old, "/data/there")
    assert (disk / "data" / "there").lstat().st_ino == before.st_ino
    assert {"a.root", "inner", "there"} <= set(await listed(tree, "/data"))


async def test_links_lead_nowhere(disk):
    (disk / "up").symlink_to("..")
    (disk / "data" / "leak").symlink_to("../../secret")
    tree = LocalTree(disk, "disk")
    leak = await tree.stat("/data/leak")
    assert (leak.kind, leak.link_target) == ("link", "../../secret")
    for path in ("/up/secret", "/up/", "/data/leak/x"):
        with pytest.raises(NoSuchFile):
            await listed(tree, path) if path.endswith("/") else await tree.stat(path)
    with pytest.raises(NoSuchFile):
        await tree.rename("/data/a.root", "/up/stolen")
    with pytest.raises(NoSuchFile):
        await tree.make("/up/x")
    before = disk.parent.stat().st_mtime_ns
    with pytest.raises(NotDirectory):
        await tree.held("/up/", ["a", "A"])
    assert disk.parent.stat().st_mtime_ns == before, "nothing was made there, not for a moment"
    assert await tree.held("/data/", ["a", "b"]) == {"a": "a", "b": "b"}


async def test_disk_errors_become_our_own(disk):
    tree = LocalTree(disk, "disk")
    with pytest.raises(NoSuchFile, match="/none: No such file"):
        await tree.stat("/none")
    with pytest.raises(NoSuchFile, match="Not a directory"):
        await listed(tree, "/data/a.root/")
    with pytest.raises(NoSuchFile):
        await tree.stat("/data/a.root/")
    with pytest.raises(AlreadyThere, match="File exists"):
        await tree.make("/data")


async def test_a_folder_of_many_files_comes_in_batches(disk):
    for i in range(2500):
        (disk / "data" / "inner" / f"{i}").touch()
    sizes = [len(batch) async for batch in LocalTree(disk, "disk").list("/data/inner")]
    assert sum(sizes) == 2500
    assert max(sizes) <= 1000


async def test_files_deleted_during_a_listing_do_not_end_it(tmp_path, monkeypatch):
    monkeypatch.setattr(local_trees, "BATCH", 2)
    for number in range(9):
        (tmp_path / f"f{number}").write_bytes(b"")
    order = [path.name for path in tmp_path.iterdir()]
    listing = LocalTree(tmp_path, "local").list("/")
    found = [entry.name for entry in await anext(listing)]
    for name in order[2:6]:
        (tmp_path / name).unlink()
    found += [entry.name async for entries in listing for entry in entries]
    assert found == order[:2] + order[6:]


@pytest.mark.parametrize(("place", "step"), [(LocalTree, "_folder"), (local_trees, "_entry")], ids=["open", "read"])
async def test_a_cancelled_listing_closes_its_folder_when_the_disk_answers(disk, monkeypatch, place, step):
    begun, answered, original = threading.Event(), threading.Event(), getattr(place, step)

    def slow(*args):
        found = original(*args)
        begun.set()
        assert answered.wait(PATIENCE)
        return found

    monkeypatch.setattr(place, step, slow)
    listing = asyncio.create_task(listed(LocalTree(disk, "disk"), "/data"))
    await until(begun.is_set)
    listing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listing
    del listing
    in_use = descriptors(disk)
    answered.set()
    assert in_use
    await until(lambda: not descriptors(disk))


def descriptors(folder):
    """Return the directories below this one that this process has open."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since the listing
            found.append(each.readlink())
    return [each for each in found if each.is_relative_to(folder)]


@pytest.mark.parametrize(
    "path", ["..", "/../x", "/a/../../x", "~/../x", "/a\x00b", "/a\nb", "/\u202e", "/\ud800", "/" + "x" * 5000]
)
def test_hostile_paths_are_refused(path):
    with pytest.raises(Invalid):
        normal(path)


NAMES = [
    "cms:run1/a.root",
    "cms:run1/b.root",
    "cms:run1-old/a.root",
    "cms:run1.txt",
    "cms:/store/mc/x.root",
    "atlas-x:x.root",
    "atlas:x.root",
    "plain.root",
    "/store/data/y.root",
    "folder/z.root",
    "cms/run1/b.root",
    "cms/run1/only.root",
]


@pytest.fixture
async def names(broker):
    datasets = [Said(Dataset(name=name, size=len(name))) for name in NAMES]
    await broker.factory.catalogue.keep("tests", datasets, "put")
    return CatalogueTree(broker.factory.database)


@pytest.mark.parametrize("batch", [1, 2, 3, 1000])
async def test_the_catalogue_looks_like_folders_and_files(names, monkeypatch, batch):
    monkeypatch.setattr(catalogue_trees, "BATCH", batch)
    for path, folders, files in (
        ("/", {"cms", "atlas", "atlas-x", "store", "folder"}, {"plain.root"}),
        ("/cms/", {"run1", "run1-old", "store"}, {"run1.txt"}),
        ("/cms/run1", set(), {"a.root", "b.root", "only.root"}),
        ("/cms/store", {"mc"}, set()),
        ("/store", {"data"}, set()),
        ("/store/data/", set(), {"y.root"}),
    ):
        found = [entry async for part in names.list(path) for entry in part]
        assert {entry.name for entry in found if entry.kind == "dir"} == folders
        assert {entry.name for entry in found if entry.kind == "file"} == files
        assert len(found) == len(folders | files)  # no duplicates


async def test_a_path_in_the_catalogue_names_a_dataset(names):
    assert await names.did("/cms/run1/a.root") == "cms:run1/a.root"
    assert await names.did("/cms/run1/b.root") == "cms:run1/b.root"  # before cms/run1/b.root, which has no scope
    assert await names.did("/cms/store/mc/x.root") == "cms:/store/mc/x.root"
    assert await names.did("/store/data/y.root") == "/store/data/y.root"
    entry = await names.stat("/cms/run1/only.root")
    assert (entry.kind, entry.name, entry.size) == ("file", "only.root", len("cms/run1/only.root"))
    assert (await names.stat("/cms/run1")).kind == "dir"
    for path in ("/none", "/cms/run1/a.root/", "/cms/run", "/cms:run1"):
        with pytest.raises(NoSuchFile, match="the catalogue has no"):
            await names.stat(path)


async def test_the_catalogue_is_for_reading(names):
    with pytest.raises(PermissionRefused, match="read-only"):
        await names.make("/cms/new")
    with pytest.raises(PermissionRefused, match="read-only"):
        await names.rename("/cms/run1/a.root", "/cms/run1/c.root")


async def test_a_folder_is_walked_in_leaps(broker, names):
    """The query plan has no scan over all datasets."""
    deep = [Said(Dataset(name=f"deep:f{i // 500}/{i}")) for i in range(5000)]
    await broker.factory.catalogue.keep("tests", deep, "put")
    seen = []
    engine = broker.factory.database._engine.sync_engine
    sa.event.listen(engine, "before_cursor_execute", lambda *args: seen.append(args[2:4]))
    assert set(await listed(names, "/deep")) == {f"f{i}" for i in range(10)}
    statement, values = max(seen, key=lambda query: query[0].count("RECURSIVE"))
    async with broker.factory.database.read() as connection:
        if broker.factory.database.sqlite:
            rows = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
            assert not [row for row in rows if str(row[-1]).startswith("SCAN datasets")]
        else:
            await connection.exec_driver_sql("SET enable_seqscan = off")
            rows = await connection.exec_driver_sql(f"EXPLAIN {statement}", values)
            assert not [row for row in rows if "Seq Scan on datasets" in row[0]]


@pytest.fixture
def remote(tmp_path):
    """A directory of a GridFTP server, with a secret beside it."""
    with GridFTPServer(tmp_path / "server") as running:
        for name in ("base/data/a.root", "base/data/run 1#%41.root", "beside/b.root"):
            (running.root / name).parent.mkdir(parents=True, exist_ok=True)
            (running.root / name).write_bytes(b"x" * 1000)
        yield running


@pytest.fixture
async def far(remote):
    sessions = ServerSessions()
    yield GridFTPTree(
        sessions, ServerLogin(f"ftp://127.0.0.1:{remote.port}", None, ANYWHERE), f"{remote.root}/base/", "far"
    )
    sessions.close()


async def test_a_folder_of_a_gridftp_server_is_looked_at_and_changed(far, remote):
    assert set(await listed(far, "/data/")) == {"a.root", "run 1#%41.root"}
    entry = await far.stat("/data/run 1#%41.root")
    assert (entry.name, entry.kind, entry.size) == ("run 1#%41.root", "file", 1000)
    root = await far.stat("/")
    assert (root.name, root.kind) == ("/", "dir")
    await far.make("/data/new")
    await far.rename("/data/a.root", "/data/new/b.root")
    assert (remote.root / "base/data/new/b.root").stat().st_size == 1000
    assert far.url("/data/run 1#%41.root").endswith("/base/data/run%201%23%2541.root")
    with pytest.raises(NoSuchFile, match=r"^far:/no ne#: the server says") as refused:
        await far.stat("/no ne#")
    assert str(remote.root) not in str(refused.value)
    with pytest.raises(AlreadyThere):
        await far.make("/data")
    for there in ("/data/run 1#%41.root", "/data/new", "/data/new/b.root"):
        with pytest.raises(AlreadyThere, match=r"^far:/data/.* exists already"):
            await far.rename("/data/new/b.root", there)
    assert (remote.root / "base/data/new/b.root").stat().st_size == 1000


async def test_a_file_of_a_gridftp_server_is_no_folder(far, remote):
    """Servers list a file as if it were in itself."""
    with pytest.raises(NotDirectory, match="not a directory"):
        await listed(far, "/data/a.root")
    (remote.root / "base" / "same").mkdir()
    (remote.root / "base" / "same" / "same").touch()
    assert set(await listed(far, "/same")) == {"same"}


async def test_links_lead_from_where_they_are(far, remote):
    """Servers report targets as their own paths, which mean nothing elsewhere and are not for users."""
    data = remote.root / "base" / "data"
    (data / "near").symlink_to("a.root")
    (data / "in").mkdir()
    (data / "in" / "up").symlink_to(data)
    (data / "out").symlink_to(remote.root / "beside" / "b.root")
    assert (await far.stat("/data/near")).link_target == "a.root"
    entries = await listed(far, "/data") | await listed(far, "/data/in")
    assert {name: entry.link_target for name, entry in entries.items() if entry.link_target} == {
        "near": "a.root",
        "up": "..",
        "out": f"{remote.root}/beside/b.root",
    }


async def test_sessions_are_kept_for_a_moment(far, remote):
    """The second look needs no login: the server is paused for nobody, and there is one session for all."""
    for _ in range(5):
        await far.stat("/data/a.root")
    (idle,) = far._sessions._idle.values()
    assert len(idle) == 1
    remote.end_sessions()
    await until(lambda: not idle[0][0].usable)  # it is notified
    assert (await far.stat("/data/a.root")).size == 1000


async def test_many_concurrent_stats_are_all_answered(far):
    entries = await asyncio.gather(*(far.stat("/data/a.root") for _ in range(50)))
    assert {entry.size for entry in entries} == {1000}
    (idle,) = far._sessions._idle.values()
    assert len(idle) <= MOST


async def test_an_abandoned_listing_does_not_break_the_next_one(far, remote):
    for i in range(3000):
        (remote.root / "base" / "data" / f"file-{i:05}").touch()
    async with aclosing(far.list("/data")) as batches:
        async for _ in batches:
            break
    assert len(await listed(far, "/data")) == 3002


async def test_links_that_lead_out_are_the_servers_to_refuse(tmp_path):
    """Links that lead out are documented: only the server knows their targets, and one with `-rp` refuses them."""
    base = tmp_path / "server" / "base"
    base.mkdir(parents=True)
    (tmp_path / "server" / "secret").write_text("secret")
    (base / "leak").symlink_to("../secret")
    (base / "inside").symlink_to(".")
    sessions = ServerSessions()
    with GridFTPServer(tmp_path / "server", options=("-rp", str(base))) as running:
        tree = GridFTPTree(sessions, ServerLogin(f"ftp://127.0.0.1:{running.port}", None, ANYWHERE), f"{base}/", "far")
        assert (await tree.stat("/inside")).kind == "dir"
        with pytest.raises(PermissionRefused):
            await tree.stat("/leak")
        sessions.close()
