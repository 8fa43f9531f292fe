"""Queries of the accuracy of past forecasts: scores of single transfers, and sums."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import and_, case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.history import Pair
from broker.models.scores import IN_CHARGE, REPLAYED, WEEK, ForecasterRecord, Score, ScoreKey
from broker.schema.history import observations, pairs
from broker.schema.reports import accuracy, scores, traffic
from broker.storage.history import USED, WELL
from broker.storage.scores import score_of, tally_of
from predictors.tally import Tally

__all__ = ["COUNTED", "LOOKED", "Accuracy", "DetailedTransfer", "NewestTroubles", "ScoreSelection", "Unscored"]

TURN = 50
"""Rows that are processed before other coroutines may run."""
LOOKED = 5000
"""Number of a link's newest transfers that are searched for rare outcomes."""
COUNTED = 100_000
"""Most transfers without a score that are counted."""


class ScoreSelection(NamedTuple):
    """A selection of scores by the end of the transfer (from `since`, before `until`), link, size class and subject."""

    subject: str | None = None
    pair_id: int | None = None
    size_class: int | None = None
    since: float = 0.0
    until: float | None = None

    def where(self) -> list[Any]:
        """Return the conditions as SQL expressions."""
        found = [scores.c.ended >= self.since] if self.since else []
        if self.until is not None:
            found.append(scores.c.ended < self.until)
        for name in ("subject", "pair_id", "size_class"):
            if (value := getattr(self, name)) is not None:
                found.append(scores.c[name] == value)
        return found


class DetailedTransfer(NamedTuple):
    """A transfer with details beyond its rate."""

    started: float
    ended: float
    bytes: int
    seconds: float
    outcome: str
    error: str | None
    subject: str


class NewestTroubles(NamedTuple):
    """The newest transfers with some outcomes, and the number of all of them among the newest `LOOKED` transfers."""

    transfers: Sequence[DetailedTransfer] = ()
    total: int = 0


class Unscored(NamedTuple):
    """The number of successful transfers that no score counts yet, at most `COUNTED`, and of their links."""

    transfers: int
    links: int


