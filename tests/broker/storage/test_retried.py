"""Transactions that PostgreSQL aborts in a deadlock or conflict are retried."""

import ast
import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

import broker.services
from broker.config.settings import Settings
from broker.models.history import Pair
from broker.storage.database import Database, addressed, retried
from broker.storage.history import ObservationStore
from broker.storage.migration import upgrade
from tests.broker.conftest import Broker, running
from tests.support.postgres import Postgres
from tests.support.waiting import PATIENCE

MORE = text("UPDATE pairs SET observations = observations + 1 WHERE source = :source")
ASKED = text("SELECT source, observations FROM pairs")
REPEATABLE = text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


@pytest.fixture
def address(server: Postgres) -> str:
    url = server.create()
    upgrade(addressed(url))
    return url


@pytest.fixture
async def database(address: str) -> AsyncIterator[Database]:
    with psycopg.connect(_plain(address), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET deadlock_timeout = '100ms'")
    opened = Database(addressed(address))
    async with opened.write() as connection:
        await ObservationStore(connection).make_links([Pair("a", "x", "read"), Pair("b", "x", "read")])
    yield opened
    await opened.close()


def _plain(url: str) -> str:
    return url.replace("+psycopg", "")


async def test_both_of_two_deadlocked_writes_are_done(database):
    both = asyncio.Barrier(2)
    tries = 0

    @retried
    async def count(first: str, second: str) -> None:
        nonlocal tries
        tries += 1
        async with database.write() as connection:
            await connection.execute(MORE, {"source": first})
            if tries <= 2:
                await both.wait()
            await connection.execute(MORE, {"source": second})

    await asyncio.gather(count("a", "b"), count("b", "a"))
    async with database.read() as connection:
        assert dict((await connection.execute(ASKED)).all()) == {"a": 2, "b": 2}
    assert tries == 3


async def test_a_serialization_failure_is_retried(database):
    both = asyncio.Barrier(2)
    tries = 0

    @retried
    async def count() -> None:
        nonlocal tries
        tries += 1
        async with database.write() as connection:
            await connection.execute(REPEATABLE)
            known = dict((await connection.execute(ASKED)).all())["a"]
            if tries <= 2:
                await both.wait()
            await connection.execute(text("UPDATE pairs SET observations = :n WHERE source = 'a'"), {"n": known + 1})

    await asyncio.gather(count(), count())
    async with database.read() as connection:
        assert dict((await connection.execute(ASKED)).all())["a"] == 2
    assert tries == 3


async def test_a_report_that_meets_a_deadlock_is_kept(address):
    async with running(Settings(address)) as broker:
        transfer = await broker.client("transfer")
        assert await _report(transfer, "first") == 1
        async with await psycopg.AsyncConnection.connect(_plain(address)) as rival:
            await rival.execute("SET deadlock_timeout = '20s'")
            await rival.execute("SELECT FROM pairs FOR UPDATE")
            reported = asyncio.create_task(_report(transfer, "second"))
            await _waits(broker)
            # It has the key and waits for the pair; the rival has the pair, and now waits for the key.
            insert = "INSERT INTO observation_keys (subject, key, ended) VALUES ('a-transfer', 'second', 1)"
            await rival.execute(insert)
            await rival.rollback()
            assert await reported == 1


async def _report(client, key: str) -> int:
    now = time.time()
    report = {"id": key, "source": "ftp://a.example", "started": now - 60, "ended": now - 50, "bytes": 10**8}
    answer = await client.post("/broker/v1/transfers", json=report)
    return answer.json()["accepted"]


async def _waits(broker: Broker) -> None:
    """Wait until a transaction waits for a lock."""
    async with asyncio.timeout(PATIENCE):
        while True:
            async with broker.factory.database.read() as connection:
                if (await connection.execute(text("SELECT count(*) FROM pg_locks WHERE NOT granted"))).scalar():
                    return
            await asyncio.sleep(0.005)


def test_all_that_writes_is_retried():
    for path in Path(broker.services.__path__[0]).glob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.AsyncFunctionDef) and ".write()" in ast.unparse(function):
                assert "retried" in map(ast.unparse, function.decorator_list), f"{path.name}: {function.name}"
