"""The forecast rates for one size class, from each source to each sink, with the data behind them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from broker.models.base import Wire
from broker.models.history import Direction
from broker.reports.archive import Archive, Scope
from broker.reports.charts import grid
from broker.reports.document import Column, Fact, Figure, Report, Table, Value
from broker.reports.queries import SizeClass, pair_page
from broker.reports.unscored import unscored
from broker.reports.words import size_span
from broker.storage.forecasts import Misses, NewestForecast
from broker.storage.sums import LinkTotals, SumStore
from broker.storage.traffic import DAY
from predictors.context import SIZES

__all__ = ["GridQuery", "make"]

CELLS = 400
DAYS = 28
STALE = 7 * DAY
"""Seconds after which a measurement is too old for a reliable forecast."""
LEAD = (
    "The forecast for the newest transfer of each source and sink: half of all should be faster than p50, a tenth "
    "slower than p10, a tenth faster than p90. Grey: nothing ended there for 7 days."
)
COLUMNS = (
    Column("source", "Source", link="address"),
    Column("address", "Address"),
    Column("sink", "Sink"),
    Column("p50", "Expected rate", "rate"),
    Column("p10", "p10", "rate"),
    Column("p90", "p90", "rate"),
    Column("transfers", f"Transfers in {DAYS} days", "count"),
    Column("failed", "Failed", "share"),
    Column("newest", "Newest", "moment"),
    Column("age", "Age", "seconds"),
)
NAMES = ("source", "sink", "p50")
DRAWN = tuple(place for place, each in enumerate(COLUMNS) if each.name in NAMES)
CLASSES = (
    Column("sizes", "Sizes", link="address"),
    Column("address", "Address"),
    Column("direction", "Direction"),
    Column("pairs", "Pairs", "count"),
    Column("transfers", "Transfers", "count"),
    Column("bytes", "Moved", "bytes"),
)


class GridQuery(Wire):
    """A size class, and a direction: reading from sources or writing to them; by default, those with most bytes."""

    size_class: SizeClass | None = None
    direction: Direction | None = None


async def make(archive: Archive, scope: Scope, query: GridQuery) -> Report:
    """Create the report: the busiest pairs, then those used last, with the forecast for their newest transfer."""
    now = time.time()
    async with archive.database.read() as connection:
        sums = SumStore(connection, scope.subject)
        newest = await sums.newest_day()
        since = (newest or 0) - DAYS + 1
        cells = [] if newest is None else await sums.cells(since)
        direction, size_class = _chosen(cells, query)
        shown = [each for each in cells if (each.pair.direction, each.size_class) == (direction, size_class)]
        shown = sorted(shown, key=lambda each: (-each.bytes, each.pair))[:CELLS]
        if newest is not None and len(shown) < CELLS:
            shown += await sums.quiet(since, direction, size_class, CELLS - len(shown))
        forecasts = await Misses(connection, scope.subject).newest({each.pair_id for each in shown}, size_class)
        behind = await unscored(connection, scope.subject)
    table = _table(shown, forecasts, now)
    facts = [
        Fact("Sizes", size_span(size_class), "text"),
        Fact("Direction", _direction_name(direction), "text"),
        Fact("Pairs shown", len(table.rows), "count"),
        Fact("Stale pairs", sum(table.stale), "count", "nothing ended there for 7 days"),
        *behind,
    ]
    return Report("grid", "Sources and sinks", LEAD, now, facts, [_drawn(table)], [table, _classes(cells)])


def _chosen(cells: Sequence[LinkTotals], query: GridQuery) -> tuple[Direction, int]:
    """Return the requested direction and size class; by default, those with most bytes."""
    sums: dict[tuple[Direction, int], int] = {}
    for each in cells:
        key = (each.pair.direction, each.size_class)
        if query.direction in (None, key[0]) and query.size_class in (None, key[1]):
            sums[key] = sums.get(key, 0) + each.bytes
    usual: tuple[Direction, int] = (query.direction or "read", len(SIZES) // 2)
    direction, size_class = max(sums, key=lambda key: sums[key], default=usual)
    return direction, size_class if query.size_class is None else query.size_class


def _table(cells: Sequence[LinkTotals], forecasts: Mapping[int, NewestForecast], now: float) -> Table:
    rows: list[tuple[Value, ...]] = []
    stale = []
    for each in cells:
        known = forecasts.get(each.pair_id)
        newest = max(each.newest_end, known.ended if known else 0.0)
        if not newest:
            continue  # neither an end nor a forecast is known
        rates = (known.rates.p50, known.rates.p10, known.rates.p90) if known else (None, None, None)
        failed = each.failures / each.transfers if each.transfers else None
        counts = (each.transfers, failed, newest, max(0.0, now - newest))
        rows.append((each.pair.source, pair_page(each.pair), each.pair.sink, *rates, *counts))
        stale.append(now - newest > STALE)
    return Table("cells", "Sources and sinks", COLUMNS, rows, _note(cells, forecasts), stale)


def _drawn(table: Table) -> Figure:
    """Return the figure of the rates, without links, which only the table has."""
    columns = [replace(COLUMNS[place], link="") for place in DRAWN]
    rows = [[row[place] for place in DRAWN] for row in table.rows]
    return grid(
        "grid", "Expected rates", Table("rates", "Expected rates", columns, rows, table.note, table.stale), *NAMES
    )


def _note(cells: Sequence[LinkTotals], forecasts: Mapping[int, NewestForecast]) -> str:
    if not cells:
        return "There are no transfers of this size yet."
    note = f"The busiest {CELLS} pairs; there are more." if len(cells) == CELLS else ""
    unknown = sum(each.pair_id not in forecasts for each in cells)
    return f"{note} {unknown:,} have no forecast yet.".strip() if unknown else note


def _classes(cells: Sequence[LinkTotals]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for direction, size_class in sorted({(each.pair.direction, each.size_class) for each in cells}):
        of = [each for each in cells if (each.pair.direction, each.size_class) == (direction, size_class)]
        moved = (len(of), sum(each.transfers for each in of), sum(each.bytes for each in of))
        address = f"grid?size_class={size_class}&direction={direction}"
        rows.append((size_span(size_class), address, _direction_name(direction), *moved))
    note = f"Transfers of the last {DAYS} days with traffic." if rows else "There are no transfers yet."
    return Table("classes", "Other sizes", CLASSES, rows, note)


def _direction_name(direction: Direction) -> str:
    return "read from the source" if direction == "read" else "written to the source"
