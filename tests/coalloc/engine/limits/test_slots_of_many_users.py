"""Slots shared by all users of a machine: no user can keep another from a server."""

import asyncio
import fcntl
import os
import subprocess
from contextlib import suppress

import pytest

from coalloc.engine.limits import server_slots
from coalloc.engine.limits.server_slots import Slots
from tests.support.users import OTHER, another_user, as_root, shared_directory
from tests.support.waiting import PATIENCE, until

SERVER = "host.example:2811"
ME = str(os.geteuid())
pytestmark = as_root


@pytest.fixture(params=[0o1777, 0o777], ids=["sticky", "open"])
def folder(monkeypatch, request):
    with shared_directory(request.param) as where:
        monkeypatch.setattr(server_slots, "SHARED", where)
        yield where


@pytest.fixture
def four(folder):
    return Slots(folder, 4)


def all_of(four):
    """Return the largest possible number."""
    held = []
    while len(held) < 100 and (lease := four.take(SERVER)):
        held.append(lease)
    return held


def dead():
    """Return the id of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        pass
    return process.pid


def locked(path, held):
    held.append(os.open(path, os.O_RDWR | os.O_CREAT, 0o666))
    fcntl.flock(held[-1], fcntl.LOCK_EX)


PLANTED = {
    "locked file": locked,
    "file": lambda path, held: path.touch(),
    "fifo": lambda path, held: os.mkfifo(path),
    "directory": lambda path, held: path.mkdir(),
    "link": lambda path, held: path.symlink_to("/etc/passwd"),
    "dangling link": lambda path, held: path.symlink_to(path.parent.parent / "made"),
}
NAMES = [
    *(f"{SERVER}.slot.{number}" for number in range(4)),
    f"{SERVER}.slot.{0:020}-1",
    f"{SERVER}.line.{0:020}-1",
]


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("where", [".", str(OTHER), "1", "9" * 250, "\u0661"])
def test_files_planted_by_another_user_take_no_slot(folder, four, kind, where):
    """A planted file with the id of a live process counts as the user's own, in the user's own directory."""
    held = []
    with another_user():
        (folder / where).mkdir(exist_ok=True)
        for name in NAMES:
            PLANTED[kind](folder / where / name, held)
    leases = all_of(four)
    assert len(leases) == (3 if where == str(OTHER) else 4)
    for lease in leases:
        lease.release()
    assert not (folder.parent / "made").exists()
    for fd in held:
        os.close(fd)


async def test_second_user_gets_one_slot_at_once_and_a_share_later(four, monkeypatch):
    with another_user():
        assert len(all_of(four)) == 4
    mine = four.take(SERVER)
    assert mine
    assert four.take(SERVER) is None
    monkeypatch.setattr(server_slots, "PATIENCE", 0.0)
    async with asyncio.timeout(PATIENCE):
        assert await four.wait(SERVER)
    waiting = asyncio.create_task(four.wait(SERVER))
    await asyncio.sleep(0.1)
    assert not waiting.done(), "a half is the share of one of two"
    mine.release()
    async with asyncio.timeout(PATIENCE):
        assert await waiting


async def test_waiter_first_waits_for_slots_of_other_users(four):
    with another_user():
        held = all_of(four)
    assert four.take(SERVER)
    waiting = asyncio.create_task(four.wait(SERVER))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    with another_user():
        for lease in held[:2]:  # the slot that another user always has makes five of four
            lease.release()
    async with asyncio.timeout(PATIENCE):
        assert await waiting


async def test_queue_of_another_user_does_not_delay_a_user(four):
    with another_user():
        held = all_of(four)
        waiting = asyncio.create_task(four.wait(SERVER))
        await until(lambda: list((four.folder / str(OTHER)).glob("*.line.*")))
        for lease in held[1:]:
            lease.release()
    assert len(all_of(four)) == 3
    waiting.cancel()
    with another_user(), suppress(asyncio.CancelledError):
        await waiting


def test_loans_beyond_a_share_are_wanted_when_another_user_waits(folder, four):
    held = all_of(four)
    assert not four.wanted(SERVER)
    with another_user():
        (folder / str(OTHER)).mkdir()
        (folder / str(OTHER) / f"{SERVER}.line.{0:020}-{os.getpid()}").touch()
    assert four.wanted(SERVER)
    held[0].release()
    held[1].release()
    assert not four.wanted(SERVER)


def test_slots_of_killed_processes_of_another_user_do_not_count(folder, four):
    with another_user():
        (folder / str(OTHER)).mkdir()
        for number in range(4):
            (folder / str(OTHER) / f"{SERVER}.slot.{number:020}-{dead()}").touch()
    assert len(all_of(four)) == 4


@pytest.mark.parametrize("kind", ["directory", "closed directory", "link", "file", "fifo"])
def test_user_whose_directory_is_occupied_by_another_user_has_no_limit(folder, four, tmp_path, kind):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with another_user():
        match kind:
            case "directory":
                (folder / ME).mkdir()
                (folder / ME).chmod(0o777)
            case "closed directory":
                (folder / ME).mkdir(0o700)
            case "link":
                (folder / ME).symlink_to(elsewhere)
            case "file":
                (folder / ME).touch()
            case "fifo":
                os.mkfifo(folder / ME)
    assert len(all_of(four)) == 100
    assert not four.wanted(SERVER)
    assert not four.usable
    assert list(elsewhere.iterdir()) == []
    assert kind != "directory" or list((folder / ME).iterdir()) == []


def test_no_other_user_can_lock_a_slot_or_make_one_in_anothers_name(folder, four):
    held = all_of(four)
    files = list((folder / ME).iterdir())
    assert len(files) == 4
    with another_user():
        for path in files:
            with pytest.raises(PermissionError):
                os.open(path, os.O_RDONLY)
            with pytest.raises(PermissionError):
                path.unlink()
        with pytest.raises(PermissionError):
            (folder / ME / f"{SERVER}.slot.0-1").touch()
    held[0].release()
    assert four.take(SERVER)


def test_a_million_names_are_not_looked_at(folder, four, monkeypatch):
    monkeypatch.setattr(server_slots, "SEEN", 50)
    with another_user():
        (folder / str(OTHER)).mkdir()
        for number in range(100):
            (folder / f"{number + 100_000}").mkdir()
            (folder / str(OTHER) / f"{SERVER}.slot.{number:020}-{os.getpid()}").touch()
    assert four.take(SERVER)


def test_a_directory_that_is_exchanged_for_a_link_is_left_alone(folder, four, tmp_path):
    """Another user can do so if the administrator forgot the sticky bit."""
    lease = four.take(SERVER)
    (name,) = [path.name for path in (folder / ME).iterdir()]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / name).write_bytes(b"precious")
    (folder / ME).rename(folder / "moved")
    (folder / ME).symlink_to(elsewhere)
    lease.release()
    assert four.take(SERVER)
    assert [path.read_bytes() for path in elsewhere.iterdir()] == [b"precious"]
