"""Sums of traffic equal the reports: each transfer once, whenever processes end."""

import asyncio
import random
import time
from collections import defaultdict

import pytest
import sqlalchemy as sa

from broker.config.settings import Settings
from broker.factory import Factory
from broker.jobs.following import Rolling
from broker.models.callers import NewToken
from broker.models.history import Observed
from broker.schema.reports import traffic
from broker.storage import traffic as stored
from broker.storage.database import Database, addressed
from broker.storage.history import ObservationStore
from broker.storage.traffic import TrafficStore, class_of
from predictors.context import SIZES, size_class
from tests.support.broker import BrokerProcess, reports
from tests.support.days import DAY, TODAY
from tests.support.effort import effort
from tests.support.waiting import PATIENCE

T = "/broker/v1/transfers"


async def counted(database: Database) -> None:
    """Wait until all reported transfers are counted."""
    while True:
        await Rolling(database).step()
        if not await _lacks(database):
            return
        await asyncio.sleep(0.01)


async def _lacks(database: Database) -> bool:
    async with database.read() as connection:
        return await TrafficStore(connection).lacks()


async def kept(database: Database) -> dict:
    """Return the sums by their keys."""
    async with database.read() as connection:
        rows = await connection.execute(sa.select(traffic))
        return {tuple(row[:4]): tuple(row[4:]) for row in rows}


