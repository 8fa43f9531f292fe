"""Notifications of PostgreSQL wake workers: those of the right site, and again after the database was down."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import alembic.command
import pytest
import sqlalchemy as sa

from broker.background import WakeUps
from broker.storage import migration
from broker.storage.migration import upgrade
from broker.worker import wake_ups as module
from tests.support.postgres import Postgres, postgres
from tests.support.waiting import until

SITES = ("A", "B", "")


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as server:
        yield server


@asynccontextmanager
async def listening(url: str, woken: Counter[str]) -> AsyncIterator[WakeUps]:
    """One worker of each site, each woken once at its start; `woken` counts."""
    async with WakeUps(url) as sender:
        running = [asyncio.create_task(WakeUps(url).listen(site, partial(woken.update, [site]))) for site in SITES]
        await until(lambda: set(woken) == set(SITES))
        woken.clear()
        yield sender
        for task in running:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_the_workers_of_a_site_are_woken_and_those_of_all_sites(server):
    woken: Counter[str] = Counter()
    async with listening(server.create(), woken) as sender:
        sender.ring("A")
        await until(lambda: woken["A"])
        sender.ring("")
        await until(lambda: woken.total() >= 4)  # each listener gets its notifications in its own time
    assert woken == {"A": 2, "B": 1, "": 1}


async def test_many_rings_at_once_are_few_notifications(server):
    woken: Counter[str] = Counter()
    async with listening(server.create(), woken) as sender:
        for _ in range(1000):
            sender.ring("A")
        await until(lambda: woken["A"])
    assert woken["A"] <= 2


async def test_they_are_woken_again_after_the_database_was_gone(server, monkeypatch):
    monkeypatch.setattr(module, "AGAIN", 0.1)
    woken: Counter[str] = Counter()
    async with listening(server.create(), woken) as sender:
        await asyncio.to_thread(server.crash)
        await until(lambda: set(woken) == set(SITES))  # whenever they start to listen, they check for missed work
        woken.clear()

        def rung() -> bool:
            sender.ring("B")
            return woken["B"] > 0

        await until(rung)
        assert woken["A"] == 0


def test_an_upgrade_drops_the_queues_of_procrastinate(server):
    url = server.create()
    with migration._connected(url) as connection:
        alembic.command.upgrade(migration._config(connection), "0020")
        connection.execute(sa.text("CREATE SCHEMA coget_queue_3_2_2"))
        connection.execute(sa.text("CREATE TABLE coget_queue_3_2_2.jobs (id integer)"))
        connection.execute(sa.text("CREATE SCHEMA coget_queuesome"))
    upgrade(url)
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        names = set(connection.execute(sa.text("SELECT nspname FROM pg_namespace")).scalars())
    engine.dispose()
    assert "coget_queue_3_2_2" not in names
    assert "coget_queuesome" in names
