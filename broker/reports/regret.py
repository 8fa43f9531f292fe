"""Regret: the time lost against the best choice in hindsight, and its causes."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Annotated

from pydantic import Field

from broker.models.base import Wire
from broker.models.names import Remark, SinkName
from broker.reports import decisions as log
from broker.reports.archive import Archive, Scope
from broker.reports.charts import bars, lines
from broker.reports.document import Column, Fact, Figure, Report, Table, Value
from broker.reports.queries import Day
from broker.storage.decisions import WEEK, DecisionStore, Summed
from broker.storage.decisions import DecisionFilter as Of

__all__ = ["RegretQuery", "make"]

WORST = 20
FEWEST = 10
"""Fewest decisions for a reliable sum."""
SUMS = (
    Column("decisions", "Decisions", "count"),
    Column("seconds", "Time spent", "seconds"),
    Column("best_seconds", "Best in hindsight", "seconds"),
    Column("lost", "Time lost", "seconds"),
    Column("lost_share", "Share of time lost", "share"),
    Column("planned", "Decisions with a plan", "count"),
    Column("prediction_seconds", "Lost by forecasts", "seconds"),
    Column("scheme_seconds", "Lost by the strategy", "seconds"),
    Column("single_seconds", "Best single source", "seconds"),
    Column("gain", "Gain over it, factor", "factor"),
)
SOURCES = (
    Column("source", "Source"),
    Column("decisions", "Decisions", "count"),
    Column("planned_bytes", "Planned", "bytes"),
    Column("bytes", "Delivered", "bytes"),
    Column("best_bytes", "Best in hindsight", "bytes"),
    Column("prediction_seconds", "Waited for it", "seconds"),
)
SHARES = (Column("source", "Source"), Column("share", "Share"), Column("bytes", "Bytes", "bytes"))
LOST = (Column("week", "Week", "moment"), Column("why", "Lost by"), Column("seconds", "Lost", "seconds"))


class RegretQuery(Wire):
    """A number of weeks, the current one included, or a period; and optionally a sink or a strategy."""

    weeks: Annotated[int, Field(ge=1, le=520)] = 8
    since: Day | None = None
    until: Day | None = None
    sink: Annotated[SinkName | None, Field(title="To", description="A site.")] = None
    strategy: Remark | None = None


async def make(archive: Archive, scope: Scope, query: RegretQuery) -> Report:
    """Create the report from the stored sums of decisions, and the decisions with the greatest regret."""
    now = time.time()
    weeks = _weeks(query, now)
    async with archive.database.read() as connection:
        stored = DecisionStore(connection)
        sums = [each for each in await stored.summed(scope.subject, weeks.start, weeks.stop) if _meant(each, query)]
        of = Of(scope.subject, strategy=query.strategy, sink=query.sink)
        begin, end = float(weeks.start * WEEK), float(weeks.stop * WEEK)
        worst = await stored.worst(of._replace(since=begin, until=end), WORST)
    whole = [each for each in sums if not each.source]
    apart = [each for each in sums if each.source]
    return Report(
        "regret",
        "Regret",
        "The time of transfers, beside the time with the best shares in hindsight, when the rates of all sources are "
        "known. The plan's extra time is lost by forecasts. The actual transfer may be slower than the plan, which is "
        "lost by the strategy, or faster (less than 0).",
        now,
        _facts(whole),
        [_by_week(whole), _by_source(apart)],
        [
            _table("weeks", "By week", Column("key", "Week", "moment"), whole, lambda each: each.week * WEEK),
            _table("sinks", "By sink", Column("key", "Sink"), whole, attrgetter("sink")),
            _table("strategies", "By strategy", Column("key", "Strategy"), whole, attrgetter("strategy")),
            _sources(apart),
            Table("worst", "The worst decisions", log.COLUMNS, [log.row(each) for each in worst]),
        ],
    )


def _weeks(query: RegretQuery, now: float) -> range:
    """Return the numbers of all weeks that overlap the period."""
    stop = math.ceil((now if query.until is None else query.until) / WEEK)
    return range(stop - query.weeks if query.since is None else int(query.since // WEEK), stop)


def _meant(each: Summed, query: RegretQuery) -> bool:
    return query.sink in (None, each.sink) and query.strategy in (None, each.strategy)


def _added(sums: Iterable[Summed]) -> dict[str, float]:
    """Return the totals of sums, by field."""
    names = [name for name in Summed._fields if name not in ("week", "source", "sink", "strategy")]
    total = dict.fromkeys(names, 0.0)
    for each in sums:
        for name in names:
            total[name] += getattr(each, name)
    return total


def _facts(whole: Sequence[Summed]) -> list[Fact]:
    total = _added(whole)
    count, seconds = int(total["decisions"]), total["seconds"]
    few = "" if count >= FEWEST else f"only {count} decisions: not reliable"
    lost, planned = seconds - total["best_seconds"], int(total["planned"])
    return [
        Fact("Decisions evaluated", count, "count", few),
        Fact("Time spent", seconds, "seconds", "until the last byte of each transfer"),
        Fact("Time lost", lost, "seconds", "over the best shares in hindsight"),
        Fact("Share of time lost", lost / seconds if seconds else None, "share", few),
        Fact("Lost by forecasts", total["prediction_seconds"], "seconds", f"of {planned:,} decisions with a plan"),
        Fact(
            "Lost by the strategy",
            total["scheme_seconds"],
            "seconds",
            "of these; below 0, it was faster than the plans",
        ),
        Fact("Gain over the best single source", _gain(total), "factor", few or "in hindsight; time for time"),
    ]


def _gain(total: dict[str, float]) -> float | None:
    return total["single_seconds"] / total["seconds"] if total["seconds"] and total["single_seconds"] else None


def _table(name: str, title: str, key: Column, whole: Sequence[Summed], of: Callable[[Summed], Value]) -> Table:
    groups: defaultdict[Value, list[Summed]] = defaultdict(list)
    for each in whole:
        groups[of(each)].append(each)
    rows = [(value, *_row(_added(some))) for value, some in groups.items()]
    return Table(name, title, (key, *SUMS), rows, _few(whole))


def _few(whole: Sequence[Summed]) -> str:
    count = sum(each.decisions for each in whole)
    if not count:
        return "No decision of this period could be evaluated: there was none, or the best result is unknown."
    return "" if count >= FEWEST else f"{count} decisions are too few for a reliable result."


def _row(total: dict[str, float]) -> tuple[Value, ...]:
    lost = total["seconds"] - total["best_seconds"]
    return (
        int(total["decisions"]),
        *(total["seconds"], total["best_seconds"], lost, lost / total["seconds"] if total["seconds"] else None),
        int(total["planned"]),
        *(total["prediction_seconds"], total["scheme_seconds"], total["single_seconds"], _gain(total)),
    )


def _by_source_name(apart: Sequence[Summed]) -> dict[str, dict[str, float]]:
    groups: defaultdict[str, list[Summed]] = defaultdict(list)
    for each in apart:
        groups[each.source].append(each)
    added = {source: _added(some) for source, some in groups.items()}
    return dict(sorted(added.items(), key=lambda item: -item[1]["prediction_seconds"]))


def _sources(apart: Sequence[Summed]) -> Table:
    counts = ("decisions", "planned_bytes", "bytes")
    rows: list[Sequence[Value]] = [
        (source, *(int(total[name]) for name in counts), total["best_bytes"], total["prediction_seconds"])
        for source, total in _by_source_name(apart).items()
    ]
    note = "" if rows else "There is no source with an evaluated decision."
    return Table("sources", "Shares by source: planned, delivered, best in hindsight", SOURCES, rows, note)


def _by_source(apart: Sequence[Summed]) -> Figure:
    rows: list[Sequence[Value]] = [
        (source, share, total[name])
        for source, total in _by_source_name(apart).items()
        for share, name in (("planned", "planned_bytes"), ("delivered", "bytes"), ("best", "best_bytes"))
    ]
    table = Table("shares", "Shares", SHARES, rows)
    title = "Shares of sources: planned, delivered, best in hindsight"
    return bars("chosen", title, table, "source", "bytes", "share", stacked=False)


def _by_week(whole: Sequence[Summed]) -> Figure:
    groups: defaultdict[int, list[Summed]] = defaultdict(list)
    for each in whole:
        groups[each.week].append(each)
    rows: list[Sequence[Value]] = []
    for week, some in sorted(groups.items()):
        total = _added(some)
        rows.append((week * WEEK, "forecasts", total["prediction_seconds"]))
        rows.append((week * WEEK, "strategy", total["scheme_seconds"]))
        rows.append((week * WEEK, "all", total["seconds"] - total["best_seconds"]))
    return lines("lost", "Time lost by week", Table("lost", "Time lost", LOST, rows), "week", "seconds", "why")
