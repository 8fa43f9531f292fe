"""The overview: transferred data, running tasks, the gain of several sources at once, and problems."""

import math
import time
from collections.abc import Iterable, Sequence

from broker.models.base import Wire
from broker.models.history import Pair
from broker.reports.archive import Archive, Scope
from broker.reports.charts import bars
from broker.reports.document import Column, Fact, Figure, Report, Table, Value
from broker.reports.queries import pair_page, task_page
from broker.reports.tasks import underway
from broker.reports.unscored import unscored
from broker.storage.forecasts import Missed, Misses
from broker.storage.overview import FailedTransfer, Problems, Stopped, beside
from broker.storage.sums import Day, LinkCounts, SumStore
from broker.storage.traffic import DAY

__all__ = ["FEWEST_DOWNLOADS", "OverviewQuery", "gained", "live", "make"]

SHOWN = 10
WEEK, MONTH = 7, 28
"""Periods in days, today included."""
FEWEST = 10
"""Fewest transfers for a reliable share or mean."""
LEAD = (
    "Finished transfers, running tasks, the links that fail most or have the worst forecasts, and the newest "
    "problems. Days are UTC; a week is today and the six days before."
)
PAIR = (Column("source", "Source", link="address"), Column("address", "Address"), Column("sink", "Sink"))
FEWEST_DOWNLOADS = 10
"""Fewest downloads for a reliable mean."""


class OverviewQuery(Wire):
    """No parameters."""


async def make(archive: Archive, scope: Scope, query: OverviewQuery) -> Report:
    """Create the whole report."""
    now = time.time()
    since = now - WEEK * DAY
    today = int(now // DAY)
    async with archive.database.read() as connection:
        sums, problems = SumStore(connection, scope.subject), Problems(connection, scope.subject)
        days = await sums.days(today - MONTH + 1)
        failing = await sums.worst(today - WEEK + 1, FEWEST, SHOWN)
        missed = await Misses(connection, scope.subject).worst(since, FEWEST, SHOWN)
        lost, stopped = await problems.transfers(since, SHOWN), await problems.tasks(since, SHOWN)
        took = await beside(connection, scope.subject, now - MONTH * DAY)
        behind = await unscored(connection, scope.subject)
    active = await underway(archive, scope)
    facts = [
        *_moved(days, today),
        Fact("Running tasks", active.total, "count"),
        gained("Gain of several sources", took, MONTH),
        *behind,
    ]
    tables = [active.table, _failing(failing), _missed(missed), _problems(lost, stopped)]
    return Report("overview", "Overview", LEAD, now, facts, [_by_day(days, today)], tables)


async def live(archive: Archive, scope: Scope) -> Report:
    """Create the frequently changing facts and tables, which replace those of the same names in an open page."""
    now = time.time()
    today = int(now // DAY)
    async with archive.database.read() as connection:
        days = await SumStore(connection, scope.subject).days(today)
    active = await underway(archive, scope)
    facts = [*_of(days, "today"), Fact("Running tasks", active.total, "count")]
    return Report("overview", "Overview", LEAD, now, facts, tables=[active.table])


def _moved(days: Sequence[Day], today: int) -> list[Fact]:
    now = _of([each for each in days if each.day >= today], "today")
    return now + _of([each for each in days if each.day > today - WEEK], "this week")


def _of(days: Iterable[Day], when: str) -> list[Fact]:
    """Return facts about the sum of some days; `when` names the days in the labels."""
    known = list(days)
    transfers, failures = sum(each.transfers for each in known), sum(each.failures for each in known)
    note = f"{failures:,} of {transfers:,} failed" if transfers else "none yet"
    return [
        Fact(f"Moved {when}", sum(each.bytes for each in known), "bytes"),
        Fact(f"Transfers {when}", transfers, "count"),
        Fact(f"Succeeded {when}", 1 - failures / transfers if transfers else None, "share", note),
    ]


def _by_day(days: Sequence[Day], today: int) -> Figure:
    columns = (
        Column("day", "Day", "moment"),
        Column("bytes", "Moved", "bytes"),
        Column("transfers", "Transfers", "count"),
        Column("failures", "Failed", "count"),
    )
    known = {each.day: each for each in days}
    shown = [known.get(day, Day(day, 0, 0, 0)) for day in range(today - MONTH + 1, today + 1)] if days else []
    rows = [(each.day * DAY, each.bytes, each.transfers, each.failures) for each in shown]
    table = Table("days", "By day", columns, rows, "" if rows else "There were no transfers in four weeks.")
    return bars("moved", "Moved by day", table, "day", "bytes")


def _failing(worst: Sequence[LinkCounts]) -> Table:
    columns = (
        *PAIR,
        Column("share", "Failed", "share"),
        Column("failures", "Failed transfers", "count"),
        Column("transfers", "Transfers", "count"),
    )
    rows = [(*_named(each.pair), each.failures / each.transfers, each.failures, each.transfers) for each in worst]
    note = f"Links with at least {FEWEST} transfers in the last {WEEK} days."
    return Table("failing", "Links that fail most", columns, rows, note if rows else f"None. {note}")


def _missed(worst: Sequence[Missed]) -> Table:
    columns = (
        *PAIR,
        Column("off", "Mean error", "factor"),
        Column("transfers", "Transfers", "count"),
    )
    rows = [(*_named(each.pair), round(math.exp(each.error), 3), each.transfers) for each in worst]
    note = f"The geometric mean of errors in both directions; links with at least {FEWEST} transfers in {WEEK} days."
    return Table("missed", "Links with the worst forecasts", columns, rows, note if rows else f"None yet. {note}")


def _problems(lost: Sequence[FailedTransfer], stopped: Sequence[Stopped]) -> Table:
    columns = (
        Column("at", "When", "moment"),
        Column("what", "What", link="address"),
        Column("address", "Address"),
        Column("outcome", "Outcome"),
        Column("error", "Reason"),
    )
    rows: list[tuple[Value, ...]] = [
        (each.at, _link_name(each.pair), pair_page(each.pair), each.outcome, each.error) for each in lost
    ]
    rows += [(each.at, f"task {each.label or each.id}", task_page(each.id), "failed", each.error) for each in stopped]
    newest = sorted(rows, key=lambda row: -float(row[0] or 0))[:SHOWN]
    return Table(
        "problems", "Newest problems", columns, newest, "" if rows else f"No problems in the last {WEEK} days."
    )


def _named(pair: Pair) -> tuple[str, str, str]:
    return pair.source, pair_page(pair), pair.sink


def _link_name(pair: Pair) -> str:
    return f"{pair.source} → {pair.sink or 'anywhere'}" if pair.direction == "read" else f"to {pair.source}"


def gained(label: str, beside: Sequence[tuple[float, float]], days: int) -> Fact:
    """Return the geometric mean of the speed-ups of downloads, without a value if there are too few downloads.

    :param beside: for each download, the seconds from the best single source in hindsight, and the actual seconds
    :param days: period of the downloads

    >>> gained("Gain", [(4.0, 2.0), (2.0, 2.0)] * 5, 28).value
    1.414
    """
    known = [math.log(single / seconds) for single, seconds in beside if single > 0 and seconds > 0]
    if len(known) < FEWEST_DOWNLOADS:
        return Fact(label, None, "factor", f"{len(known)} downloads in {days} days are too few")
    mean = math.exp(math.fsum(known) / len(known))
    note = f"geometric mean of {len(known):,} downloads in {days} days, each beside its best single source in hindsight"
    return Fact(label, round(mean, 3), "factor", note)
