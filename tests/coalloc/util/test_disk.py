"""Jobs in threads, and renames that replace nothing.

A job in a thread has ended when its caller continues, even after an interruption. Renames replace nothing even on file
systems without such a call.
"""

import asyncio
import errno
import os
import threading

import pytest

from coalloc.errors import SinkError
from coalloc.util.disk import Disk, in_thread, rename_exclusively
from tests.support.waiting import PATIENCE


@pytest.mark.parametrize(("fails", "raised"), [(False, asyncio.CancelledError), (True, SinkError)])
async def test_cancelled_caller_waits_for_the_job_and_raises_its_error(fails, raised):
    begun, go_on, over = threading.Event(), threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        assert go_on.wait(PATIENCE)
        over.set()
        if fails:
            raise SinkError("the disk is full", "free some space")

    caller = asyncio.create_task(in_thread(job))
    await asyncio.to_thread(begun.wait, PATIENCE)
    for _ in range(3):
        caller.cancel()
        await asyncio.sleep(0.01)
        assert not caller.done()
    go_on.set()
    with pytest.raises(raised):
        await caller
    assert over.is_set()


def refuses(number):
    def call(*_):
        raise OSError(number, os.strerror(number))

    return call


@pytest.fixture(params=["renameat2", "links", "neither"])
def disk(request, monkeypatch):
    found = Disk()
    if request.param != "renameat2":
        monkeypatch.setattr(found, "rename_new", refuses(errno.EINVAL))
    if request.param == "neither":
        monkeypatch.setattr(found, "link", refuses(errno.EPERM))
    return found


@pytest.fixture
def folder(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


MADE = {
    "file": lambda path: path.write_text("old"),
    "folder": lambda path: (path.mkdir(), (path / "x").touch()),
    "link": lambda path: path.symlink_to("nowhere"),
}
THERE = {**MADE, "empty folder": lambda path: path.mkdir(), "empty file": lambda path: path.touch()}


@pytest.mark.parametrize("kind", MADE)
def test_rename_to_a_free_name_succeeds(tmp_path, folder, disk, kind):
    MADE[kind](tmp_path / "old")
    number = (tmp_path / "old").lstat().st_ino
    rename_exclusively("old", folder, "new", folder, disk)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    assert (tmp_path / "new").lstat().st_ino == number


@pytest.mark.parametrize("there", THERE)
@pytest.mark.parametrize("kind", MADE)
def test_rename_to_an_existing_name_changes_nothing(tmp_path, folder, disk, kind, there):
    MADE[kind](tmp_path / "old")
    THERE[there](tmp_path / "new")
    before = {name: (tmp_path / name).lstat().st_ino for name in ("old", "new")}
    with pytest.raises(FileExistsError):
        rename_exclusively("old", folder, "new", folder, disk)
    assert {path.name: path.lstat().st_ino for path in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be_moved_leaves_nothing_behind(tmp_path, folder, disk):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "inner").mkdir()
    inner = os.open(tmp_path / "old" / "inner", os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(OSError, match="Invalid argument"):
            rename_exclusively("old", folder, "new", inner, disk)
    finally:
        os.close(inner)
    assert list((tmp_path / "old" / "inner").iterdir()) == []


def test_a_rename_that_fails_leaves_no_name(tmp_path, folder, monkeypatch):
    """The way for file systems that know neither makes an empty file first."""
    disk = Disk()
    for name, number in (("rename_new", errno.EINVAL), ("link", errno.EPERM), ("rename", errno.EIO)):
        monkeypatch.setattr(disk, name, refuses(number))
    (tmp_path / "old").write_text("old")
    with pytest.raises(OSError, match="Input/output error"):
        rename_exclusively("old", folder, "new", folder, disk)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
