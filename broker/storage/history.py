"""Observations of transfers in the database, with statements for thousands of them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Double,
    Integer,
    String,
    Text,
    and_,
    bindparam,
    delete,
    func,
    literal,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.history import INTERFACE, Observed, Pair, TransferRecord
from broker.schema.base import ID
from broker.schema.history import forecasts, ignored_subjects, observation_keys, observations, pairs, reporters
from broker.storage.dialects import ALWAYS, Columns, insert, tabled
from predictors.context import size_class
from predictors.experience import SMALLEST
from predictors.observation import Observation

__all__ = ["FIELDS", "USED", "WELL", "LinkProgress", "ObservationStore", "StoredObservation", "stored_observation"]

FIELDS: Columns = {
    "ended": Double(),
    "started": Double(),
    "pair_id": ID,
    "bytes": BigInteger(),
    "busy_seconds": Double(),
    "setup_seconds": Double(),
    "ranges": Integer(),
    "streams": Integer(),
    "concurrency": Integer(),
    "file_class": String(),
    "outcome": String(),
    "error": Text(),
}
WELL = ("ok", "slow")
IMPOSSIBLE = "no interface is as fast"
"""The reason why an observation with too high a rate is set aside."""
USED = observations.c.set_aside.is_(None)
"""The condition for observations that are not set aside."""
WRITERS = """
SELECT virtualtransaction FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
WHERE datname = current_database() AND relation = 'observations'::regclass AND mode = 'RowExclusiveLock' AND granted
"""
"""Query for the transactions that write observations; each locks the table from before its first row until its end."""
IGNORED_SUBJECTS = select(ignored_subjects.c.subject)


class LinkProgress(NamedTuple):
    """A link's number, its number of observations, and the number of the newest one."""

    id: int
    observations: int
    newest_id: int


class StoredObservation(NamedTuple):
    """An observation with its number, and the subject that reported it."""

    id: int
    observation: Observation
    subject: str = ""


