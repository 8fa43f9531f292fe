"""Slots: never more than allowed, none lost with a process, first come first served."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from coalloc.engine.limits import server_slots
from coalloc.engine.limits.server_slots import Slots
from coalloc.errors import UsageError
from tests.support.waiting import PATIENCE, until

SERVER = "host.example:2811"
HOLDER = """
import asyncio, sys
from pathlib import Path
from coalloc.engine.limits.server_slots import Slots
server, most = Slots(Path(sys.argv[1]), int(sys.argv[2])), int(sys.argv[3])
leases = [asyncio.run(server.wait(sys.argv[4])) for _ in range(most)]
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def two(tmp_path):
    return Slots(tmp_path / "slots", 2)


def both(two: Slots):
    """Take all slots while the block runs."""
    first, second = two.take(SERVER), two.take(SERVER)
    assert first
    assert second
    return first, second


@contextmanager
def holder(where: Slots, count: int):
    """Another process that holds this many slots until it ends."""
    command = [sys.executable, "-c", HOLDER, str(where.folder), str(where.most), str(count), SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"held\n"
            yield process
        finally:
            process.kill()


def test_no_more_than_there_are(two):
    first, second = two.take(SERVER), two.take(SERVER)
    assert first
    assert second
    assert two.take(SERVER) is None
    first.release()
    first.release()
    third = two.take(SERVER)
    assert third
    assert two.take(SERVER) is None
    second.release()
    third.release()
    assert list(two.folder.iterdir()) == []


def test_each_server_has_its_own(two):
    assert both(two)
    assert two.take(SERVER) is None
    assert two.take("host.example:443")


def test_other_processes_count(two):
    with holder(two, 1):
        mine = two.take(SERVER)
        assert mine
        assert two.take(SERVER) is None


def test_a_killed_process_holds_nothing(two):
    with holder(two, 2) as process:
        assert two.take(SERVER) is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert len(list(two.folder.iterdir())) == 2, "the files are still there"
        assert both(two)


async def test_first_come_first_served(two):
    held, served = both(two), []

    async def customer(number: int):
        lease = await two.wait(SERVER)
        served.append(number)
        await asyncio.sleep(0)
        lease.release()

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(customer(number))
            await asyncio.sleep(0.001)
        held[0].release()
    assert served == [0, 1, 2, 3, 4]
    held[1].release()
    assert list(two.folder.iterdir()) == []


async def test_only_one_waiter_of_a_process_stands_in_the_queue(two):
    held = both(two)
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        waiting = [group.create_task(two.wait(SERVER)) for _ in range(100)]
        await until(lambda: list(two.folder.glob("*.line.*")))
        await asyncio.sleep(0.05)  # while no other comes
        assert len(list(two.folder.glob("*.line.*"))) == 1
        for lease in held:
            lease.release()
        for each in waiting:
            (await each).release()


async def test_waiting_process_gets_the_next_slot_first(two):
    first, _ = both(two)
    waiting = asyncio.create_task(two.wait(SERVER))
    await until(lambda: list(two.folder.glob("*.line.*")))
    first.release()
    assert two.take(SERVER) is None, "there is one, but somebody came first"
    async with asyncio.timeout(PATIENCE):
        assert await waiting


async def test_cancelled_and_killed_waiters_do_not_block_the_queue(two):
    held = both(two)
    waiting = [asyncio.create_task(two.wait(SERVER)) for _ in range(2)]
    await until(lambda: list(two.folder.glob("*.line.*")))
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    (two.folder / f"{SERVER}.line.{0:020}-1").touch()  # left by a killed process
    held[0].release()
    async with asyncio.timeout(PATIENCE):
        assert await waiting[1]


@contextmanager
def somebody_else():
    """Become another user for a while."""
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_all_users_share_a_folder_that_was_made_for_all(monkeypatch):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)
        monkeypatch.setattr(server_slots, "SHARED", Path(folder))
        monkeypatch.delenv(server_slots.VARIABLE, raising=False)
        shared = Slots.from_environment()
        before = os.umask(0o077)
        held = [shared.take(SERVER) for _ in range(shared.most - 1)]
        os.umask(before)
        (Path(folder) / f"{SERVER}.line.{0:020}-1").touch()  # left by a killed process
        with somebody_else():
            mine = shared.take(SERVER)
            assert mine
            assert shared.take(SERVER) is None
            mine.release()
        for lease in held:
            lease.release()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_slot_of_a_killed_process_of_another_user_can_be_taken(monkeypatch):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)
        monkeypatch.setattr(server_slots, "SHARED", Path(folder))
        (Path(folder) / f"{SERVER}.slot.0").touch()
        shared = Slots(Path(folder), 1)
        with somebody_else():
            for _ in range(2):
                mine = shared.take(SERVER)
                assert mine
                assert shared.take(SERVER) is None
                mine.release()


def test_directory_prepared_by_another_user_is_not_used(tmp_path):
    elsewhere, trap = tmp_path / "elsewhere", tmp_path / "trap"
    elsewhere.mkdir()
    trap.symlink_to(elsewhere)
    assert Slots(trap, 1).take(SERVER)
    assert Slots(trap, 1).take(SERVER), "nothing is counted there"
    assert list(elsewhere.iterdir()) == []
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    assert Slots(open_to_all, 1).take(SERVER)
    assert list(open_to_all.iterdir()) == []


async def test_a_cap_that_cannot_be_kept_is_no_reason_to_fail(tmp_path):
    nowhere = Slots(tmp_path / "missing" / "slots", 1)
    assert nowhere.take(SERVER)
    async with asyncio.timeout(PATIENCE):
        assert await nowhere.wait(SERVER)


def test_environment_variable_sets_the_number_of_slots(monkeypatch):
    monkeypatch.delenv(server_slots.VARIABLE, raising=False)
    assert Slots.from_environment().most == server_slots.MOST
    monkeypatch.setenv(server_slots.VARIABLE, "3")
    assert Slots.from_environment().most == 3
    monkeypatch.setenv(server_slots.VARIABLE, "off")
    assert Slots.from_environment() is None


@pytest.mark.parametrize("value", ["0", "-1", "many", "", "1.5", "٣", "9" * 30])
def test_a_number_that_makes_no_sense(monkeypatch, value):
    monkeypatch.setenv(server_slots.VARIABLE, value)
    with pytest.raises(UsageError, match="COGET_CONNECTIONS"):
        Slots.from_environment()
