"""One pair: its forecasts, the actual rates, and the forecasters in charge."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

from broker.models.base import Wire
from broker.models.forecasts import Expected, ForecastRequest
from broker.models.history import Direction, Pair
from broker.models.names import SourceName, Whereto
from broker.models.scores import IN_CHARGE, Score
from broker.reports.archive import Archive, Scope
from broker.reports.charts import bars, calibration, series
from broker.reports.document import Column, Fact, Figure, Report, Table, Value
from broker.reports.judging import COLUMNS, calibrated, facts, judged, residuals
from broker.reports.queries import Day, SizeClass
from broker.reports.unscored import unscored
from broker.reports.words import written
from broker.services.forecasting.forecasts import middle
from broker.storage.accuracy import LOOKED, Accuracy, DetailedTransfer, NewestTroubles, ScoreSelection
from broker.storage.history import ObservationStore

__all__ = ["PairQuery", "make"]

DAY = 86_400.0
TROUBLES = 50
MOST = 10_000
"""Most scores in one report."""
PROBER = "broker"
"""The subject of the broker's own measurements."""
WHEN = Column("ended", "Ended", "moment")
WHO = Column("in_charge", "In charge")
SCORES = (
    Column("observation", "Number", "count"),
    WHEN,
    Column("started", "Began", "moment"),
    Column("bytes", "Size", "bytes"),
    Column("rate", "Rate", "rate"),
    Column("p10", "p10", "rate"),
    Column("p50", "Forecast", "rate"),
    Column("p90", "p90", "rate"),
    WHO,
    Column("given", "Given", "text"),
    Column("log_error", "Log error", "number"),
    Column("setup_seconds", "Set-up", "seconds"),
)
TROUBLE = (
    WHEN,
    Column("bytes", "Size", "bytes"),
    Column("seconds", "Took", "seconds"),
    Column("rate", "Rate", "rate"),
    Column("outcome", "Outcome"),
    Column("error", "Error"),
    Column("subject", "User"),
)

NOTHING = "No transfer has been scored yet: that needs an earlier one that had ended before it began."
PROMISES = (
    Column("of", "Rates"),
    Column("nominal", "Promised", "share"),
    Column("hits", "Correct", "count"),
    Column("trials", "Forecasts", "count"),
)
SPREAD = (Column("factor", "Forecast / actual"), Column("transfers", "Transfers", "count"))
CHARGE = (Column("day", "Day", "moment"), WHO, Column("transfers", "Transfers", "count"))


class PairQuery(Wire):
    """The pair, and the transfers to show: their size class, the period of their ends, and the number of the newest."""

    source: SourceName
    sink: Whereto = ""
    direction: Direction = "read"
    size_class: SizeClass | None = None
    since: Day | None = None
    until: Day | None = None
    newest: Annotated[int, Field(ge=1, le=MOST)] = 500


class PairData(NamedTuple):
    """The stored data of a pair.

    :param scores: newest scores
    :param scored: number of all scores
    :param well: number of all successful transfers
    """

    scores: Sequence[Score]
    scored: int
    well: int
    failures: NewestTroubles
    probes: NewestTroubles
    behind: Sequence[Fact] = ()


async def make(archive: Archive, scope: Scope, query: PairQuery) -> Report:
    """Create the report about the forecasts of a pair.

    :raises Invalid: when the pair names an endpoint that does not exist
    """
    places = archive.places
    pair = Pair(
        (await places.sources({query.source}, scope.caller))[query.source],
        (await places.sinks({query.sink}, scope.caller))[query.sink],
        query.direction,
    )
    size = None if query.size_class is None else middle(query.size_class)
    (expected,) = await archive.forecasting.ask(
        [
            ForecastRequest.model_construct(
                source=pair.source, sink=pair.sink, direction=pair.direction, size=size, file_class=""
            )
        ]
    )
    seen = await _seen(archive, scope, query, pair)
    return await asyncio.to_thread(_report, pair, scope, seen, expected)


def _report(pair: Pair, scope: Scope, seen: PairData, expected: Expected) -> Report:
    return Report(
        "pair",
        f"{pair.source} to {pair.sink or 'anywhere'}" + (", written" if pair.direction == "write" else ""),
        "Rates of transfers, and their forecasts when they began. If no forecast was requested, the report shows the "
        "one that the broker would have made then, from the transfers that had ended. A single size class shows less "
        "spread.",
        time.time(),
        [*_facts(seen), *_expected(expected)],
        _figures(seen.scores),
        [_compared(seen.scores), *_troubles(seen, scope)],
    )


async def _seen(archive: Archive, scope: Scope, query: PairQuery, pair: Pair) -> PairData:
    async with archive.database.read() as connection:
        progress = (await ObservationStore(connection).progress_of([pair])).get(pair)
        if progress is None:
            return PairData((), 0, 0, NewestTroubles(), NewestTroubles())
        stored, subject = Accuracy(connection), scope.subject
        chosen = ScoreSelection(subject, progress.id, query.size_class, query.since or 0.0, query.until)
        return PairData(
            await stored.newest(chosen, query.newest),
            await stored.count(chosen),
            await stored.went_well(progress.id, subject),
            await stored.troubles(progress.id, subject, None, ("failed", "corrupt"), TROUBLES),
            await stored.troubles(progress.id, subject, PROBER, ("ok", "slow", "failed", "corrupt"), TROUBLES),
            await unscored(connection, subject, progress.id),
        )


