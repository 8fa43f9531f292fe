"""Scores of forecasts in the database: observations to score, scores, and sums of scores."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy import BigInteger, Boolean, Double, Integer, Text, and_, delete, func, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.scores import Score, ScoreKey
from broker.schema.base import ID
from broker.schema.history import forecasts, observations, pairs
from broker.schema.reports import accuracy, scores
from broker.storage.dialects import ALWAYS, Columns, insert, tabled
from broker.storage.history import FIELDS, USED, WELL, stored_observation
from predictors.observation import Observation, Rates
from predictors.tally import Tally

__all__ = ["ClientForecast", "Learned", "NewTransfers", "ScoreStore", "UnscoredLink", "score_of", "tally_of"]

TURN = 100
"""Observations that are processed before other coroutines may run."""
MOST_LINKS = 1000
"""Most links that one query returns."""
SCORE: Columns = {
    "observation_id": BigInteger(),
    "pair_id": ID,
    "size_class": Integer(),
    "subject": Text(),
    "started": Double(),
    "ended": Double(),
    "bytes": BigInteger(),
    "rate": Double(),
    "setup_seconds": Double(),
    "forecaster": Text(),
    "leader": Text(),
    "given": Boolean(),
    "p10": Double(),
    "p50": Double(),
    "p90": Double(),
    "panel": Text(),
}
KEY: Columns = {"week": Integer(), "pair_id": BigInteger(), "size_class": Integer(), "forecaster": Text()}
SUMS: Columns = {
    "transfers": BigInteger(),
    "log_errors": Double(),
    "absolute_log_errors": Double(),
    "squared_errors": Double(),
    "close": BigInteger(),
    "below": BigInteger(),
    "above": BigInteger(),
    "widths": Double(),
    "errors": Text(),
}


class UnscoredLink(NamedTuple):
    """A link, and the numbers of its newest scored observation and of its newest observation."""

    pair_id: int
    scored_id: int
    newest_id: int


class NewTransfers(NamedTuple):
    """The earliest end of a link's new successful transfers (None without any), and the number of all successful."""

    earliest: float | None
    transfers: int


class ClientForecast(NamedTuple):
    """A forecast that a caller got."""

    forecaster: str
    leader: str
    rates: Rates
    made_at: float


class Learned(NamedTuple):
    """An observation, its reporter, and the newest forecast that a caller got before it began."""

    id: int
    subject: str
    observation: Observation
    forecast: ClientForecast | None


