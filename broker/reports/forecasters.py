"""Forecasters: how good each is, on what, and which wins where."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, TypeVar
from urllib.parse import urlencode

from pydantic import BeforeValidator

from broker.models.base import Wire
from broker.models.history import Pair
from broker.models.scores import IN_CHARGE, REPLAYED, WEEK, Key, Mean, Score, tallied
from broker.reports.archive import Archive, Scope
from broker.reports.charts import bars, calibration, lines
from broker.reports.document import Column, Fact, Figure, Report, Table, Value
from broker.reports.judging import COLUMNS, facts, summed
from broker.reports.pair import SizeClass
from broker.reports.significance import ALPHA, FEWEST, Contest, contests, duels
from broker.reports.words import size_span
from broker.storage.accuracy import Accuracy, Chosen
from predictors.tally import Tally

__all__ = ["Wanted", "make"]

DAY = 86_400.0
OWN = 2000
"""Newest transfers of a user of which this is made; for admins there are sums."""
LISTED = 200
"""Pairs that are listed."""
DRAWN = 5
"""Forecasters that figures tell apart."""
K = TypeVar("K", bound=Hashable)
NAME = Column("forecaster", "Forecaster")
CLASS = Column("size", "Size")
WON = (
    Column("best", "Nearest"),
    Column("log_error", "Mean log error", "number"),
    Column("rival", "Against"),
    Column("rival_error", "Its log error", "number"),
    Column("transfers", "Transfers", "count"),
    Column("won", "Weeks nearer", "count"),
    Column("lost", "Weeks further off", "count"),
    Column("p", "p", "number"),
    Column("verdict", "Is it chance?"),
)
RIVALS = (
    NAME,
    Column("transfers", "Transfers", "count"),
    Column("log_error", "Mean log error", "number"),
    Column("won", "Weeks nearer than the hedge", "count"),
    Column("lost", "Weeks further off", "count"),
    Column("p", "p", "number"),
    Column("verdict", "Is it chance?"),
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
    Column("hits", "Came true", "count"),
    Column("trials", "Of", "count"),
)
CHANCE = (
    f"p is how likely chance alone makes as great a difference, all comparisons of a table considered; below {ALPHA} "
    f"it is hardly chance. One week of one pair is one observation; of fewer than {FEWEST} nothing is said."
)


class Wanted(Wire):
    """Over how many days, 0 for all that is kept; of one class of sizes only."""

    days: Annotated[Literal[0, 7, 28, 90, 365], BeforeValidator(int)] = 28
    size_class: SizeClass | None = None


class Known(NamedTuple):
    """Sums over all pairs, means by week and pair, what the pairs are, and what all this is made from."""

    sums: Sequence[tuple[Key, Tally]]
    means: Sequence[Mean]
    pairs: Mapping[int, Pair]
    ground: str


async def make(archive: Archive, scope: Scope, wanted: Wanted) -> Report:
    """How good forecasters were; for users on their own transfers."""
    now = time.time()
    since = (now - wanted.days * DAY) // WEEK if wanted.days else 0.0
    if scope.subject is None:
        known = await _all(archive, int(since), wanted.size_class)
    else:
        known = await _own(archive, Chosen(scope.subject, None, wanted.size_class, since * WEEK))
    return await asyncio.to_thread(_report, known, now)


async def _all(archive: Archive, since: int, size_class: int | None) -> Known:
    async with archive.database.read() as connection:
        stored = Accuracy(connection)
        sums, means = await stored.sums(since, size_class), await stored.means(since, size_class)
        pairs = await stored.pairs({mean.pair_id for mean in means})
    return Known(sums, means, pairs, "Sums by whole weeks, which begin on Thursdays (UTC); medians within 1 %.")


async def _own(archive: Archive, chosen: Chosen) -> Known:
    async with archive.database.read() as connection:
        stored = Accuracy(connection)
        rows = await stored.newest(chosen, OWN)
        pairs = await stored.pairs({row.pair_id for row in rows})
    sums, means = await asyncio.to_thread(_summed, rows)
    ground = f"Your own newest {len(rows):,} transfers, of at most {OWN:,}; others' tell more, which admins see."
    return Known(sums, means, pairs, ground)


def _summed(rows: Sequence[Score]) -> tuple[list[tuple[Key, Tally]], list[Mean]]:
    found = tallied(rows)
    weeks = _total(((key.week, key.pair_id, key.forecaster), tally) for key, tally in found.items() if key.pair_id)
    means = [Mean(*key, tally.transfers, tally.log_error) for key, tally in weeks.items()]
    return [(key, tally) for key, tally in found.items() if not key.pair_id], means


def _total(tallies: Iterable[tuple[K, Tally]]) -> dict[K, Tally]:
    found: defaultdict[K, list[Tally]] = defaultdict(list)
    for key, tally in tallies:
        found[key].append(tally)
    return {key: Tally.total(some) for key, some in found.items()}


def _report(known: Known, now: float) -> Report:
    every = _total((key.forecaster, tally) for key, tally in known.sums)
    order = sorted(every, key=lambda name: (name != IN_CHARGE, every[name].log_error))
    return Report(
        "forecasters",
        "Forecasters",
        "How far forecasts were off, by forecaster: what each would have said when a transfer began, from those that "
        "had ended. All but those in charge are compared on the same transfers.",
        now,
        _facts(every.get(IN_CHARGE)),
        _figures(known, every, order),
        [
            Table("sizes", "By size", (CLASS, NAME, *COLUMNS), _by_size(known, order)),
            _rivals(known.means),
            *_winners(known),
        ],
    )


def _facts(charged: Tally | None) -> list[Fact]:
    count = Fact(
        "Transfers judged",
        charged.transfers if charged else 0,
        "count",
        "by what was forecast by whoever was in charge",
    )
    return [count, *facts(summed(charged))] if charged else [count]


def _figures(known: Known, every: Mapping[str, Tally], order: Sequence[str]) -> list[Figure]:
    whole = Table(
        "forecasters",
        "All forecasters",
        (NAME, *COLUMNS),
        [(name, *summed(every[name])) for name in order],
        known.ground,
    )
    weeks = _total(((key.week, key.forecaster), tally) for key, tally in known.sums)
    by_week: list[Sequence[Value]] = [
        (week * WEEK, name, *summed(weeks[week, name]))
        for week in sorted({week for week, _ in weeks})
        for name in order
        if (week, name) in weeks
    ]
    weekly = Table("weeks", "By week", (Column("week", "Week", "moment"), NAME, *COLUMNS), by_week)
    drawn = Table("drawn", "Those that are drawn", (CLASS, NAME, *COLUMNS), _by_size(known, order[:DRAWN]))
    promised = Table(
        "promises",
        "What was promised",
        PROMISES,
        [row for name in order[:DRAWN] for row in _promises(name, every[name])],
    )
    return [
        bars("errors", "Median error", whole, "forecaster", "mdape"),
        lines("by-week", "Median error by week", weekly, "week", "mdape", "forecaster"),
        bars("by-size", "Median error by size", drawn, "size", "mdape", "forecaster", stacked=False),
        calibration(
            "calibration", "What was promised, and what came true", promised, "nominal", "hits", "trials", "forecaster"
        ),
    ]


def _promises(name: str, tally: Tally) -> list[Sequence[Value]]:
    """That a tenth is below p10, and nine tenths not above p90."""
    return [
        (name, 0.1, tally.below, tally.transfers),
        (name, 0.9, tally.transfers - tally.above, tally.transfers),
    ]


def _by_size(known: Known, order: Sequence[str]) -> list[Sequence[Value]]:
    sizes = _total(((key.size_class, key.forecaster), tally) for key, tally in known.sums)
    classes = sorted({size for size, _ in sizes})
    return [
        (size_span(size), name, *summed(sizes[size, name]))
        for size in classes
        for name in order
        if (size, name) in sizes
    ]


def _rivals(means: Sequence[Mean]) -> Table:
    """All against the broker's own."""
    found = duels(means, lambda mean: ()).get((), [])
    rows = [(*duel, _verdict(duel.won, duel.lost, duel.p)) for duel in found if duel.forecaster != REPLAYED]
    return Table("rivals", "Against the hedge, which the broker uses", RIVALS, rows, CHANCE)