def _facts(seen: PairData) -> list[Fact]:
    more = f"the newest of {seen.scored:,}"
    more += f"; newest={min(seen.scored, MOST)} shows more" if len(seen.scores) < MOST else ""
    found = [
        Fact("Transfers scored", len(seen.scores), "count", more if seen.scored > len(seen.scores) else ""),
        Fact("Successful transfers", seen.well, "count", "of all sizes, at any time; those below 1 MiB show no rate"),
        Fact("Recent failures", seen.failures.total, "count", f"among the newest {LOOKED:,} transfers of all users"),
        *seen.behind,
    ]
    if seen.scores:
        found += facts(judged([(score.rates, score.rate) for score in seen.scores]))
        given = sum(score.given for score in seen.scores) / len(seen.scores)
        found.append(
            Fact("Given", given, "share", "sent to a client before the transfer; the rest is computed afterwards")
        )
        (most, count), *_ = Counter(map(in_charge, seen.scores)).most_common(1)
        found.append(Fact("Most often in charge", most, "text", f"of {written(count / len(seen.scores), 'share')}"))
    return found


def _expected(expected: Expected) -> list[Fact]:
    if expected.rate is None:
        return [Fact("Expected now", None, "rate", expected.reason)]
    low, high = (written(rate, "rate") for rate in (expected.rate.p10, expected.rate.p90))
    return [
        Fact("Expected now", expected.rate.p50, "rate", f"{low} to {high}; {expected.forecaster}: {expected.reason}")
    ]


def _figures(scores: Sequence[Score]) -> list[Figure]:
    rows = [_row(each) for each in scores]
    table = Table("scores", "Forecasts and actual rates", SCORES, rows, "" if rows else NOTHING)
    off = _part(table, "errors", "ended", "log_error", "in_charge")
    setups = _part(table, "setup", "ended", "setup_seconds")
    promised = Table("promises", "Coverage", PROMISES, calibrated(scores))
    spread = Table("spread", "Forecast / actual", SPREAD, residuals(scores))
    charge = Table("charge", "Forecaster in charge", CHARGE, _charge(scores))
    expected = "Actual rate and forecast"
    above = "Log error: above 0 the forecast was too high"
    return [
        series("rates", expected, table, "ended", "rate", low="p10", middle="p50", high="p90"),
        bars("charges", "Forecaster in charge, by day", charge, "day", "transfers", "in_charge"),
        series("residuals", above, off, "ended", "log_error", colour="in_charge"),
        bars("factors", "Forecasts by their error factor", spread, "factor", "transfers"),
        calibration("calibration", "Coverage: promised and observed", promised, "nominal", "hits", "trials"),
        series("setups", "Time to the first byte", setups, "ended", "setup_seconds"),
    ]


def _part(table: Table, name: str, *columns: str) -> Table:
    """Return a table of some of a table's columns."""
    places = [[each.name for each in table.columns].index(column) for column in columns]
    rows = [[row[place] for place in places] for row in table.rows]
    return Table(name, table.title, [table.columns[place] for place in places], rows, table.note)


def _row(score: Score) -> tuple[Value, ...]:
    return (
        score.observation_id,
        score.ended,
        score.started,
        score.bytes,
        score.rate,
        *score.rates,
        in_charge(score),
        "yes" if score.given else "no",
        math.log(score.rates.p50 / score.rate),
        score.setup_seconds,
    )


def _charge(scores: Sequence[Score]) -> list[tuple[Value, ...]]:
    counts = Counter((score.ended // DAY * DAY, in_charge(score)) for score in scores)
    return [(day, who, count) for (day, who), count in sorted(counts.items())]


def _compared(scores: Sequence[Score]) -> Table:
    """Return the table that compares the forecaster in charge with all others on the same transfers."""
    rows: list[tuple[Value, ...]] = []
    compared = [score for score in scores if score.panel]
    if compared:
        rows.append((IN_CHARGE, *judged([(score.rates, score.rate) for score in compared])))
        names = [name for name in compared[-1].panel if all(name in score.panel for score in compared)]
        rows += [(name, *judged([(score.panel[name], score.rate) for score in compared])) for name in names]
    note = f"The {len(compared):,} transfers for which all forecasters had a forecast." if compared else NOTHING
    return Table(
        "compared",
        "Other forecasters on the same transfers",
        (Column("forecaster", "Forecaster"), *COLUMNS),
        rows,
        note,
    )


def _troubles(seen: PairData, scope: Scope) -> list[Table]:
    none = "" if scope.subject is None else "Admins see the broker's own measurements."
    return [
        _trouble_table("failures", "Failures, the newest first", seen.failures),
        _trouble_table("probes", "Measurements by the broker", seen.probes, none),
    ]


def _trouble_table(name: str, title: str, found: NewestTroubles, none: str = "") -> Table:
    more = found.total > len(found.transfers)
    note = f"The newest {len(found.transfers):,} of {found.total:,}." if more else none
    return Table(name, title, TROUBLE, [_trouble_row(each) for each in found.transfers], note)


def _trouble_row(trouble: DetailedTransfer) -> tuple[Value, ...]:
    rate = trouble.bytes / trouble.seconds if trouble.seconds else None
    return (
        trouble.ended,
        trouble.bytes,
        trouble.seconds,
        rate,
        trouble.outcome,
        trouble.error,
        trouble.subject,
    )


def in_charge(score: Score) -> str:
    """Return the names of the forecaster in charge, and of the forecaster with the largest weight in it.

    >>> in_charge(Score(1, 1, 0, "", 0, 1, 1, 1.0, None, "hedge", "kernel", False, (1, 1, 1), {}))
    'hedge: kernel'
    """
    return f"{score.forecaster}: {score.leader}" if score.leader else score.forecaster
