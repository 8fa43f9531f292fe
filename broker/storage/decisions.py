"""Decisions in the database, and the sums of their costs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy import ColumnElement, Subquery, cast, func, literal, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.decisions import DecisionSummary, Made, Range, Regret, ReportedDecision, SourcePart, StoredDecision
from broker.schema.reports import decisions, regrets, traces
from broker.storage.dialects import contains, insert

__all__ = ["WEEK", "DecisionFilter", "DecisionPage", "DecisionStore", "Summed"]

WEEK = 7 * 86_400
LARGEST = 2**48
"""Most bytes that one decision adds to a sum, so that absurd reports do not overflow it."""
LOOKED = 50_000
"""Most decisions that are searched for one page; the next page continues the search."""
SHOWN = [decisions.c[name] for name in DecisionSummary._fields]
SUMS = [each.name for each in regrets.c if not each.primary_key]


class DecisionFilter(NamedTuple):
    """A filter of decisions; None means no restriction. `text` is searched in names, errors and reasons."""

    subject: str | None = None
    text: str | None = None
    outcome: str | None = None
    strategy: str | None = None
    sink: str | None = None
    task: str | None = None
    since: float | None = None
    until: float | None = None
    before: int | None = None


class DecisionPage(NamedTuple):
    """A page of decisions; `next` is the `before` of the following page, or None if there is none."""

    decisions: list[DecisionSummary]
    next: int | None


class Summed(NamedTuple):
    """Costs of a week's decisions by source, sink and strategy; the columns of `regrets`."""

    week: int
    source: str
    sink: str
    strategy: str
    decisions: int
    bytes: int
    planned_bytes: int
    best_bytes: float
    seconds: float
    best_seconds: float
    single_seconds: float
    planned: int
    prediction_seconds: float
    scheme_seconds: float


class DecisionStore:
    """Decisions in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def known(self, subject: str, keys: Iterable[str]) -> set[str]:
        """Return the keys under which the subject has already reported decisions."""
        mine = select(decisions.c.key).where(decisions.c.subject == subject, decisions.c.key.in_(list(keys)))
        return set((await self._connection.execute(mine)).scalars())

    async def add(self, subject: str, judged: Sequence[tuple[Made, Regret]]) -> int:
        """Store the subject's new decisions, and add their costs to the sums; return the number of new decisions."""
        ordered = sorted(judged, key=lambda each: each[0].decided.id)  # one order for all writers, to avoid deadlocks
        added = [each for each in ordered if await self._add(subject, *each)]
        sums: dict[tuple[Any, ...], list[float]] = {}
        for made, regret in added:
            for key, values in _sums(subject, made.decided, regret):
                sums[key] = [a + b for a, b in zip(sums.get(key, [0.0] * len(values)), values, strict=True)]
        for key in sorted(sums):
            await self._sum(key, sums[key])
        return len(added)

    async def _add(self, subject: str, made: Made, regret: Regret) -> bool:
        once = insert(self._connection, decisions).values(_row(subject, made, regret))
        once = once.on_conflict_do_nothing(index_elements=["subject", "key"]).returning(decisions.c.id)
        number = (await self._connection.execute(once)).scalar()
        if number is not None:
            await self._connection.execute(traces.insert().values(decision_id=number, **_trace(made.decided, regret)))
        return number is not None

    async def _sum(self, key: tuple[Any, ...], values: Sequence[float]) -> None:
        keys = [column.name for column in regrets.primary_key]
        row = insert(self._connection, regrets).values(dict(zip([*keys, *SUMS], [*key, *values], strict=True)))
        more = {name: regrets.c[name] + row.excluded[name] for name in SUMS}
        await self._connection.execute(row.on_conflict_do_update(index_elements=keys, set_=more))

    async def one(self, number: int, subject: str | None) -> StoredDecision | None:
        """Return a decision; None if it does not exist, or is not of this subject (None for any subject)."""
        mine = decisions.c.subject == subject if subject is not None else literal(True)
        joined = select(*SHOWN, decisions.c.moved, traces.c.sources, traces.c.ranges).join(traces)
        row = (await self._connection.execute(joined.where(decisions.c.id == number, mine))).one_or_none()
        return None if row is None else _stored_decision(row._mapping)

    async def page(self, decision_filter: DecisionFilter, limit: int) -> DecisionPage:
        """Return a page of decisions, the newest first; it may be short, as at most `LOOKED` decisions are searched."""
        of, order = await self._of(decision_filter), (decisions.c.at.desc(), decisions.c.id.desc())
        looked = select(*SHOWN, decisions.c.sources).where(*of).order_by(*order).limit(LOOKED).subquery()
        columns = [looked.c[name] for name in DecisionSummary._fields]
        page = (
            select(*columns)
            .where(literal(True), *_fits(looked, decision_filter))
            .order_by(looked.c.at.desc(), looked.c.id.desc())
        )
        found = [DecisionSummary(*row) for row in await self._connection.execute(page.limit(limit))]
        if len(found) == limit:
            return DecisionPage(found, found[-1].id)
        last = select(decisions.c.id).where(*of).order_by(*order).offset(LOOKED - 1).limit(1)
        return DecisionPage(found, (await self._connection.execute(last)).scalar())

    async def _of(self, decision_filter: DecisionFilter) -> list[ColumnElement[bool]]:
        """Return the conditions for which there are indexes."""
        columns = decisions.c
        where: list[ColumnElement[bool]] = []
        if decision_filter.subject is not None:
            where.append(columns.subject == decision_filter.subject)
        if decision_filter.task is not None:
            where.append(columns.task_id == decision_filter.task)
        where += [columns.at >= decision_filter.since] if decision_filter.since is not None else []
        where += [columns.at < decision_filter.until] if decision_filter.until is not None else []
        if decision_filter.before is not None:
            last = select(columns.at).where(columns.id == decision_filter.before)
            at = (await self._connection.execute(last)).scalar()
            where.append(tuple_(columns.at, columns.id) < tuple_(literal(at or 0.0), literal(decision_filter.before)))
        return where

    async def worst(self, decision_filter: DecisionFilter, limit: int) -> list[DecisionSummary]:
        """Return the decisions with the greatest regret among the newest `LOOKED`."""
        of = await self._of(decision_filter)
        order = decisions.c.at.desc(), decisions.c.id.desc()
        looked = select(*SHOWN).where(*of).order_by(*order).limit(LOOKED).subquery()
        regret = looked.c.fetch_seconds - looked.c.best_seconds
        page = (
            select(looked)
            .where(regret > 0, *_fits(looked, decision_filter))
            .order_by(regret.desc(), looked.c.id.desc())
            .limit(limit)
        )
        return [DecisionSummary(*row) for row in await self._connection.execute(page)]

    async def summed(self, subject: str | None, since: int, until: int | None = None) -> list[Summed]:
        """Return the weekly costs of decisions from week `since` to before week `until`, summed over subjects."""
        keys = [regrets.c[name] for name in ("week", "source", "sink", "strategy")]
        sums = [cast(func.sum(regrets.c[name]), regrets.c[name].type) for name in SUMS]  # PostgreSQL returns decimals
        where = [regrets.c.week >= since]
        where += [regrets.c.week < until] if until is not None else []
        where += [regrets.c.subject == subject] if subject is not None else []
        rows = await self._connection.execute(select(*keys, *sums).where(*where).group_by(*keys).order_by(*keys))
        return [Summed(*row) for row in rows]


