"""Forecasters: their accuracy by size, week and pair, and the best forecaster for each pair."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from math import ceil
from typing import Annotated, Literal, NamedTuple, TypeVar

from pydantic import BeforeValidator

from broker.models.base import Wire
from broker.models.history import Pair
from broker.models.scores import IN_CHARGE, REPLAYED, WEEK, ForecasterRecord, ScoreKey, recorded, tallied
from broker.reports.archive import Archive, Scope
from broker.reports.charts import bars, calibration, lines
from broker.reports.document import Column, Fact, Figure, Report, Table, Value
from broker.reports.judging import COLUMNS, facts, summed
from broker.reports.queries import Day, SizeClass, pair_page
from broker.reports.significance import ALPHA, FEWEST, Contest, contests, duels
from broker.reports.unscored import unscored
from broker.reports.words import size_span
from broker.storage.accuracy import Accuracy, ScoreSelection
from predictors.tally import Tally

__all__ = ["ForecastersQuery", "make"]

DAY = 86_400.0
OWN = 2000
"""Most transfers of a user that the report uses, the newest; for admins, it uses sums of all transfers."""
LISTED = 200
"""Most pairs in a table."""
DRAWN = 5
"""Number of forecasters in figures that show only some."""
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
NAME = Column("forecaster", "Forecaster")
CLASS = Column("size", "Size")
WON = (
    Column("best", "Most accurate"),
    Column("log_error", "Mean log error", "number"),
    Column("rival", "Compared with"),
    Column("rival_error", "Its log error", "number"),
    Column("transfers", "Transfers", "count"),
    Column("won", "Weeks better", "count"),
    Column("lost", "Weeks worse", "count"),
    Column("p", "p", "number"),
    Column("verdict", "Due to chance?"),
)
RIVALS = (
    NAME,
    Column("transfers", "Transfers", "count"),
    Column("log_error", "Mean log error", "number"),
    Column("won", "Weeks better than the hedge", "count"),
    Column("lost", "Weeks worse", "count"),
    Column("p", "p", "number"),
    Column("verdict", "Due to chance?"),
)
SOURCE = Column("source", "Source")
WAY = (
    Column("source", "Source", link="address"),
    Column("sink", "Sink"),
    Column("direction", "Direction"),
    Column("address", "Address"),
)
PROMISES = (
    NAME,
    Column("nominal", "Promised", "share"),
    Column("hits", "Correct", "count"),
    Column("trials", "Forecasts", "count"),
)
CHANCE = (
    f"p is the probability that chance alone makes so great a difference, corrected for the number of comparisons; "
    f"below {ALPHA}, chance is unlikely. One week of one pair is one observation; {FEWEST} are the minimum."
)


class ForecastersQuery(Wire):
    """A number of days (0 for all stored data) or a period, and one size class."""

    days: Annotated[Literal[0, 7, 28, 90, 365], BeforeValidator(int)] = 28
    since: Day | None = None
    until: Day | None = None
    size_class: SizeClass | None = None

    def period(self, now: float) -> tuple[float, float]:
        """Return the start of the first and the end of the last week, in epoch seconds; a partial week counts whole."""
        until = now if self.until is None else self.until
        since = until - self.days * DAY if self.days else 0.0
        return (since if self.since is None else self.since) // WEEK * WEEK, ceil(until / WEEK) * WEEK


class ForecasterData(NamedTuple):
    """Sums over all pairs, records of forecasters for each pair, the pairs, a note on the data, and what they lack."""

    sums: Sequence[tuple[ScoreKey, Tally]]
    records: Sequence[ForecasterRecord]
    pairs: Mapping[int, Pair]
    ground: str
    behind: Sequence[Fact]


class Cut(NamedTuple):
    """The sums of each forecaster: in all, by week, and by size class.

    `every` begins with the forecasters in charge; the others are sorted by error.
    """

    every: Mapping[str, Tally]
    weeks: Mapping[tuple[int, str], Tally]
    sizes: Mapping[tuple[int, str], Tally]


async def make(archive: Archive, scope: Scope, query: ForecastersQuery) -> Report:
    """Create the report; for users who are not admins, from their own transfers."""
    now = time.time()
    chosen = ScoreSelection(scope.subject, None, query.size_class, *query.period(now))
    known = await (_all if scope.subject is None else _own)(archive, chosen)
    return await asyncio.to_thread(_report, known, now)


async def _all(archive: Archive, chosen: ScoreSelection) -> ForecasterData:
    async def read(question: Callable[[Accuracy, ScoreSelection], Awaitable[T]]) -> T:
        async with archive.database.read() as connection:
            return await question(Accuracy(connection), chosen)

    sums, records = await asyncio.gather(read(Accuracy.sums), read(Accuracy.records))
    async with archive.database.read() as connection:
        pairs = await Accuracy(connection).links({record.pair_id for record in records})
        behind = await unscored(connection, None)
    ground = "Sums by whole weeks, which begin on Thursdays (UTC); medians within 1 %."
    return ForecasterData(sums, records, pairs, ground, behind)


async def _own(archive: Archive, chosen: ScoreSelection) -> ForecasterData:
    async with archive.database.read() as connection:
        stored = Accuracy(connection)
        rows = await stored.newest(chosen, OWN)
        pairs = await stored.links({row.pair_id for row in rows})
        behind = await unscored(connection, chosen.subject)
    found = await asyncio.to_thread(tallied, rows)
    ground = f"Your own newest {len(rows):,} transfers, at most {OWN:,}; admins see those of all users."
    sums = [(key, tally) for key, tally in found.items() if not key.pair_id]
    return ForecasterData(sums, recorded(found), pairs, ground, behind)


def _total(tallies: Iterable[tuple[K, Tally]]) -> dict[K, Tally]:
    found: defaultdict[K, list[Tally]] = defaultdict(list)
    for key, tally in tallies:
        found[key].append(tally)
    return {key: Tally.total(some) for key, some in found.items()}


def _cut(sums: Sequence[tuple[ScoreKey, Tally]]) -> Cut:
    weeks = _total(((key.week, key.forecaster), tally) for key, tally in sums)
    sizes = _total(((key.size_class, key.forecaster), tally) for key, tally in sums)
    every = _total((name, tally) for (_, name), tally in weeks.items())
    return Cut(dict(sorted(every.items(), key=lambda item: (item[0] != IN_CHARGE, item[1].log_error))), weeks, sizes)


def _report(known: ForecasterData, now: float) -> Report:
    cut = _cut(known.sums)
    return Report(
        "forecasters",
        "Forecasters",
        "Errors by forecaster: the forecast that each would have made at the start of a transfer, from those that had "
        "ended. All except those in charge are compared on the same transfers.",
        now,
        [*_facts(cut.every.get(IN_CHARGE)), *known.behind],
        _figures(cut, known.ground),
        [
            Table("sizes", "By size", (CLASS, NAME, *COLUMNS), _by_size(cut, list(cut.every))),
            _rivals(known.records),
            *_winners(known),
        ],
    )


def _facts(charged: Tally | None) -> list[Fact]:
    if charged is None:
        return [Fact("Transfers scored", 0, "count")]
    note = "the facts below are about the forecasters in charge"
    count = Fact("Transfers scored", charged.transfers, "count", note)
    return [count, *facts(summed(charged))]


def _figures(cut: Cut, ground: str) -> list[Figure]:
    rows: list[Sequence[Value]] = [(name, *summed(tally)) for name, tally in cut.every.items()]
    whole = Table("forecasters", "All forecasters", (NAME, *COLUMNS), rows, ground)
    weekly = Table("weeks", "By week", (Column("week", "Week", "moment"), NAME, *COLUMNS), _by_week(cut))
    few = list(cut.every)[:DRAWN]
    drawn = Table("drawn", "Forecasters in the figures", (CLASS, NAME, *COLUMNS), _by_size(cut, few))
    promises = [row for name in few for row in _promises(name, cut.every[name])]
    promised = Table("promises", "Coverage", PROMISES, promises)
    true = "Coverage: promised and observed"
    return [
        bars("errors", "Median error", whole, "forecaster", "mdape"),
        lines("by-week", "Median error by week", weekly, "week", "mdape", "forecaster"),
        bars("by-size", "Mean log error by size", drawn, "size", "log_error", "forecaster", stacked=False),
        calibration("calibration", true, promised, "nominal", "hits", "trials", "forecaster"),
    ]


def _by_week(cut: Cut) -> list[Sequence[Value]]:
    weeks = sorted({week for week, _ in cut.weeks})
    found = [(week, name) for week in weeks for name in cut.every if (week, name) in cut.weeks]
    return [(week * WEEK, name, *summed(cut.weeks[week, name])) for week, name in found]


def _by_size(cut: Cut, names: Sequence[str]) -> list[Sequence[Value]]:
    sizes = sorted({size for size, _ in cut.sizes})
    found = [(size, name) for size in sizes for name in names if (size, name) in cut.sizes]
    return [(size_span(size), name, *summed(cut.sizes[size, name])) for size, name in found]


def _promises(name: str, tally: Tally) -> list[Sequence[Value]]:
    """Return a forecaster's rows on coverage: a tenth of the rates should be below p10, and nine tenths up to p90."""
    return [
        (name, 0.1, tally.below, tally.transfers),
        (name, 0.9, tally.transfers - tally.above, tally.transfers),
    ]