class ScoreStore:
    """Scores in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def unscored(self) -> list[UnscoredLink]:
        """Return links with observations to score, at most `MOST_LINKS`, the least recently scored first."""
        lacking = select(pairs.c.id, pairs.c.scored_id, pairs.c.newest_id).where(pairs.c.newest_id > pairs.c.scored_id)
        return [
            UnscoredLink(*row)
            for row in await self._connection.execute(lacking.order_by(pairs.c.scored_id).limit(MOST_LINKS))
        ]

    async def extent(self, pair: UnscoredLink) -> NewTransfers:
        """Return the extent of a link's successful transfers."""
        well = select(func.min(observations.c.ended), func.count()).where(
            observations.c.pair_id == pair.pair_id,
            observations.c.id <= pair.newest_id,
            observations.c.outcome.in_(WELL),
            USED,
        )
        first, transfers = (await self._connection.execute(well)).one()
        if pair.scored_id:
            first = (await self._connection.execute(well.where(observations.c.id > pair.scored_id))).one()[0]
        return NewTransfers(first, transfers)

    async def newest(self, pair: UnscoredLink, limit: int) -> list[Learned]:
        """Return a link's newest successful observations by their ends, the newest first."""
        of, forecast = observations.c, forecasts.c
        chosen = (pairs.c.source, pairs.c.sink, pairs.c.direction, of.id, of.subject, *(of[name] for name in FIELDS))
        page = (
            select(
                *chosen,
                forecast.forecaster,
                forecast.leader,
                forecast.p10,
                forecast.p50,
                forecast.p90,
                forecast.made_at,
            )
            .join(pairs, pairs.c.id == of.pair_id)
            .outerjoin(forecasts, forecast.id == of.forecast_id)
            .where(of.pair_id == pair.pair_id, of.id <= pair.newest_id, of.outcome.in_(WELL), USED)
            .order_by(of.ended.desc(), of.started.desc(), of.bytes.desc())
            .limit(limit)
        )
        found: list[Learned] = []
        for row in await self._connection.execute(page):
            found.append(Learned(row.id, row.subject, stored_observation(row).observation, _client_forecast(row)))
            if len(found) % TURN == 0:
                await asyncio.sleep(0)
        return found

    async def claim(self, pair: UnscoredLink) -> bool:
        """Lock a link until the transaction ends; return False if a process has scored it since `pair` was read."""
        same = and_(pairs.c.id == pair.pair_id, pairs.c.scored_id == pair.scored_id)
        return (await self._connection.execute(select(pairs.c.id).where(same).with_for_update())).first() is not None

    async def mark(self, pair: UnscoredLink) -> None:
        """Record that a link is scored up to its newest observation."""
        done = update(pairs).where(pairs.c.id == pair.pair_id).values(scored_id=pair.newest_id)
        await self._connection.execute(done)

    async def take_back(self, numbers: Collection[int]) -> list[Score]:
        """Delete and return the scores of these observations."""
        given = tabled(self._connection, [(number,) for number in numbers], {"id": BigInteger()})
        old = delete(scores).where(scores.c.observation_id.in_(select(given.c.id))).returning(*scores.c)
        return [score_of(row) for row in await self._connection.execute(old)]

    async def add(self, new: Sequence[Score]) -> None:
        """Store these scores."""
        given = tabled(self._connection, [_row(each) for each in new], SCORE)
        fresh = select(*(given.c[name] for name in SCORE))
        await self._connection.execute(scores.insert().from_select(list(SCORE), fresh))

    async def count(self, more: Mapping[ScoreKey, Tally], less: Mapping[ScoreKey, Tally]) -> None:
        """Add `more` to the stored sums, and subtract `less`."""
        keys = tabled(self._connection, sorted({*more, *less}), KEY)
        zeros = (*(literal(0) for _ in range(len(SUMS) - 1)), literal("{}"))
        named = [keys.c[name] for name in KEY]
        nothing = select(*named, *zeros).where(ALWAYS).order_by(*named)  # one order for all writers, as below
        statement = insert(self._connection, accuracy).from_select([*KEY, *SUMS], nothing)
        await self._connection.execute(statement.on_conflict_do_nothing())
        same = and_(*(accuracy.c[name] == keys.c[name] for name in KEY))
        locked = select(accuracy).join(keys, same).order_by(*(accuracy.c[name] for name in KEY))
        sums: list[tuple[Any, ...]] = []
        for row in await self._connection.execute(locked.with_for_update(of=accuracy)):
            key = ScoreKey(*row[: len(KEY)])
            total = Tally.total([tally_of(row), more.get(key, Tally())], [less.get(key, Tally())])
            sums.append((*key, *_sums(total)))
        given = tabled(self._connection, sums, {**KEY, **SUMS})
        changed = insert(self._connection, accuracy).from_select(
            [*KEY, *SUMS], select(*(given.c[name] for name in (*KEY, *SUMS))).where(ALWAYS)
        )
        into = {name: changed.excluded[name] for name in SUMS}
        await self._connection.execute(changed.on_conflict_do_update(index_elements=list(KEY), set_=into))


def _client_forecast(row: Any) -> ClientForecast | None:
    if row.made_at is None:
        return None
    return ClientForecast(row.forecaster, row.leader, Rates(row.p10, row.p50, row.p90), row.made_at)


def _row(score: Score) -> tuple[Any, ...]:
    *fields, rates, panel = score
    return (*fields, *rates, orjson.dumps({name: tuple(each) for name, each in panel.items()}).decode())


def score_of(row: Any) -> Score:
    """Return the score of a row with all columns."""
    *fields, p10, p50, p90, panel = row
    forecasts = {name: Rates(*rates) for name, rates in orjson.loads(panel).items()}
    return Score._make((*fields, Rates(p10, p50, p90), forecasts))


def _sums(tally: Tally) -> tuple[Any, ...]:
    *numbers, errors = (getattr(tally, name) for name in SUMS)
    return (*numbers, orjson.dumps(errors, option=orjson.OPT_NON_STR_KEYS).decode())


def tally_of(row: Any) -> Tally:
    """Return the sums of a row."""
    numbers = {name: getattr(row, name) for name in SUMS}
    steps = orjson.loads(row.errors)
    return Tally(**{**numbers, "errors": dict(zip(map(int, steps), steps.values(), strict=True))})