class ObservationStore:
    """Observations in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._sqlite = connection.dialect.name == "sqlite"

    async def add(self, subject: str, observed: Sequence[Observed]) -> int:
        """Store the observations that this subject has not reported before; return their number.

        The partitions of their months must exist.
        """
        new = await self._new(subject, observed)
        if not new:
            return 0
        numbers = await self._locked_links({_pair(each) for each in new})
        columns: Columns = {**FIELDS, "set_aside": Text(), "size_class": Integer()}
        given = tabled(self._connection, [_row(each, numbers[_pair(each)].id) for each in new], columns)
        expected = (
            select(forecasts.c.id)
            .where(
                forecasts.c.pair_id == given.c.pair_id,
                forecasts.c.size_class == given.c.size_class,
                forecasts.c.made_at <= given.c.started,
            )
            .order_by(forecasts.c.made_at.desc())
            .limit(1)
            .scalar_subquery()
        )
        fresh = select(*(given.c[name] for name in (*FIELDS, "set_aside")), literal(subject), expected)
        names = [*FIELDS, "set_aside", "subject", "forecast_id"]
        await self._connection.execute(observations.insert().from_select(names, fresh))
        await self._count(new, numbers)
        await self._note_reporter(subject, [progress.id for progress in numbers.values()])
        return len(new)

    async def _note_reporter(self, subject: str, numbers: Sequence[int]) -> None:
        """Record that a subject has reported transfers of these links, whose rows are locked."""
        mine = and_(observations.c.pair_id == pairs.c.id, observations.c.subject == subject)
        newest = select(func.max(observations.c.id)).where(observations.c.pair_id == pairs.c.id).scalar_subquery()
        oldest = select(func.min(observations.c.id)).where(mine).scalar_subquery()
        known = select(reporters.c.first_id).where(reporters.c.pair_id == pairs.c.id, reporters.c.subject == subject)
        given = tabled(self._connection, [(number,) for number in numbers], {"id": ID})
        first = func.coalesce(known.scalar_subquery(), oldest)
        fresh = select(pairs.c.id, literal(subject), first, newest).join(given, given.c.id == pairs.c.id).where(ALWAYS)
        new = insert(self._connection, reporters).from_select(["pair_id", "subject", "first_id", "newest_id"], fresh)
        changed = {"newest_id": new.excluded.newest_id}
        await self._connection.execute(new.on_conflict_do_update(index_elements=["pair_id", "subject"], set_=changed))

    async def _new(self, subject: str, observed: Sequence[Observed]) -> list[Observed]:
        once = {
            each.id: each for each in sorted(observed, key=lambda each: each.id)
        }  # one order for all writers, to avoid deadlocks
        given = tabled(
            self._connection, [(each.id, each.ended) for each in once.values()], {"key": String(), "ended": Double()}
        )
        fresh = select(literal(subject), given.c.key, given.c.ended).where(ALWAYS)
        statement = insert(self._connection, observation_keys).from_select(["subject", "key", "ended"], fresh)
        added = await self._connection.execute(statement.on_conflict_do_nothing().returning(observation_keys.c.key))
        return [once[key] for (key,) in added]

    async def _locked_links(self, named: set[Pair]) -> dict[Pair, LinkProgress]:
        """Return these links, created if necessary, and locked until the transaction ends."""
        await self.make_links(named)
        return await self.progress_of(named, lock=True)

    async def make_links(self, named: Iterable[Pair]) -> None:
        """Create links that do not exist yet."""
        values = [{**pair._asdict(), "observations": 0, "newest_id": 0, "newest_end": 0.0} for pair in sorted(named)]
        if values:
            await self._connection.execute(insert(self._connection, pairs).on_conflict_do_nothing(), values)

    async def progress_of(self, named: Iterable[Pair], lock: bool = False) -> dict[Pair, LinkProgress]:
        """Return the progress of existing links.

        :param lock: whether to lock their rows until the transaction ends
        """
        links = list(named)
        rows = [(i, pair.source, pair.sink, pair.direction) for i, pair in enumerate(links)]
        columns: Columns = {"number": Integer(), "source": String(), "sink": String(), "direction": String()}
        given = tabled(self._connection, rows, columns)
        query = select(given.c.number, pairs.c.id, pairs.c.observations, pairs.c.newest_id).join(
            pairs, and_(*(pairs.c[name] == given.c[name] for name in ("source", "sink", "direction")))
        )
        if lock and not self._sqlite:
            query = query.order_by(pairs.c.id).with_for_update(of=pairs)
        found = await self._connection.execute(query)
        return {links[number]: LinkProgress(*rest) for number, *rest in found}

    async def _count(self, new: Sequence[Observed], numbers: Mapping[Pair, LinkProgress]) -> None:
        counts = Counter(_pair(each) for each in new)
        ends: dict[Pair, float] = {}
        for each in new:
            ends[_pair(each)] = max(each.ended, ends.get(_pair(each), 0.0))
        newest = select(func.max(observations.c.id)).where(observations.c.pair_id == pairs.c.id).scalar_subquery()
        greater = func.max if self._sqlite else func.greatest
        statement = (
            update(pairs)
            .where(pairs.c.id == bindparam("pair"))
            .values(
                observations=pairs.c.observations + bindparam("more"),
                newest_end=greater(pairs.c.newest_end, bindparam("until")),
                newest_id=newest,
            )
        )
        values = [{"pair": numbers[pair].id, "more": counts[pair], "until": ends[pair]} for pair in counts]
        await self._connection.execute(statement, values)

    async def reporters(self, pair: int, limit: int) -> list[str]:
        """Return a link's latest reporters, except ignored subjects, in the order of their first reports."""
        newest = (
            select(reporters.c.subject, reporters.c.first_id)
            .where(reporters.c.pair_id == pair, reporters.c.subject.not_in(IGNORED_SUBJECTS))
            .order_by(reporters.c.newest_id.desc())
            .limit(limit)
            .subquery("newest")
        )
        return list((await self._connection.execute(select(newest.c.subject).order_by(newest.c.first_id))).scalars())

    async def newest(self, pair: int, subject: str, limit: int) -> list[StoredObservation]:
        """Return one subject's newest successful observations of a link, in ascending order of their ends."""
        of = observations.c
        page = self._selected().where(of.pair_id == pair, of.subject == subject).order_by(of.ended.desc())
        return [stored_observation(row) for row in await self._connection.execute(page.limit(limit))][::-1]

    async def ignored_subjects(self) -> frozenset[str]:
        """Return the subjects whose reports are ignored."""
        return frozenset((await self._connection.execute(IGNORED_SUBJECTS)).scalars())

    async def since(self, pair: int, newest_id: int, limit: int) -> list[StoredObservation]:
        """Return successful observations of a link with numbers above `newest_id`, by number."""
        page = self._counted().where(observations.c.pair_id == pair, observations.c.id > newest_id)
        return [
            stored_observation(row)
            for row in await self._connection.execute(page.order_by(observations.c.id).limit(limit))
        ]

    async def following(self, newest_id: int, until: int, limit: int) -> list[StoredObservation]:
        """Return successful observations of all links with numbers above `newest_id` up to `until`, by number."""
        page = self._counted().where(observations.c.id > newest_id, observations.c.id <= until)
        return [
            stored_observation(row)
            for row in await self._connection.execute(page.order_by(observations.c.id).limit(limit))
        ]

    async def sample(self, newest_id: int, until: int, limit: int) -> list[StoredObservation]:
        """Return a sample of the observations that `following` returns, by number.

        Above the limit, each subject has an equal share, its newest observations, so that no subject displaces
        others.
        """
        place = func.row_number().over(partition_by=observations.c.subject, order_by=observations.c.id.desc())
        between = (observations.c.id > newest_id, observations.c.id <= until)
        page = self._counted().where(*between).order_by(place, observations.c.id).limit(limit)
        return sorted(
            (stored_observation(row) for row in await self._connection.execute(page)), key=lambda each: each.id
        )

    async def near(self, pair: Pair, at: float, within: float) -> Observation | None:
        """Return the successful observation of a link that ended nearest to `at`, at most `within` seconds away."""
        numbered = (pairs.c.source == pair.source, pairs.c.sink == pair.sink, pairs.c.direction == pair.direction)
        found = self._counted().where(*numbered)
        before = found.where(observations.c.ended.between(at - within, at)).order_by(observations.c.ended.desc())
        after = found.where(observations.c.ended.between(at, at + within)).order_by(observations.c.ended)
        rows = [(await self._connection.execute(page.limit(1))).one_or_none() for page in (before, after)]
        some = [stored_observation(row).observation for row in rows if row is not None]
        return min(some, key=lambda each: abs(each.end - at), default=None)

    async def last_id(self) -> int:
        """Return the largest number of an observation; 0 if there is none."""
        return (await self._connection.execute(select(func.max(observations.c.id)))).scalar() or 0

    async def writers(self) -> frozenset[str]:
        """Return the transactions that may have uncommitted observations; none on SQLite."""
        if self._sqlite:
            return frozenset()
        return frozenset((await self._connection.execute(text(WRITERS))).scalars())

    @classmethod
    def _counted(cls) -> Any:
        """Return the query for successful observations by subjects that are not ignored."""
        return cls._selected().where(observations.c.subject.not_in(IGNORED_SUBJECTS))

    @staticmethod
    def _selected() -> Any:
        names = ("id", "subject", *FIELDS)
        chosen = [pairs.c.source, pairs.c.sink, pairs.c.direction, *(observations.c[name] for name in names)]
        return select(*chosen).join(pairs).where(observations.c.outcome.in_(WELL), USED)

    async def listed(self, conditions: Mapping[str, Any], before: int | None, limit: int) -> list[TransferRecord]:
        """Return observations, the newest report first.

        :param conditions: required source, sink, direction, outcome and subject; `set_aside`: whether they are set
            aside; `since` and `until`: period in which they ended
        :param before: number of an observation, to return only earlier reports; None for all
        """
        page = select(pairs.c.source, pairs.c.sink, pairs.c.direction, observations).join(pairs)
        for name in ("source", "sink", "direction"):
            page = page if conditions.get(name) is None else page.where(pairs.c[name] == conditions[name])
        for name in ("outcome", "subject"):
            page = page if conditions.get(name) is None else page.where(observations.c[name] == conditions[name])
        page = (
            page if conditions.get("set_aside") is None else page.where(USED if not conditions["set_aside"] else ~USED)
        )
        page = page if conditions.get("since") is None else page.where(observations.c.ended >= conditions["since"])
        page = page if conditions.get("until") is None else page.where(observations.c.ended < conditions["until"])
        page = page if before is None else page.where(observations.c.id < before)
        rows = await self._connection.execute(page.order_by(observations.c.id.desc()).limit(limit))
        known = TransferRecord.model_fields
        return [
            TransferRecord.model_construct(**{name: value for name, value in row._mapping.items() if name in known})
            for row in rows
        ]

    async def forget(self, before: float) -> int:
        """Delete observations that ended before a time, row by row; return their number."""
        return int((await self._connection.execute(delete(observations).where(observations.c.ended < before))).rowcount)

    async def forget_keys(self, before: float) -> None:
        """Delete the keys of observations that ended before a time; if reported again, they count as new."""
        await self._connection.execute(delete(observation_keys).where(observation_keys.c.ended < before))