def _winners(known: Known) -> list[Table]:
    """Who is nearest, by source and by pair."""
    pairs = known.pairs
    means = [mean for mean in known.means if mean.pair_id in pairs]
    sources = contests(duels(means, lambda mean: pairs[mean.pair_id].source))
    ways = contests(duels(means, lambda mean: pairs[mean.pair_id]))
    by_source = [(each.where, *_won(each)) for each in sources[:LISTED]]
    by_way = [(*each.where, f"pair?{urlencode(each.where._asdict())}", *_won(each)) for each in ways[:LISTED]]
    return [
        Table("sources", "Who is nearest, by source", (SOURCE, *WON), by_source, _shown(len(sources))),
        Table("pairs", "Who is nearest, by pair", (*WAY, *WON), by_way, _shown(len(ways))),
    ]


def _shown(count: int) -> str:
    return f"Of {count:,} those {LISTED} with most transfers." if count > LISTED else ""


def _won(contest: Contest[K]) -> tuple[Value, ...]:
    return (*contest[1:], _verdict(contest.won, contest.lost, contest.p))


def _verdict(won: int, lost: int, p: float | None) -> str:
    if p is None:
        return f"too few to say: {won + lost} of {FEWEST} weeks"
    return "hardly" if p < ALPHA else "it may be"
