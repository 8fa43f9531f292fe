"""One figure of each kind, from rows that a broker could have, with hostile names."""

import math
from collections.abc import Iterator
from random import Random

from broker.reports import charts
from broker.reports.document import Column, Figure, Table

__all__ = ["HOSTILE", "coverage", "factors", "figures", "pairs", "rates"]

HOSTILE = (
    "<script>alert(1)</script>",
    '"><x y="',
    "]]>&amp;",
    "a\x00\x1b[31m\nb",
    "\u202egnp.exe\u2066",
    "n" * 4000,
    "",
)
BEGIN = 1_790_000_000.0


def rates(rows: int, seed: int = 3) -> Table:
    """Transfers between two sites, each with its forecast."""
    random, expected, made = Random(seed), 50e6, []
    for number in range(rows):
        expected *= math.exp(random.gauss(0, 0.05))
        rate = expected * math.exp(random.gauss(0, 0.3))
        in_charge = ("last", "median of 25", *HOSTILE)[number * 9 // rows]
        made.append((BEGIN + number * 3600.0, rate, expected / 1.5, expected, expected * 1.5, in_charge))
    columns = [
        Column("at", "When", "moment"),
        Column("rate", "Rate", "rate"),
        *(Column(name, name, "rate") for name in ("p10", "p50", "p90")),
        Column("forecaster", "Forecaster"),
    ]
    return Table("rates", "Rates", columns, made)


def pairs(names: tuple[str, ...] = HOSTILE) -> Table:
    """Forecasts from each site to each; the first row is stale."""
    rows = [(a, b, 1e6 * (4 + index * 7 % 11)) for index, a in enumerate(names) for b in names if a != b]
    columns = [Column("source", "Source"), Column("sink", "Sink"), Column("rate", "Rate", "rate")]
    return Table("pairs", "Pairs", columns, rows, stale=[index == 0 for index in range(len(rows))])


def _days() -> Table:
    rows = [(BEGIN + day * 86_400.0, kind, 1e12 * (day % 5)) for day in range(30) for kind in ("ok", "failed")]
    columns = [Column("day", "Day", "moment"), Column("outcome", "Outcome"), Column("bytes", "Moved", "bytes")]
    return Table("days", "Days", columns, rows)


def _errors() -> Table:
    rows = [
        (BEGIN + week * 604_800.0, 0.1 + index / 20, name) for week in range(8) for index, name in enumerate(HOSTILE)
    ]
    columns = [Column("week", "Week", "moment"), Column("error", "Error", "share"), Column("forecaster", "Forecaster")]
    return Table("errors", "Errors", columns, rows)


def _ranges() -> Table:
    rows = [
        (name, begin / 2, None if begin == 9 else begin / 2 + 1.2, ("ok", "stolen", "failed")[begin % 3])
        for name in HOSTILE
        for begin in range(10)
    ]
    columns = [
        Column("source", "Source"),
        Column("begin", "Begin", "seconds"),
        Column("end", "End", "seconds"),
        Column("outcome", "Outcome"),
    ]
    return Table("ranges", "Ranges", columns, rows)


def coverage(forecasts: int = 100) -> Table:
    """Return rows for this many forecasts each, whose coverage is a tenth below the promised one."""
    rows = [
        (share, round(share * 0.9 * forecasts), forecasts, name) for share in (0.1, 0.5, 0.8) for name in HOSTILE[:3]
    ]
    columns = [
        Column("nominal", "Nominal", "share"),
        Column("hits", "True", "count"),
        Column("forecasts", "Forecasts", "count"),
        Column("forecaster", "Forecaster"),
    ]
    return Table("coverage", "Coverage", columns, rows)


def factors(rows: int = 7) -> Table:
    """Factors with intervals, largest first, and one without."""
    kinds = ("faster", "unclear", "slower")
    made = [
        (name, 4 / (place + 2), 3 / (place + 2), 5 / (place + 2), kinds[place * 3 // rows])
        for place, name in enumerate((*HOSTILE, *(f"row {number}" for number in range(rows)))[:rows])
    ]
    ends = (Column(name, name, "factor") for name in ("low", "high"))
    columns = [Column("pair", "Pair"), Column("gain", "Gain", "factor"), *ends, Column("verdict", "Verdict")]
    return Table("factors", "Factors", columns, [*made, ("no interval", 2.0, None, None, "unclear")])


def figures() -> Iterator[Figure]:
    """Return each kind of figure in each of its variants."""
    some = rates(300)
    band = {"low": "p10", "middle": "p50", "high": "p90"}
    yield charts.series("series", HOSTILE[0], some, "at", "rate", **band, colour="forecaster")
    yield charts.series("points", "Rates", some, "at", "rate")
    yield charts.lines("lines", "Errors by week", _errors(), "week", "error", "forecaster")
    yield charts.bars("days", "Moved by day", _days(), "day", "bytes", "outcome")
    yield charts.bars("days-beside", "Moved by day", _days(), "day", "bytes", "outcome", stacked=False)
    yield charts.bars("names", "Expected by source", pairs(), "source", "rate", "sink")
    yield charts.bars("names-beside", "Expected by source", pairs(), "source", "rate", "sink", stacked=False)
    yield charts.grid("grid", "Expected rates", pairs(), "source", "sink", "rate")
    many = tuple(f"site-{number}.example" for number in range(40))
    yield charts.grid("large-grid", "Expected rates", pairs(many), "source", "sink", "rate")
    yield charts.scatter("scatter", "Expected and true", some, "p50", "rate", colour="forecaster")
    yield charts.calibration("calibration", "Coverage", coverage(), "nominal", "hits", "forecasts", "forecaster")
    yield charts.intervals("intervals", "Gains", factors(), "pair", "gain", "low", "high", "verdict")
    yield charts.intervals("many-intervals", "Gains", factors(90), "pair", "gain", "low", "high", "verdict")
    yield charts.gantt("gantt", "Ranges", _ranges(), "source", "begin", "end", "outcome")
    hops = Table("hops", "Hops", some.columns, some.rows[:9])
    yield charts.gantt("hops", "Hops", hops, "forecaster", "at", "at", "forecaster")