async def recomputed(database: Database) -> dict:
    """Compute the same sums from the stored transfers."""
    async with database.read() as connection:
        transfers = await ObservationStore(connection).listed({}, None, 1_000_000)
        rows = await connection.execute(sa.text("SELECT source, sink, direction, id FROM pairs"))
        numbers = {tuple(row[:3]): row[3] for row in rows}
    sums: defaultdict = defaultdict(lambda: [0, 0, 0, 0.0, 0, 0.0, 0.0])
    for each in transfers:
        pair = numbers[each.source, each.sink, each.direction]
        cell = sums[int(each.ended // DAY), pair, size_class(each.bytes), each.subject]
        busy = each.ended - each.started if each.busy_seconds is None else each.busy_seconds
        known = each.setup_seconds is not None
        more = (1, each.outcome in ("failed", "corrupt"), each.bytes, busy, known, each.setup_seconds or 0.0)
        cell[:6] = [a + b for a, b in zip(cell, more, strict=False)]
        cell[6] = max(cell[6], each.ended)
    return {key: pytest.approx(tuple(cell), rel=1e-9) for key, cell in sums.items()}


def history(draw: random.Random, begin: int, count: int) -> list[dict]:
    """Transfers of all kinds, many at the borders of days and size classes."""
    borders = [int(size) + near for size in SIZES for near in (-1, 0, 1)] + [0]
    found = []
    for i in range(begin, begin + count):
        midnight = TODAY - DAY * draw.randrange(1, 4)
        ended = draw.choice([midnight, midnight - 0.001, midnight + 0.001, midnight + draw.uniform(0, DAY)])
        found.append(
            {
                "id": f"h{i}",
                "source": f"ftp://s{draw.randrange(4)}.example",
                "sink": draw.choice(["A", "B"]),
                "direction": draw.choice(["read", "write"]),
                "started": ended - draw.uniform(100, 200),
                "ended": ended,
                "bytes": draw.choice(borders),
                "busy_seconds": draw.choice([None, draw.uniform(90, 100)]),
                "setup_seconds": draw.choice([None, draw.uniform(0, 1)]),
                "outcome": draw.choice(["ok", "ok", "slow", "failed", "corrupt"]),
            }
        )
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
async def test_sums_are_those_of_the_history(broker, admin, monkeypatch, seed):
    monkeypatch.setattr(stored, "ROWS", 40)
    monkeypatch.setattr(stored, "MOST_LINKS", 7)
    draw, other = random.Random(seed), await broker.client("transfer")
    database = broker.factory.database
    for part in range(4):
        for client in (admin, other):
            assert (await client.post(T, json=history(draw, 100 * part, 100))).status_code == 200
        if part % 2:
            await counted(database)
    await counted(database)
    sums = await kept(database)
    assert sums == await recomputed(database)
    assert {key[3] for key in sums} == {"a-admin", "a-transfer"}


async def test_classes_are_those_of_forecasts(broker):
    sizes = [int(size) + near for size in SIZES for near in (-1, 0, 1)] + [0, 2**63 - 1]
    async with broker.factory.database.read() as connection:
        row = await connection.execute(sa.select(*(class_of(sa.literal(each, sa.BigInteger)) for each in sizes)))
        assert list(row.one()) == [size_class(each) for each in sizes]


async def test_sums_and_how_far_they_are_are_kept_together(database, monkeypatch):
    """A crash between the two writes counts nothing twice."""
    factory = Factory.of(Settings(database), compiled=False)
    await factory.transfers.take("ann", [Observed(**each) for each in history(random.Random(7), 0, 200)])

    async def end(*_):
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(TrafficStore, "_mark", end)
        with pytest.raises(ZeroDivisionError):
            await Rolling(factory.database).step()
    assert await kept(factory.database) == {}
    await counted(factory.database)
    assert await kept(factory.database) == await recomputed(factory.database)
    assert not await Rolling(factory.database).step()
    await factory.database.close()


async def test_several_processes_count_each_transfer_once(broker, admin, monkeypatch):
    monkeypatch.setattr(stored, "ROWS", 50)
    draw, others = random.Random(1), [Database(broker.factory.database.url) for _ in range(3)]

    async def report(i):
        assert (await admin.post(T, json=history(draw, 50 * i, 50))).status_code == 200

    async def count(database):
        for _ in range(40):
            await Rolling(database).step()

    await asyncio.gather(*map(report, range(20)), *map(count, others))
    await counted(broker.factory.database)
    assert await kept(broker.factory.database) == await recomputed(broker.factory.database)
    await asyncio.gather(*(each.close() for each in others))


async def test_reported_transfers_are_in_the_sums_soon(broker, admin):
    await admin.post(T, json=history(random.Random(0), 0, 5))
    async with asyncio.timeout(PATIENCE):
        while not await kept(broker.factory.database):  # noqa: ASYNC110 - it is the broker that counts
            await asyncio.sleep(0.05)


async def test_nonsense_is_still_a_number(broker, admin):
    long = {"source": "ftp://s.example", "started": TODAY - DAY - 1e6, "ended": TODAY - DAY, "bytes": 2**63 - 1}
    await admin.post(T, json=[{**long, "id": f"n{i}"} for i in range(3)])
    await counted(broker.factory.database)
    monstrous = sa.update(traffic).values(bytes=2**63 - 5)
    async with broker.factory.database.write() as connection:
        await connection.execute(monstrous)
    await admin.post(T, json={**long, "id": "again"})
    await counted(broker.factory.database)
    ((sums),) = (await kept(broker.factory.database)).values()
    assert (sums[0], sums[2]) == (4, 2**63 - 1)


async def test_forgotten_transfers_are_in_no_sum(broker, admin):
    old = [
        {**each, "id": f"old{i}", "started": each["started"] - 200 * DAY, "ended": each["ended"] - 200 * DAY}
        for i, each in enumerate(history(random.Random(3), 0, 50))
    ]
    await admin.post(T, json=[*old, *history(random.Random(4), 0, 50)])
    await counted(broker.factory.database)
    await broker.factory.transfers.forget(TODAY - 100 * DAY + 1234.5)
    sums = await kept(broker.factory.database)
    assert sums == await recomputed(broker.factory.database)
    assert sum(cell[0] for cell in sums.values()) == 50
    middle = TODAY - 2 * DAY + 4321.0  # in the middle of a day of which some are kept
    await broker.factory.transfers.forget(middle)
    assert await kept(broker.factory.database) == await recomputed(broker.factory.database)


DOUBLED = """INSERT INTO observations
    (ended, started, pair_id, bytes, ranges, streams, concurrency, file_class, outcome,
    subject) SELECT ended, started, pair_id, bytes, ranges, streams, concurrency, file_class, outcome, subject
    FROM observations"""
NEWEST = "UPDATE pairs SET newest_id = (SELECT max(id) FROM observations WHERE pair_id = pairs.id)"


async def filled(url: str, doubled: int) -> str:
    """Create 100 uncounted transfers and double them several times; return the token of an admin."""
    factory = Factory.of(Settings(url), compiled=False)
    issued = await factory.tokens.issue("tests", NewToken(subject="ann", role="admin"))
    await factory.transfers.take("ann", [Observed(**each) for each in reports(0, 100)])
    async with factory.database.write() as connection:
        for statement in [DOUBLED] * doubled + [NEWEST]:
            await connection.execute(sa.text(statement))
    await factory.database.close()
    return issued.token


@pytest.mark.long
def test_a_broker_that_is_killed_again_and_again_counts_each_transfer_once(database, tmp_path):
    token = asyncio.run(filled(database, 8))

    async def state() -> tuple[int, bool, bool]:
        of = Database(addressed(database))
        lacks = await _lacks(of)
        sums = await kept(of)
        right = lacks or sums == await recomputed(of)
        await of.close()
        return sum(cell[0] for cell in sums.values()), lacks, right

    async def whole() -> None:
        of = Database(addressed(database))
        async with asyncio.timeout(PATIENCE):
            while await _lacks(of):  # noqa: ASYNC110 - it is the broker that counts
                await asyncio.sleep(0.05)
        await of.close()

    seen, lacks = [], True
    while lacks:
        with BrokerProcess(database, tmp_path, token) as broker:
            time.sleep(0.05 + 0.02 * len(seen))
            if len(seen) >= effort(4, 100):  # killed often enough: it may finish now
                asyncio.run(whole())
            broker.process.kill()
        count, lacks, right = asyncio.run(state())
        assert right
        seen.append(count)
    assert seen == sorted(seen)
    assert count == 100 * 2**8
