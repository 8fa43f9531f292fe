"""Gantt charts, such as of the ranges of sources, or the hops of a collect job."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from broker.reports.charts.frame import LETTER, WIDTH, Axis, Categories, column, drawn, undrawn
from broker.reports.charts.over_time import moments
from broker.reports.charts.palette import CATEGORIES, HABITS
from broker.reports.document import Figure, Table, Unit, Value
from broker.reports.words import short, written

__all__ = ["BarLane", "gantt", "lanes"]

MOST = 40
"""Most rows that remain readable."""
LANE = 9
TALL = 24
BUSIEST = 8
"""Most lanes of one row; further overlapping bars are drawn on the last lane."""


class BarLane(NamedTuple):
    """A bar on one lane of its row.

    :param row: name of the row
    :param begin: start, in the column's unit
    :param end: end, in the column's unit
    :param kind: outcome
    :param lane: number of the lane
    """

    row: str
    begin: float
    end: float
    kind: Value
    lane: int


def gantt(name: str, title: str, table: Table, row: str, begin: str, end: str, of: str = "") -> Figure:
    """Return a figure with a bar for each row of the table, from begin to end; overlapping bars are on different lanes.

    A bar without an end extends to the latest moment in the table. At most the first 40 names are drawn; then the note
    says so.

    :param row: column of the bars' groups, such as sources, whose names are at the left
    :param begin: column of moments, or of seconds since a common start
    :param end: column of the same unit
    :param of: column of the outcomes, distinguished by colour, and by a mark at the end unless the outcome is good
    """
    laned = lanes(_spans(table, row, begin, end, of))
    if not laned:
        return undrawn(name, title, table, "there is nothing to show yet")
    found = list(dict.fromkeys(each.row for each in laned))
    names = short(found[:MOST])
    shown = [each for each in laned if each.row in names]
    kinds = Categories.of(each.kind for each in shown) if of else None
    unit = column(table, begin).unit
    axis = Axis.of(
        "since the beginning",
        unit,
        [moment for each in shown for moment in (each.begin, each.end)],
        log=False,
        zero=unit == "seconds",
    )
    busiest = max(each.lane for each in shown) + 1
    note = f"{MOST} of {len(found)} are drawn; the table has all." if len(found) > MOST else ""
    return drawn(
        name,
        title,
        table,
        _description(title, shown, unit, bool(of)),
        note,
        left=names.values(),
        width=WIDTH - LETTER * max(map(len, names.values())),
        height=len(names) * max(TALL, busiest * LANE + 4),
        data={"values": _values(shown, names, kinds, 1000.0 if unit == "moment" else 1 / axis.divisor)},
        encoding=_rows(list(names.values()), busiest),
        layer=_layers(kinds, moments if unit == "moment" else axis.channel),
    )


def _spans(table: Table, row: str, begin: str, end: str, of: str) -> list[BarLane]:
    places = {each.name: place for place, each in enumerate(table.columns)}
    known = [each for each in table.rows if isinstance(each[places[begin]], int | float)]
    moments = [float(each[places[name]]) for each in known for name in (begin, end) if each[places[name]] is not None]  # type: ignore[arg-type]
    latest = max(moments, default=0.0)
    return [
        BarLane(
            str(each[places[row]]),
            float(each[places[begin]]),  # type: ignore[arg-type]
            latest if each[places[end]] is None else float(each[places[end]]),  # type: ignore[arg-type]
            each[places[of]] if of else None,
            0,
        )
        for each in known
    ]


def lanes(spans: Sequence[BarLane]) -> list[BarLane]:
    """Assign each bar to the first free lane of its row; return the bars sorted by row and start.

    >>> bars = [BarLane("a", begin, begin + 2, "ok", 0) for begin in range(3)]
    >>> [each.lane for each in lanes(bars)]
    [0, 1, 0]
    """
    rows = {name: place for place, name in enumerate(dict.fromkeys(each.row for each in spans))}
    ends: dict[str, list[float]] = defaultdict(list)
    laned = []
    for each in sorted(spans, key=lambda each: (rows[each.row], each.begin, each.end)):
        taken = ends[each.row]
        lane = next((place for place, end in enumerate(taken) if end <= each.begin), min(len(taken), BUSIEST - 1))
        taken[lane : lane + 1] = [each.end]
        laned.append(each._replace(lane=lane))
    return laned


def _values(
    bars: Sequence[BarLane], names: Mapping[str, str], kinds: Categories | None, scale: float
) -> list[dict[str, Any]]:
    """Return the data of the bars, with their times multiplied by `scale`."""
    return [
        {
            "row": names[each.row],
            "begin": each.begin * scale,
            "end": each.end * scale,
            "lane": each.lane,
            "marked": HABITS.get(str(each.kind)) != 0,
            **({"kind": short(kinds.names)[kinds.name(each.kind)]} if kinds else {}),
        }
        for each in bars
    ]


def _rows(names: Sequence[str], busiest: int) -> dict[str, Any]:
    axis = {"ticks": False, "domain": False, "grid": True, "tickBand": "extent", "labelPadding": 6}
    rows = {
        "field": "row",
        "type": "nominal",
        "title": None,
        "scale": {"domain": names, "paddingInner": 0.15},
        "axis": axis,
    }
    lane = {"field": "lane", "type": "ordinal", "scale": {"domain": list(range(busiest)), "paddingInner": 0.1}}
    return {"y": rows, "yOffset": lane}


def _layers(kinds: Categories | None, time: Callable[[str], dict[str, Any]]) -> list[dict[str, Any]]:
    coloured = kinds.channel("kind", shapes=True) if kinds else {"color": {"value": CATEGORIES[0]}}
    bar = {"type": "bar", "opacity": 0.8, "stroke": "var(--paper)", "strokeWidth": 0.5}
    layers: list[dict[str, Any]] = [
        {"mark": bar, "encoding": {"x": time("begin"), "x2": {"field": "end"}, "color": coloured["color"]}}
    ]
    if kinds:
        mark = {"type": "point", "opacity": 1, "size": 36, "stroke": "var(--paper)", "strokeWidth": 0.5}
        layers.append(
            {"transform": [{"filter": "datum.marked"}], "mark": mark, "encoding": {"x": time("end"), **coloured}}
        )
    return layers


def _description(title: str, spans: Sequence[BarLane], unit: Unit, with_kinds: bool) -> str:
    rows = dict.fromkeys(each.row for each in spans)
    begin, end = min(each.begin for each in spans), max(each.end for each in spans)
    text = f"{title}: {len(spans)} in {len(rows)} rows, {written(end - begin, 'seconds')} in all"
    if with_kinds:
        kinds = list(dict.fromkeys(str(each.kind) for each in spans))
        text += "; " + ", ".join(f"{sum(str(each.kind) == kind for each in spans)} {kind}" for kind in kinds)
    return f"{text}."
