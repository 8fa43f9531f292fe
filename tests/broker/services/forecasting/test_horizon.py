"""Data learned about all pairs: each transfer once, in any order of commits."""

import asyncio
import contextlib
import time
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.config.settings import Settings
from broker.models.history import Observed
from broker.services.forecasting import all_links, forecasts
from broker.services.forecasting.horizon import Horizon
from broker.storage.history import ObservationStore
from broker.storage.months import Months, month_of
from tests.broker.conftest import running
from tests.support.effort import effort
from tests.support.waiting import until

NOW = time.time()


@given(st.randoms(use_true_random=False), st.integers(1, 200))
@settings(max_examples=effort(200, 20_000), deadline=None)
def test_every_number_is_read_once_after_commits_and_rollbacks(chance, steps):
    """Writers take numbers under a lock; a reader fetches the last number, waits for writers, and then reads."""
    horizon, cursor, read = Horizon(), 0, []
    number, visible, open_, done = 0, set(), {}, 0
    for _ in range(steps):
        step = chance.randrange(9)
        if step <= 1:
            done += 1
            open_[f"t{done}"] = set()
        elif step <= 3 and open_:
            number += 1
            open_[chance.choice(sorted(open_))].add(number)
        elif step <= 5 and open_:
            taken = open_.pop(chance.choice(sorted(open_)))
            visible |= taken if step == 4 else set()
        else:
            settled = horizon.look(max(visible, default=0), frozenset(open_))
            read += sorted(each for each in visible if cursor < each <= settled)
            cursor = max(cursor, settled)
    for numbers in open_.values():
        visible |= numbers
    for _ in range(2):  # once all have ended, the next look reads everything
        settled = horizon.look(max(visible, default=0), frozenset())
        read += sorted(each for each in visible if cursor < each <= settled)
        cursor = max(cursor, settled)
    assert read == sorted(visible)


def observed(i: int, source: str) -> Observed:
    return Observed(id=f"t{i}", source=source, sink="CERN", started=NOW - 100, ended=NOW - 90, bytes=10_000_000 + i)


@pytest.fixture
async def learnt(database, monkeypatch):
    """A broker that looks only on request, and its data about all pairs."""
    monkeypatch.setattr(forecasts.Forecasting, "watch", lambda self: asyncio.sleep(0))
    async with running(Settings(database)) as broker:
        found: list[int] = []
        learn = broker.factory.forecasting._all_links._ceilings.learn

        def noted(kept, counted=True):
            if counted:
                found.append(kept.observation.bytes - 10_000_000)
            learn(kept, counted)

        broker.factory.forecasting._all_links._ceilings.learn = noted
        if not broker.factory.database.sqlite:
            async with broker.factory.database.write() as connection:
                await Months().make(connection, [month_of(NOW - 90)])
        yield broker, found


postgresql = pytest.mark.parametrize("database", ["postgresql"], indirect=True)


@postgresql
async def test_a_transfer_committed_after_a_greater_number_is_learnt(learnt):
    """The writer of number 2 commits while that of number 1 is still running."""
    broker, found = learnt
    database, look = broker.factory.database, broker.factory.forecasting.look
    await broker.factory.transfers.take("ann", [observed(0, "ftp://a.example")])
    await look()
    async with contextlib.AsyncExitStack() as slow:
        first = await slow.enter_async_context(database.write())
        await ObservationStore(first).add("ann", [observed(1, "ftp://b.example")])
        async with database.write() as second:
            await ObservationStore(second).add("ann", [observed(2, "ftp://c.example")])
        await look()
        assert found == [0]  # 2 is visible; earlier ones may still follow
    await look()
    assert found == [0, 1, 2]
    await look()
    assert found == [0, 1, 2]


@postgresql
async def test_rollbacks_and_other_databases_delay_no_learning(learnt, server, database):
    """Writers to other databases and other tables cause no wait, however long they take."""
    import psycopg

    broker, found = learnt
    other = server.create()
    with psycopg.connect(other.replace("+psycopg", "")) as beside:
        beside.execute("CREATE TABLE observations (id int)")
        beside.execute("INSERT INTO observations VALUES (1)")  # and does not commit
        async with contextlib.AsyncExitStack() as stack:
            connection = await stack.enter_async_context(broker.factory.database.write())
            await ObservationStore(connection).add("ann", [observed(1, "ftp://b.example")])
            await connection.rollback()
        await broker.factory.transfers.take("ann", [observed(2, "ftp://c.example")])
        await broker.factory.forecasting.look()
        assert found == [2]
    server.drop(other)


async def test_writers_in_any_order_lose_nothing_and_nothing_is_learnt_twice(learnt, monkeypatch):
    """Writers take turns on SQLite; the reader looks all the time, in small pages."""
    broker, found = learnt
    database, look = broker.factory.database, broker.factory.forecasting.look
    await broker.factory.transfers.take("ann", [observed(0, "ftp://a.example")])
    await look()
    monkeypatch.setattr(all_links, "PAGE", 7)
    chance, count = Random(1), effort(20, 600)
    at_once = asyncio.Semaphore(6)

    async def writer(i: int) -> None:
        numbers = range(10 * i + 1, 10 * i + 1 + chance.randint(1, 10))
        async with at_once:
            with contextlib.suppress(ZeroDivisionError):
                async with database.write() as connection:
                    history = ObservationStore(connection)
                    for number in numbers:
                        await history.add(f"s{i}", [observed(number, f"ftp://h{i}.example")])
                        await asyncio.sleep(chance.choice([0, 0, 0.001, 0.01]))
                    if i % 7 == 0:
                        raise ZeroDivisionError  # it is rolled back
        if i % 7:
            written.extend(numbers)

    async def looks() -> None:
        while not over.is_set():
            await look()
            await asyncio.sleep(0)

    written, over = [0], asyncio.Event()
    looking = asyncio.create_task(looks())
    await asyncio.gather(*(writer(i) for i in range(count)))

    async def all_learnt() -> bool:
        return len(found) >= len(written)

    await until(all_learnt)
    over.set()
    await looking
    await look()
    assert sorted(found) == sorted(written)