def _rivals(records: Sequence[ForecasterRecord]) -> Table:
    """Return the table that compares all forecasters with the broker's own."""
    found = duels(records, lambda record: ()).get((), [])
    rows = [(*duel, _verdict(duel.won, duel.lost, duel.p)) for duel in found if duel.forecaster != REPLAYED]
    return Table("rivals", "Against the hedge, which the broker uses", RIVALS, rows, CHANCE)


def _winners(known: ForecasterData) -> list[Table]:
    """Return the tables of the best forecasters, by source and by pair."""
    pairs = known.pairs
    records = [record for record in known.records if record.pair_id in pairs]
    sources = contests(duels(records, lambda record: pairs[record.pair_id].source))
    links = contests(duels(records, lambda record: pairs[record.pair_id]))
    by_source = [(each.where, *_won(each)) for each in sources[:LISTED]]
    by_link = [(*each.where, pair_page(each.where), *_won(each)) for each in links[:LISTED]]
    return [
        Table("sources", "Most accurate, by source", (SOURCE, *WON), by_source, _shown(len(sources))),
        Table("pairs", "Most accurate, by pair", (*WAY, *WON), by_link, _shown(len(links))),
    ]


def _shown(count: int) -> str:
    return f"The {LISTED} of {count:,} with the most transfers." if count > LISTED else ""


def _won(contest: Contest[K]) -> tuple[Value, ...]:
    return (*contest[1:], _verdict(contest.won, contest.lost, contest.p))


def _verdict(won: int, lost: int, p: float | None) -> str:
    if p is None:
        return f"too few data: {won + lost} of {FEWEST} weeks"
    return "unlikely" if p < ALPHA else "possible"