def _pair(observed: Observed) -> Pair:
    return Pair(observed.source, observed.sink, observed.direction)


def _row(each: Observed, pair: int) -> tuple[Any, ...]:
    return (
        each.ended,
        each.started,
        pair,
        each.bytes,
        each.busy_seconds,
        each.setup_seconds,
        each.ranges,
        each.streams,
        each.concurrency,
        each.file_class,
        each.outcome,
        each.error,
        IMPOSSIBLE if _is_impossible(each) else None,
        size_class(each.bytes),
    )


def _is_impossible(each: Observed) -> bool:
    """Return whether an observation has a rate above that of any network interface."""
    took = each.ended - each.started if each.busy_seconds is None else each.busy_seconds
    return each.outcome in WELL and each.bytes >= SMALLEST and each.bytes > INTERFACE * took


def stored_observation(row: Any) -> StoredObservation:
    """Return the observation of a row with its columns and its link's columns."""
    return StoredObservation(
        row.id,
        Observation(
            source=row.source,
            start=row.started,
            end=row.ended,
            bytes=row.bytes,
            busy_seconds=row.busy_seconds,
            setup_seconds=row.setup_seconds,
            ranges=row.ranges,
            streams=row.streams,
            sink=row.sink,
            direction=row.direction,
            file_class=row.file_class,
            concurrency=row.concurrency,
            outcome=row.outcome,
        ),
        row.subject,
    )
