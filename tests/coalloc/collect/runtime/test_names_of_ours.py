"""Files whose names look like coget's own partial data: collected like all others, and never taken for its own."""

import os
import shutil

import pytest

from coalloc import api
from coalloc.collect.runtime.item import CollectItem
from coalloc.collect.runtime.local_destination import LocalDestination
from coalloc.collect.runtime.partial_name_records import PartialNames
from coalloc.collect.values import CollectRequest
from coalloc.errors import SinkError, TransferFailed
from coalloc.partial_file import PartialFile
from coalloc.resolve import target
from coalloc.util.partial_names import derived
from tests.support.fetching import random_file
from tests.support.mounts import caseless

PARTIAL = ("data", "journal", "lock")
"""Files in a directory of partial data."""


@pytest.fixture(autouse=True)
def history(tmp_path, monkeypatch):
    monkeypatch.setenv("COGET_HISTORY", str(tmp_path / "history.sqlite"))


@pytest.fixture
def server(start_gridftp, tmp_path):
    return start_gridftp(tmp_path / "served", "127.0.0.2")


@pytest.fixture
def tree(server):
    """Return the partial data of an interrupted run, and files that only look like it, by name."""
    names = ["run2", "run2.coget", "a/run2.COGET/data", ".x.0123abcd.coget", f".x.coget-{'0' * 32}/data", "x"]
    names += [f"run3.coget/{name}" for name in PARTIAL] + [f"run4.coget/{name}" for name in (*PARTIAL, "more")]
    made = {}
    for number, name in enumerate(names):
        path = server.root / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        made[name] = random_file(path, 1000 * number)
    return made


def found(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def collect(server, to, overwrite=False):
    return await api.collect(CollectRequest((f"{server.url('tree')}/",), str(to), overwrite=overwrite))


async def test_such_names_are_collected_like_others_again_and_after_changes(server, tree, tmp_path):
    for _ in range(2):
        await collect(server, tmp_path / "out")
        assert found(tmp_path / "out") == tree
    for name in tree:
        tree[name] = random_file(server.root / "tree" / name, 5000)
    await collect(server, tmp_path / "out", overwrite=True)
    assert found(tmp_path / "out") == tree


async def test_collected_folder_that_looks_like_partial_data_is_not_used(server, tmp_path):
    """A collected `x.coget` that looks like partial data is not used: a download to `x` refuses it."""
    right = random_file(server.root / "x", 300_000)
    (server.root / "tree").mkdir()
    partial = PartialFile(server.root / "tree" / "x")
    partial.begin(len(right))
    partial.write(0, 0, memoryview(bytes(1000)))
    partial.close()
    assert {path.name for path in (server.root / "tree" / "x.coget").iterdir()} >= {"data", "lock"}
    await collect(server, tmp_path / "out")
    planted = found(tmp_path / "out")
    with pytest.raises(SinkError, match="contains fetched files"):
        await api.download(api.Request((server.url("x"),), output=tmp_path / "out" / "x"))
    assert found(tmp_path / "out") == planted
    (tmp_path / "out" / "x.coget").rename(tmp_path / "out" / "old")
    await api.download(api.Request((server.url("x"),), output=tmp_path / "out" / "x"))
    assert (tmp_path / "out" / "x").read_bytes() == right


async def test_a_download_under_way_is_not_written_to(server, tmp_path):
    (server.root / "tree" / "x.coget").mkdir(parents=True)
    random_file(server.root / "tree" / "x.coget" / "data", 1000)
    (tmp_path / "out").mkdir()
    with PartialFile(tmp_path / "out" / "x") as partial:
        partial.begin(1000)
        partial.write(0, 0, memoryview(bytes(range(200))))
        before = found(tmp_path / "out")
        with pytest.raises((SinkError, TransferFailed), match="partial data of another file"):
            await collect(server, tmp_path / "out", overwrite=True)
        assert found(tmp_path / "out") == before


def test_file_system_without_modes_refuses_folders_named_like_partial_data(tmp_path):
    with caseless(tmp_path / "exfat") as folder:
        for name in ("x.coget/data", "sub/X.COGET/more/data"):
            with pytest.raises(SinkError, match="stores no modes"):
                target(name, folder, many=True)
        assert target("x.coget", folder, many=True) == folder / "x.coget"


async def began(folder, names, item):
    landing = LocalDestination(folder, False, PartialNames.open())
    await landing.prepare(names)
    await landing.begin(item)
    return landing


async def test_the_next_run_goes_on_with_what_is_there(tmp_path):
    item = CollectItem("a/run2", 5000, {"ftp://a": "/x"}, versions={"ftp://a": "7"})
    for offset in (0, 1000, 2000):
        landing = await began(tmp_path / "out", [item.name], item)
        assert landing.held(item.name, 0, 5000) == ([(0, offset)] if offset else [])
        landing.write(item.name, "ftp://a", offset, memoryview(os.urandom(1000)))
        await landing.close()
    (folder,) = (tmp_path / "out" / "a").iterdir()
    assert folder.name.startswith(".run2.coget-")


async def test_partial_data_is_not_resumed_if_a_file_has_its_name_now(tmp_path):
    """An earlier destination of a collection is now a source."""
    item = CollectItem("a/run2", 5000, {"ftp://a": "/x"})
    landing = await began(tmp_path / "out", [item.name], item)
    landing.write(item.name, "ftp://a", 0, memoryview(os.urandom(1000)))
    await landing.close()
    (folder,) = (tmp_path / "out" / "a").iterdir()
    before = found(tmp_path / "out")
    for name in (f"a/{folder.name}/data", f"a/{folder.name.upper()}"):
        landing = await began(tmp_path / "out", [item.name, name], item)
        assert landing.held(item.name, 0, 5000) == []
        await landing.close()
        assert found(tmp_path / "out") == before


def test_a_number_is_of_one_directory_and_one_user(tmp_path, monkeypatch):
    names = PartialNames.open()
    numbers = {names.number(tmp_path / name, ["x"]) for name in ("a", "b", "a/../a", "b/.")}
    assert len(numbers) == 2
    assert len({derived(number, name) for number in numbers for name in ("x", "y", "d/x")}) == 6
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert names.number(tmp_path / "link", ["x"]) in numbers
    monkeypatch.setenv("COGET_HISTORY", "off")
    assert PartialNames.open().number(tmp_path / "a", ["x"]) not in numbers


def test_names_are_no_longer_than_file_systems_take():
    for name in ("x" * 255, "\u00e9" * 127, "\U0001f600" * 63):
        for number in (bytes(16), os.urandom(16)):
            assert len(derived(number, name).encode()) <= 143, "what eCryptfs takes"


async def test_folders_of_a_copy_are_data(tmp_path):
    """A copy of a directory with partial data is just data, without a claim on the target."""
    item = CollectItem("run2", 5000, {"ftp://a": "/x"})
    landing = await began(tmp_path / "out", [item.name], item)
    landing.write(item.name, "ftp://a", 0, memoryview(os.urandom(1000)))
    await landing.close()
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    before = found(tmp_path / "copy")
    landing = await began(tmp_path / "copy", [item.name], item)
    assert landing.held(item.name, 0, 5000) == []
    await landing.close()
    assert found(tmp_path / "copy") == before
