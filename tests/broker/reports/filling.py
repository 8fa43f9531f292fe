"""Data for tests of traffic reports: transfers that are reported and counted, and scores."""

import asyncio
from collections.abc import Iterable
from typing import Any

import httpx
import sqlalchemy as sa

from broker.jobs.following import Rolling
from broker.models.history import Pair
from broker.reports.document import Fact, Report, Table
from broker.schema.history import pairs
from broker.schema.reports import scores
from broker.storage.database import Database
from broker.storage.traffic import TrafficStore
from tests.support.days import DAY, TODAY

__all__ = ["DAY", "TODAY", "counted", "fact", "report", "scored", "table", "transfer"]


def transfer(number: object, ended: float, **more: Any) -> dict[str, Any]:
    """Return a report of 1 GB in 10 s, with the given changes."""
    usual = {"id": f"t{number}", "source": "ftp://a.example", "sink": "B", "started": ended - 10, "ended": ended}
    return {**usual, "bytes": 10**9, **more}


async def report(client: httpx.AsyncClient, transfers: Iterable[dict[str, Any]]) -> None:
    """Report these transfers."""
    answer = await client.post("/broker/v1/transfers", json=list(transfers))
    assert answer.status_code == 200, answer.text


async def counted(database: Database) -> None:
    """Wait until all reported transfers are counted."""
    while True:
        await Rolling(database).step()
        async with database.read() as connection:
            if not await TrafficStore(connection).lacks():
                return
        await asyncio.sleep(0.01)


async def scored(database: Database, pair: Pair, ends: Iterable[float], off: float = 1.5, **more: Any) -> None:
    """Insert transfers of a pair at 100 MB/s, with forecasts that are this multiple of it."""
    async with database.write() as connection:
        named = sa.select(pairs.c.id).where(*(pairs.c[name] == value for name, value in pair._asdict().items()))
        number = (await connection.execute(named)).scalar()
        if number is None:
            new = pairs.insert().values(**pair._asdict(), observations=0, newest_id=0, newest_end=0.0)
            number = (await connection.execute(new.returning(pairs.c.id))).scalar_one()
        last = (await connection.execute(sa.select(sa.func.max(scores.c.observation_id)))).scalar() or 10**6
        rows = [
            {
                "observation_id": last + 1 + i,
                "pair_id": number,
                "size_class": 6,
                "subject": "a-admin",
                "started": end - 10,
                "ended": end,
                "bytes": 10**9,
                "rate": 1e8,
                "forecaster": "hedge",
                "leader": "last",
                "panel": "{}",
                "given": False,
                "p10": 0.5e8 * off,
                "p50": 1e8 * off,
                "p90": 2e8 * off,
                **more,
            }
            for i, end in enumerate(ends)
        ]
        await connection.execute(scores.insert(), rows)


def fact(report: Report, label: str) -> Fact:
    """Return the fact with this label."""
    (found,) = [each for each in report.facts if each.label == label]
    return found


def table(report: Report, name: str) -> Table:
    """Return the table of this name, or that of the figure."""
    named = {**{each.name: each.table for each in report.figures}, **{each.name: each for each in report.tables}}
    return named[name]
