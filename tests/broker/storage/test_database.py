"""Transactions end even if the code that began them is interrupted."""

import asyncio
import gc
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from uuid import uuid4

import pytest
from sqlalchemy import select, text

from broker.errors import Unavailable
from broker.models.tasks import Item, NewTask
from broker.schema.tasks import tasks
from broker.storage import database as databases
from broker.storage.database import Database, addressed
from broker.storage.dialects import contains
from broker.storage.migration import upgrade
from broker.storage.tasks import TaskFilter, TaskStore
from tests.support.waiting import PATIENCE


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Garbage collection is off, so that no connection is closed by chance."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_a_cancelled_write_does_not_lock_the_database(database, uncollected):
    opened, random = Database(addressed(database)), Random(1)
    async with opened.write() as connection:
        await connection.execute(text("CREATE TABLE counted (a INTEGER)"))

    async def write() -> None:
        async with opened.write() as connection:
            for _ in range(5):
                await connection.execute(text("INSERT INTO counted VALUES (1) RETURNING a"))

    for _ in range(100):
        cancelled = asyncio.create_task(write())
        await asyncio.sleep(0.004 * random.random())
        cancelled.cancel()
        with suppress(asyncio.CancelledError):
            await cancelled
        async with asyncio.timeout(PATIENCE):  # a locked-out writer waits for longer
            await write()
    async with opened.read() as connection:
        assert (await connection.execute(text("SELECT count(*) % 5 FROM counted"))).scalar_one() == 0
    await opened.close()


@pytest.mark.parametrize("named", ["broker.sqlite", "../link.sqlite"])
@pytest.mark.parametrize("mask", [0o000, 0o022])
async def test_no_other_user_reads_a_database(tmp_path, mask, named):
    (tmp_path / "link.sqlite").symlink_to("here/broker.sqlite")
    tmp_path = tmp_path / "here"
    tmp_path.mkdir()
    before = os.umask(mask)
    try:
        upgrade(addressed(f"sqlite:///{tmp_path}/{named}"))
        for _ in range(2):
            database = Database(addressed(f"sqlite:///{tmp_path}/{named}"))
            async with database.write() as connection:
                await connection.execute(text("UPDATE tokens SET site = ''"))
                found = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
            await database.close()
            assert {"broker.sqlite", "broker.sqlite-wal", "broker.sqlite-shm"} <= found.keys()
            assert set(found.values()) == {0o600}
            for each in tmp_path.iterdir():  # as earlier versions made it
                each.chmod(0o644)
    finally:
        os.umask(before)


async def test_searches_ignore_the_case_of_all_letters(database):
    opened = Database(addressed(database))
    new = NewTask(
        owner="ann", kind="DELETE", submission_id=uuid4(), source=uuid4(), deadline=9e9, items=(Item(source="/x"),)
    )
    async with opened.write() as connection:
        store = TaskStore(connection)
        await store.add(new.model_copy(update={"label": "Äpfel ÉTÉ"}), [], 1.0)
        for pattern, count in {"~äPF*": 1, "~Äpf*été": 1, "~*éTé": 1, "~apf*": 0, "~%": 0, "~Äpfel_ÉTÉ": 0}.items():
            assert (await store.page(TaskFilter(labels=[(pattern, True)]), [], 10, 0)).total == count, pattern
        for text, count in {"ÄPFEL": 1, "éT": 1, "_": 0}.items():
            found = await connection.execute(select(tasks.c.id).where(contains(tasks.c.label, text)))
            assert len(found.all()) == count, text
    await opened.close()


async def test_a_connection_that_is_given_back_at_the_end_is_closed(database):
    """The connection of cancelled work is closed, too; here, the warning about an open one would be an error."""
    made, taken = Database(addressed(database)), asyncio.Event()

    async def work() -> None:
        async with made.read():
            taken.set()
            await asyncio.sleep(0.2)

    working = asyncio.create_task(work())
    await taken.wait()
    await made.close()
    await working
    gc.collect()


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
async def test_a_process_that_stands_still_in_a_transaction_holds_up_others_only_so_long(database, monkeypatch):
    monkeypatch.setattr(databases, "FROZEN", 1)
    frozen, other = Database(addressed(database)), Database(addressed(database))
    held = text("UPDATE alembic_version SET version_num = version_num")

    async def stand_still() -> None:
        async with frozen.write() as connection:
            await connection.execute(held)
            async with other.write() as waiting:
                await waiting.execute(held)  # when the first transaction was ended
            await connection.execute(held)

    with pytest.raises(Unavailable):
        await stand_still()
    await frozen.close()
    await other.close()
