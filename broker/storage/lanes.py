"""Lanes of all workers in the database, and the candidates for the next lanes.

In a lane, a worker runs work items of one task, one after the other: transfers between two collections, or deletions.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import Row, and_, bindparam, case, delete, func, literal, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.lanes import CollectionPair, LaneCandidate, LaneTuning, LaneTurn, OpenLane
from broker.models.tasks import Options
from broker.schema.access import locks
from broker.schema.collections import collections, pause_rules
from broker.schema.tasks import UNFINISHED, lanes, tasks, tunings, turns, work
from broker.storage.collections import CollectionStore
from broker.storage.dialects import clock, contains
from broker.storage.task_state import HELD
from broker.storage.work import earliest

__all__ = ["CANDIDATE", "LaneStore", "candidate"]

LOCKED = select(locks.c.subject)
LOOKED = 10_000
"""Most tunings that are searched, the newest ones."""
FURTHEST = 3600.0
"""Most seconds for which bytes under a rate are reserved: each process reserves about a second at a time."""
REMEMBERED = 86_400.0
"""Seconds for which a user's last turn is stored; users without a turn come first."""
GROUP = (tasks.c.owner, tasks.c.kind, tasks.c.source, tasks.c.destination)
"""The columns of tasks among which only the first is a candidate."""
CANDIDATE = (
    "id",
    "owner",
    "source",
    "destination",
    "kind",
    "options",
    "nice",
    "deadline",
    "requested_at",
    "started_at",
    "role",
    "token_id",
)
"""The columns of `tasks` for a `LaneCandidate`."""