def _fits(looked: Subquery, decision_filter: DecisionFilter) -> list[ColumnElement[bool]]:
    """Return the conditions without an index."""
    same = {name: getattr(decision_filter, name) for name in ("outcome", "strategy", "sink")}
    fits = [looked.c[name] == value for name, value in same.items() if value is not None]
    if decision_filter.text:
        about = ("thing", "sink", "strategy", "rationale", "error", "sources")
        fits.append(or_(*(contains(looked.c[name], decision_filter.text) for name in about)))
    return fits


def _row(subject: str, made: Made, regret: Regret) -> dict[str, Any]:
    decided = made.decided
    same = decided.model_dump(exclude={"id", "sources", "ranges", "range_count"})
    return {
        **same,
        "subject": subject,
        "key": decided.id,
        "best_seconds": regret.best,
        "planned_seconds": regret.planned,
        "single_seconds": regret.single,
        "unknown": regret.unknown,
        "task_id": made.task_id,
        "work_id": made.work_id,
        "sources": " ".join(dict.fromkeys(each.source for each in decided.sources)),
    }


def _trace(decided: ReportedDecision, regret: Regret) -> dict[str, str]:
    ranges = {
        "count": decided.range_count,
        "shares": list(regret.shares),
        "ranges": [list(each.model_dump().values()) for each in decided.ranges],
    }
    sources = [each.model_dump(exclude_defaults=True) for each in decided.sources]
    return {"sources": orjson.dumps(sources).decode(), "ranges": orjson.dumps(ranges).decode()}


def _stored_decision(row: Mapping[Any, Any]) -> StoredDecision:
    trace, names = orjson.loads(row["ranges"]), list(Range.model_fields)
    return StoredDecision(
        DecisionSummary(*(row[name] for name in DecisionSummary._fields)),
        row["moved"],
        [SourcePart.model_validate(each) for each in orjson.loads(row["sources"])],
        trace["shares"],
        [Range.model_construct(**dict(zip(names, each, strict=True))) for each in trace["ranges"]],
        trace["count"],
    )


def _sums(subject: str, decided: ReportedDecision, regret: Regret) -> Iterable[tuple[tuple[Any, ...], list[float]]]:
    """Yield the keys and values that a decision adds to the sums: for all its sources together, and for each source."""
    if regret.best is None:
        return
    week = int(decided.at // WEEK)
    seconds = [decided.fetch_seconds, regret.best, regret.single or 0.0]
    lost = [1, regret.planned - regret.best, decided.fetch_seconds - regret.planned] if regret.planned else [0, 0, 0]
    moved = min(decided.moved, LARGEST)
    whole = [1, moved, moved, moved, *seconds, *lost]
    yield (week, subject, "", decided.sink, decided.strategy), whole
    for i, (source, share) in enumerate(zip(decided.sources, regret.shares, strict=True)):
        waited = [lost[0], lost[1] if i == regret.waits else 0.0, 0.0]
        brought, planned = (min(count, LARGEST) for count in (source.bytes, source.planned_bytes or 0))
        own = [1, brought, planned, share, *seconds, *waited]
        yield (week, subject, source.source, decided.sink, decided.strategy), own
