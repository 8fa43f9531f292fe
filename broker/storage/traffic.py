"""Sums of traffic in the database, in which each observation is counted once, even after a crash."""

from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Double, Integer, case, cast, delete, func, literal, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.schema.base import ID
from broker.schema.history import BADLY, observations, pairs
from broker.schema.reports import accuracy, decisions, regrets, scores, traffic
from broker.storage.dialects import Columns, insert, tabled
from predictors.context import SIZES

__all__ = ["DAY", "TrafficStore", "class_of", "day_of", "forget"]

DAY = 86_400.0
ROWS = 10_000
"""Most observations that are counted in one transaction, during which reports wait."""
MOST_LINKS = 200
"""Most links whose observations are counted in one transaction."""
MOST = 2**63 - 1
LARGEST = 2**48
"""Most bytes that one transfer adds to a sum, so that absurd reports do not overflow it."""
BEHIND: Columns = {"pair_id": ID, "rolled_id": ID, "until": ID}
COUNTED = ("transfers", "failures", "bytes", "busy_seconds", "setups", "setup_seconds")


class _Behind(NamedTuple):
    """A link, and the numbers of its last counted observation and of the last one to count."""

    pair_id: int
    rolled_id: int
    until: int


class TrafficStore:
    """Sums of traffic in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._sqlite = connection.dialect.name == "sqlite"

    async def lacks(self) -> bool:
        """Return whether there are observations to count."""
        lacking = select(pairs.c.id).where(pairs.c.newest_id > pairs.c.rolled_id).limit(1)
        return (await self._connection.execute(lacking)).scalar() is not None

    async def roll(self) -> int:
        """Count some of the new observations; return the number of their links."""
        behind = await self._behind()
        if behind:
            given = tabled(self._connection, behind, BEHIND)
            await self._add(given)
            await self._mark(given)
        return len(behind)

    async def _behind(self) -> list[_Behind]:
        """Lock and return the links to count next.

        Locked links are skipped, because their holder may be waiting for other links.
        """
        behind = select(pairs.c.id, pairs.c.rolled_id, pairs.c.newest_id).where(pairs.c.newest_id > pairs.c.rolled_id)
        behind = behind.order_by(pairs.c.rolled_id).limit(MOST_LINKS).with_for_update(skip_locked=True)
        found = [_Behind(*row) for row in await self._connection.execute(behind)]
        if not found:
            return []
        given = tabled(self._connection, found, BEHIND)
        last = (
            select(observations.c.id)
            .where(observations.c.pair_id == given.c.pair_id, observations.c.id > given.c.rolled_id)
            .order_by(observations.c.id)
            .offset(ROWS // len(found) - 1)
            .limit(1)
            .scalar_subquery()
        )
        query = select(given.c.pair_id, given.c.rolled_id, func.coalesce(last, given.c.until))
        return [_Behind(*row) for row in await self._connection.execute(query)]

    async def _add(self, given: Any) -> None:
        fresh = self._sums(given)
        added = insert(self._connection, traffic).from_select([column.name for column in traffic.c], fresh)
        new, greater = added.excluded, func.max if self._sqlite else func.greatest
        less = func.min if self._sqlite else func.least
        sums = {name: traffic.c[name] + new[name] for name in COUNTED}
        sums["bytes"] = less(traffic.c.bytes, literal(MOST) - new.bytes) + new.bytes
        sums["newest_end"] = greater(traffic.c.newest_end, new.newest_end)
        await self._connection.execute(added.on_conflict_do_update(index_elements=list(traffic.primary_key), set_=sums))

    def _sums(self, given: Any) -> Any:
        of, smaller = observations.c, func.min if self._sqlite else func.least
        chosen = (
            select(
                day_of(self._connection, of.ended).label("day"),
                of.pair_id,
                class_of(of.bytes).label("size_class"),
                of.subject,
                case((BADLY, 1), else_=0).label("failed"),
                smaller(of.bytes, LARGEST).label("bytes"),
                func.coalesce(of.busy_seconds, of.ended - of.started).label("busy_seconds"),
                of.setup_seconds,
                of.ended,
            )
            .where(of.pair_id == given.c.pair_id, of.id > given.c.rolled_id, of.id <= given.c.until)
        )  # fmt: skip
        if self._sqlite:
            each: Any = chosen.subquery("each")
        else:  # without LIMIT, PostgreSQL would scan the table instead of using the index for each pair
            first = chosen.correlate(given).order_by(of.id).limit(ROWS).lateral("first")
            each = select(first).select_from(given.join(first, true())).subquery("each")
        key = (each.c.day, each.c.pair_id, each.c.size_class, each.c.subject)
        return select(
            *key,
            func.count(),
            func.sum(each.c.failed),
            func.sum(each.c.bytes),
            func.sum(each.c.busy_seconds),
            func.count(each.c.setup_seconds),
            func.coalesce(func.sum(each.c.setup_seconds), 0.0),
            func.max(each.c.ended),
        ).group_by(*key)

    async def _mark(self, given: Any) -> None:
        counted = update(pairs).where(pairs.c.id == given.c.pair_id).values(rolled_id=given.c.until)
        await self._connection.execute(counted)


def day_of(connection: AsyncConnection, moment: ColumnElement[float]) -> ColumnElement[int]:
    """Return the number of days from the epoch (UTC) to a moment after it."""
    days = moment / literal(DAY, Double)
    return cast(days if connection.dialect.name == "sqlite" else func.floor(days), Integer)  # PostgreSQL's cast rounds


def class_of(nbytes: ColumnElement[int]) -> ColumnElement[int]:
    """Return the size class of a number of bytes, as in `predictors.context.size_class`."""
    return case(*((nbytes < int(limit), number) for number, limit in enumerate(SIZES)), else_=len(SIZES))


WEEK = 7 * DAY


async def forget(connection: AsyncConnection, before: float) -> None:
    """Delete the sums, scores and decisions of days and weeks before a time, which must be the start of a day."""
    for old in (
        traffic.c.day < int(before // DAY),
        scores.c.ended < before,
        accuracy.c.week < int(before // WEEK),
        decisions.c.at < before,
        regrets.c.week < int(before // WEEK),
    ):
        await connection.execute(delete(old.left.table).where(old))