class LaneStore:
    """Lanes in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._sqlite = connection.dialect.name == "sqlite"

    async def alone(self) -> None:
        """Block all other transactions that open lanes until this one ends."""
        if not self._sqlite:
            await self._connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('coget lanes'))"))

    async def candidates(self, queues: Collection[str], now: float, idle: Collection[str] = ()) -> list[LaneCandidate]:
        """Return one task with due work for each owner, kind and pair, by priority, then deadline, then age.

        The cost depends on the number of groups, and not on the number of waiting tasks.

        :param idle: tasks to leave out, because they recently had no work that could start
        """
        groups = select(*GROUP).where(tasks.c.status == "ACTIVE", tasks.c.owner.not_in(LOCKED)).distinct().subquery()
        begun = (work.c.task_id == tasks.c.id, work.c.state == "pending", UNFINISHED)
        due = (work.c.phase == earliest(tasks.c.id), work.c.not_before <= now)
        free = select(work.c.id).where(*begun, *due).correlate(tasks).exists()
        active = (
            tasks.c.id.not_in(list(idle)),
            tasks.c.status == "ACTIVE",
            tasks.c.queue.in_(list(queues)),
            tasks.c.paused.is_(None),
            free,
        )
        *columns, destination = GROUP
        same = [column == groups.c[column.name] for column in columns]
        order = (tasks.c.nice, tasks.c.deadline, tasks.c.requested_at)
        first = select(tasks.c.id).where(*same, *active).order_by(*order).limit(1).correlate(groups)
        none, some = destination.is_(None), destination == groups.c.destination  # two queries, as each uses the index
        firsts = case(
            (groups.c.destination.is_(None), first.where(none).scalar_subquery()),
            else_=first.where(some).scalar_subquery(),
        )
        once = select(firsts).select_from(groups).offset(0)  # otherwise PostgreSQL would evaluate it several times
        chosen = select(*(tasks.c[name] for name in CANDIDATE)).where(tasks.c.id.in_(once))
        if (await self._connection.execute(select(pause_rules.c.id).limit(1))).first() is not None:
            chosen = chosen.where(~HELD)  # a rule holds all tasks of a group, or none
        rows = await self._connection.execute(chosen.order_by(*GROUP))
        return [candidate(row) for row in rows]

    async def open(self) -> list[OpenLane]:
        """Return all open lanes."""
        rows = await self._connection.execute(
            select(lanes.c.task_id, lanes.c.owner, lanes.c.source, lanes.c.destination)
        )
        return [OpenLane(row.task_id, row.owner, CollectionPair(row.source, row.destination)) for row in rows]

    async def add(self, worker: str, of: LaneCandidate, now: float) -> int:
        """Open a lane for a task; return the lane's number."""
        values = {"worker": worker, "task_id": of.task, "owner": of.owner, **of.pair._asdict(), "opened_at": now}
        number = await self._connection.execute(lanes.insert().values(values).returning(lanes.c.id))
        begun = update(tasks).where(tasks.c.id == of.task)
        await self._connection.execute(begun.values(started_at=func.coalesce(tasks.c.started_at, now), waits=""))
        await self._take_turn(of, now)
        return int(number.scalar_one())

    async def _take_turn(self, of: LaneCandidate, now: float) -> None:
        """Store that a user got a lane; the caller has locked out all others that open lanes."""
        key = {"owner": of.owner, **of.pair._asdict()}
        mine = [turns.c[name] == value for name, value in key.items()]
        if not (await self._connection.execute(update(turns).where(*mine).values(at=now))).rowcount:
            await self._connection.execute(turns.insert().values(**key, at=now))
            await self._connection.execute(delete(turns).where(turns.c.at < now - REMEMBERED))

    async def turns(self, owners: Collection[str]) -> list[LaneTurn]:
        """Return the last turns of these users, between all pairs of collections."""
        rows = await self._connection.execute(select(turns).where(turns.c.owner.in_(sorted(owners))))
        return [LaneTurn(row.owner, CollectionPair(row.source, row.destination), row.at) for row in rows]

    async def close(self, worker: str, numbers: Collection[int]) -> None:
        """Close lanes of a worker."""
        mine = (lanes.c.worker == worker, lanes.c.id.in_(sorted(numbers)))
        await self._connection.execute(delete(lanes).where(*mine))

    async def caps(self, of: Collection[str]) -> dict[str, int | None]:
        """Return the limit of lanes of each existing collection, and of the hosts of guests; None for no limit."""
        numbers = [*of, *(await CollectionStore(self._connection).hosts(of)).values()]
        rows = await self._connection.execute(
            select(collections.c.id, collections.c.concurrency).where(collections.c.id.in_(numbers))
        )
        return {row.id: row.concurrency for row in rows}

    async def reserve(self, of: Collection[str], size: int) -> float:
        """Reserve bytes of collections with a rate limit; return the seconds until they may be transferred."""
        waits = [0.0]
        later = func.max if self._sqlite else func.greatest
        for number in sorted(of):
            now = clock(self._connection)
            # a time further ahead was stored before the clock was set back
            begin = case((collections.c.rate_until > now + FURTHEST, now), else_=later(collections.c.rate_until, now))
            row = update(collections).where(collections.c.id == number, collections.c.rate.is_not(None))
            promised = row.values(rate_until=begin + size / collections.c.rate)
            columns = (collections.c.rate_until, collections.c.rate, clock(self._connection).label("now"))
            done = await self._connection.execute(promised.returning(*columns))
            waits += [each.rate_until - size / each.rate - each.now for each in done]
        return max(waits)

    async def keep(self, worker: str, mine: Collection[int]) -> None:
        """Close the lanes of a worker that are not in `mine`: lanes whose opening the worker did not learn of."""
        unknown = (lanes.c.worker == worker, lanes.c.id.not_in(sorted(mine)))
        await self._connection.execute(delete(lanes).where(*unknown))

    async def say(self, waits: Mapping[str, str]) -> None:
        """Store the reasons why tasks wait, by task, if they have changed."""
        if waits:
            row = update(tasks).where(tasks.c.id == bindparam("task"), tasks.c.waits != bindparam("why"))
            rows = [{"task": task, "why": why} for task, why in sorted(waits.items())]
            await self._connection.execute(row.values(waits=bindparam("why")), rows)

    async def tuned(self, pairs: Iterable[CollectionPair]) -> dict[CollectionPair, LaneTuning]:
        """Return the newest tuning of each pair that has one."""
        collection_pairs = list(pairs)
        if not collection_pairs:
            return {}
        which = or_(
            *(
                and_(tunings.c.source == pair.source, tunings.c.destination == pair.destination)
                for pair in collection_pairs
            )
        )
        newest = select(func.max(tunings.c.id)).where(which).group_by(tunings.c.source, tunings.c.destination)
        rows = await self._connection.execute(select(tunings).where(tunings.c.id.in_(newest)))
        known = [_tuning(row) for row in rows]
        return {each.pair: each for each in known}

    async def tunings(self, text: str | None, since: float | None, until: float | None, limit: int) -> list[LaneTuning]:
        """Return tunings of a period whose reason contains a text, among the newest `LOOKED` of all, newest first."""
        newest = select(tunings).order_by(tunings.c.id.desc()).limit(LOOKED).subquery()
        fits = [contains(newest.c.reason, text)] if text else []
        fits += [newest.c.at >= since] if since is not None else []
        fits += [newest.c.at < until] if until is not None else []
        page = select(newest).where(literal(True), *fits).order_by(newest.c.id.desc()).limit(limit)
        return [_tuning(row) for row in await self._connection.execute(page)]

    async def tune(self, new: LaneTuning) -> None:
        """Store a tuning."""
        values = new._asdict()
        pair: CollectionPair = values.pop("pair")
        await self._connection.execute(tunings.insert().values(**values, **pair._asdict()))


def candidate(row: Row[Any]) -> LaneCandidate:
    """Return the candidate of a row with the columns of `CANDIDATE`."""
    return LaneCandidate(
        row.id,
        row.owner,
        CollectionPair(row.source, row.destination or ""),
        row.kind,
        Options.model_validate_json(row.options),
        -row.nice,
        row.deadline,
        row.requested_at,
        row.started_at is not None,
        row.role,
        row.token_id,
    )


def _tuning(row: Row[Any]) -> LaneTuning:
    fields = dict(row._mapping)
    pair = CollectionPair(fields.pop("source"), fields.pop("destination"))
    del fields["id"]
    return LaneTuning(pair, **fields)