class Accuracy:
    """Queries of scores, sums and transfers for reports about forecasts."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def newest(self, chosen: ScoreSelection, limit: int) -> list[Score]:
        """Return the newest scores, in ascending order of the ends of their transfers."""
        page = select(scores).where(*chosen.where()).order_by(scores.c.ended.desc(), scores.c.observation_id.desc())
        found: list[Score] = []
        for row in await self._connection.execute(page.limit(limit)):
            found.append(score_of(row))
            if len(found) % TURN == 0:
                await asyncio.sleep(0)
        return found[::-1]

    async def count(self, chosen: ScoreSelection) -> int:
        """Return the number of the selected scores."""
        return (
            await self._connection.execute(select(func.count()).where(*chosen.where()).select_from(scores))
        ).scalar_one()

    async def went_well(self, pair_id: int, subject: str | None) -> int:
        """Return the number of successful transfers over a link, from the sums of traffic."""
        query = select(func.coalesce(func.sum(traffic.c.transfers - traffic.c.failures), 0))
        query = query.where(traffic.c.pair_id == pair_id)
        if subject is not None:
            query = query.where(traffic.c.subject == subject)
        return int((await self._connection.execute(query)).scalar_one())

    async def troubles(
        self, pair_id: int, subject: str | None, reporter: str | None, outcomes: Collection[str], limit: int
    ) -> NewestTroubles:
        """Return transfers with one of these outcomes among a link's newest `LOOKED` transfers, the newest first.

        :param subject: subject whose transfers the caller may see; None for all
        :param reporter: subject whose transfers are requested; None for all
        """
        of = observations.c
        names = ("started", "ended", "bytes", "outcome", "error", "subject", "busy_seconds")
        newest = select(*(of[name] for name in names)).where(of.pair_id == pair_id).order_by(of.ended.desc())
        looked = newest.limit(LOOKED).subquery("looked")
        total = func.count().over().label("total")  # of all rows, also those beyond the limit
        page = select(looked, total).where(looked.c.outcome.in_(outcomes)).order_by(looked.c.ended.desc()).limit(limit)
        for required in (subject, reporter):
            page = page if required is None else page.where(looked.c.subject == required)
        rows = (await self._connection.execute(page)).all()
        return NewestTroubles([_detailed(row) for row in rows], rows[0].total if rows else 0)

    async def unscored(self, subject: str | None, pair_id: int | None = None) -> Unscored:
        """Return how far the scores are behind the reports: of all users or one, and of all links or one."""
        of = observations.c
        where = [pairs.c.newest_id > pairs.c.scored_id, of.outcome.in_(WELL), USED]
        where += [] if subject is None else [of.subject == subject]
        where += [] if pair_id is None else [pairs.c.id == pair_id]
        newer = and_(of.pair_id == pairs.c.id, of.id > pairs.c.scored_id)
        some = select(of.pair_id).join(pairs, newer).where(*where).limit(COUNTED).subquery("some")
        counted = select(func.count(), func.count(some.c.pair_id.distinct()))
        return Unscored(*(await self._connection.execute(counted.select_from(some))).one())

    async def sums(self, chosen: ScoreSelection) -> list[tuple[ScoreKey, Tally]]:
        """Return the sums over all links, for the weeks that begin in the selected period."""
        page = select(accuracy).where(accuracy.c.pair_id == 0, *_weeks(chosen))
        found: list[tuple[ScoreKey, Tally]] = []
        for row in await self._connection.execute(page):
            found.append((ScoreKey(*row[: len(ScoreKey._fields)]), tally_of(row)))
            if len(found) % TURN == 0:
                await asyncio.sleep(0)
        return found

    async def records(self, chosen: ScoreSelection) -> list[ForecasterRecord]:
        """Return the record of each forecaster on each link, for the weeks that begin in the selected period."""
        of = accuracy.c
        conditions = [of.pair_id > 0, of.forecaster != IN_CHARGE, *_weeks(chosen)]
        count, errors = func.sum(of.transfers).label("transfers"), func.sum(of.absolute_log_errors).label("errors")
        weeks = select(of.week, of.pair_id, of.forecaster, count, errors).where(*conditions)
        each = weeks.group_by(of.week, of.pair_id, of.forecaster).cte("each")
        own = each.alias("own")
        same = and_(own.c.week == each.c.week, own.c.pair_id == each.c.pair_id, own.c.forecaster == REPLAYED)
        mine, its = each.c.errors / each.c.transfers, own.c.errors / own.c.transfers
        page = (
            select(
                each.c.pair_id,
                each.c.forecaster,
                func.sum(each.c.transfers),
                func.sum(each.c.errors),
                func.sum(case((mine < its, 1), else_=0)),
                func.sum(case((mine > its, 1), else_=0)),
            )
            .join(own, same)
            .group_by(each.c.pair_id, each.c.forecaster)
        )
        return [
            ForecasterRecord(pair, name, int(transfers), errors, int(won), int(lost))
            for pair, name, transfers, errors, won, lost in await self._connection.execute(page)
        ]

    async def links(self, numbers: Collection[int]) -> dict[int, Pair]:
        """Return the links with these numbers, by number."""
        page = select(pairs.c.id, pairs.c.source, pairs.c.sink, pairs.c.direction).where(pairs.c.id.in_(numbers))
        return {number: Pair(*rest) for number, *rest in await self._connection.execute(page)}


def _detailed(row: Any) -> DetailedTransfer:
    return DetailedTransfer(
        row.started,
        row.ended,
        row.bytes,
        row.ended - row.started if row.busy_seconds is None else row.busy_seconds,
        row.outcome,
        row.error,
        row.subject,
    )


def _weeks(chosen: ScoreSelection) -> list[Any]:
    """Return the conditions for the selected weeks and size class; sums have no subject."""
    of = accuracy.c
    found: list[Any] = [of.week >= chosen.since / WEEK, of.transfers > 0]
    if chosen.until is not None:
        found.append(of.week < chosen.until / WEEK)
    if chosen.size_class is not None:
        found.append(of.size_class == chosen.size_class)
    return found
