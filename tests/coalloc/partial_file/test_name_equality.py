"""Equality of names, on a real file system that ignores case, and on one that does not."""

from pathlib import Path
from tempfile import mkdtemp

import pytest

from coalloc import api
from coalloc.collect.values import CollectRequest
from coalloc.errors import SinkError, UsageError
from coalloc.partial_file import HeldHere
from tests.support.coget import coget
from tests.support.mounts import caseless

NAMES = ("x", "X", "y", "\u00e9", "\u00c9", "e\u0301")


@pytest.fixture(scope="module")
def exfat(tmp_path_factory):
    with caseless(tmp_path_factory.mktemp("held") / "exfat") as where:
        yield where


@pytest.fixture
def folder(exfat):
    return Path(mkdtemp(dir=exfat))


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


async def test_file_system_is_asked_and_unchanged(folder, tmp_path):
    (folder / "sub").mkdir()
    for where in ("", "sub", "none", "none/deeper"):
        assert await HeldHere(folder)(where, NAMES) == {
            **{name: name for name in NAMES},
            "X": "x",
            "\u00c9": "\u00e9",
        }
        assert await HeldHere(tmp_path)(where, NAMES) == {name: name for name in NAMES}
    assert everything(folder) == ["sub"]


async def test_names_that_cannot_be_are_no_trouble(folder):
    names = ("x" * 300, "a:b", "..", "...", "x")
    assert set((await HeldHere(folder)("", names)).values()) <= set(names)
    assert everything(folder) == []


async def test_a_directory_that_cannot_be_written():
    with pytest.raises(SinkError):
        await HeldHere(Path("/proc"))("", ("a", "A"))


def metalink(folder, names, server):
    files = "".join(f"<file name='{name}'><size>10</size><url>{server.url('served')}</url></file>" for name in names)
    path = folder / "x.meta4"
    path.write_text(f"<metalink xmlns='urn:ietf:params:xml:ns:metalink'>{files}</metalink>")
    return path


@pytest.fixture
def server(start_gridftp, tmp_path):
    running = start_gridftp(tmp_path / "served")
    (running.root / "served").write_bytes(b"0123456789")
    return running


@pytest.mark.parametrize("names", [("x", "X"), ("a/x", "A/x"), ("x", "X.coget"), ("A", "a/x"), ("x", "x.coget")])
def test_a_metalink_whose_files_would_be_one(folder, tmp_path, server, names):
    document = metalink(tmp_path, names, server)
    refused = coget([str(document), "-o", str(folder)], tmp_path)
    assert (refused.returncode, names[0] in refused.stderr, names[1] in refused.stderr) == (2, True, True), refused
    assert everything(folder) == []


def test_the_same_elsewhere(tmp_path, server):
    document = metalink(tmp_path, ("x", "X", "a/x", "A/x", "y.COGET", "y"), server)
    (tmp_path / "out").mkdir()
    assert coget([str(document), "-o", str(tmp_path / "out")], tmp_path).returncode == 0
    assert everything(tmp_path / "out") == ["A", "A/x", "X", "a", "a/x", "x", "y", "y.COGET"]


@pytest.fixture
def listed(start_gridftp, tmp_path):
    """A server whose directory has two files that are one on other disks."""
    running = start_gridftp(tmp_path / "listed", "127.0.0.2")
    for name in ("run/a/x", "run/A/X", "run/y"):
        (running.root / name).parent.mkdir(parents=True, exist_ok=True)
        (running.root / name).write_bytes(b"content")
    return f"{running.url('run')}/"


@pytest.mark.parametrize("there", [False, True])
async def test_a_directory_whose_files_would_be_one(folder, tmp_path, listed, there, start_gridftp, monkeypatch):
    monkeypatch.setenv("COGET_HISTORY", str(tmp_path / "history.sqlite"))
    to = start_gridftp(folder, "127.0.0.3").url("out") if there else str(folder / "out")
    with pytest.raises(UsageError, match=r"a/x and A/X|A/X and a/x"):
        await api.collect(CollectRequest((listed,), to))
    assert everything(folder) == []


async def test_a_directory_whose_folders_are_one(folder, tmp_path, start_gridftp, monkeypatch):
    monkeypatch.setenv("COGET_HISTORY", str(tmp_path / "history.sqlite"))
    source, sink = start_gridftp(tmp_path / "listed", "127.0.0.2"), start_gridftp(folder, "127.0.0.3")
    for name in ("run/a/x", "run/A/y"):
        (source.root / name).parent.mkdir(parents=True, exist_ok=True)
        (source.root / name).write_bytes(b"content")
    await api.collect(CollectRequest((f"{source.url('run')}/",), sink.url("out")))
    assert len(everything(folder / "out")) == 3
