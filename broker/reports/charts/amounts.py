"""Bar charts of amounts by day or by name."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from broker.reports.charts.frame import LETTER, OTHERS, WIDTH, Axis, Categories, beside, column, drawn, picked, undrawn
from broker.reports.document import Figure, Table, Unit, Value
from broker.reports.words import short, written

__all__ = ["bars"]

HEIGHT = 220
STEP = 26
"""Height of a bar with a name."""
MOST = 30
"""Most bars with names that remain readable."""
DESCRIBED = 5
"""Number of bars that the text alternative names."""
BAR = {"type": "bar", "stroke": "var(--paper)", "strokeWidth": 0.5}
DAY = 86_400.0

Sums = dict[tuple[Value, str], float]


def bars(name: str, title: str, table: Table, x: str, y: str, category: str = "", *, stacked: bool = True) -> Figure:
    """Return a figure with a bar for each day or name; its length is the sum over the rows of that day or name.

    :param x: column of moments, for vertical bars by day, or of names, for horizontal bars in the order of the table;
        at most the first 30 names are drawn, and then the note says so
    :param y: column to sum
    :param category: column whose values divide a bar into parts; if there are more than six values, the first five
        have a colour, and all others are one part, "others"
    :param stacked: whether to stack the parts; otherwise they are drawn side by side without "others", for values
        that cannot be added; named bars become points on a logarithmic axis if one value is many times the median
    """
    kinds = Categories.of(row[1][0] for row in picked(table, (y,), (category,))) if category else None
    sums = _summed(table, x, y, category, kinds)
    if kinds and not stacked and OTHERS in kinds.names:
        kinds = Categories.of(kinds.names[:-1])
        sums = {(place, kind): value for (place, kind), value in sums.items() if kind in kinds.names}
    if not any(sums.values()):
        return undrawn(name, title, table, "there is nothing to count yet")
    if column(table, x).unit == "moment":
        return _days(name, title, table, y, sums, kinds, stacked)
    return _named(name, title, table, y, sums, kinds, stacked)


def _summed(table: Table, x: str, y: str, category: str, kinds: Categories | None) -> Sums:
    sums: Sums = defaultdict(float)
    days = column(table, x).unit == "moment"
    for (value,), others in picked(table, (y,), (x, category) if category else (x,)):
        if others[0] is not None:
            place = float(others[0]) // DAY * DAY if days else str(others[0])
            sums[place, kinds.name(others[1]) if kinds else ""] += value
    return dict(sums)


def _days(name: str, title: str, table: Table, y: str, sums: Sums, kinds: Categories | None, stacked: bool) -> Figure:
    unit = column(table, y).unit
    totals = _totals(sums, stacked)
    axis = Axis.of(column(table, y).title, unit, list(totals.values()), log=False)
    first, last = min(sums)[0], max(sums)[0]
    count = round((float(last) - float(first)) / DAY) + 1  # type: ignore[arg-type]
    values = _values(sums, axis, kinds, 1000.0)
    beside = len(kinds.names) if kinds and not stacked else 1
    for value in values:  # Vega-Lite places bars of categories side by side, but not bars on a time axis
        value["x"] += (value.get("order", 0) - (beside - 1) / 2) / beside * 0.8 * DAY * 1000 if beside > 1 else 0
    width = max(1.0, min(40.0, 0.8 * WIDTH / max(count, 2)) / beside)
    x = {
        "field": "x",
        "type": "temporal",
        "title": "UTC",
        "scale": {"type": "utc", "domain": [(first - DAY / 2) * 1000, (last + DAY / 2) * 1000]},  # type: ignore[operator]
        "axis": {"tickCount": min(6, count), "format": "%b %d", "labelOverlap": "greedy", "labelSeparation": 10},
    }
    encoding = {"x": x, "y": axis.channel("y", stack="zero" if stacked else None), **_coloured(kinds)}
    whole = sum(sums.values())
    most = max(totals, key=lambda place: totals[place])
    alternative = f"{title}: {written(whole, unit)} in {count} days, most on {written(most, 'moment')[:10]}"
    alternative += f" with {written(totals[most], unit)}{_shares(sums, kinds, unit)}."
    mark = {"type": "bar", "width": width, "stroke": "var(--paper)", "strokeWidth": 0.5 if width > 4 else 0}
    return drawn(name, title, table, alternative, height=HEIGHT, data={"values": values}, mark=mark, encoding=encoding)


def _named(name: str, title: str, table: Table, y: str, sums: Sums, kinds: Categories | None, stacked: bool) -> Figure:
    unit = column(table, y).unit
    found = list(dict.fromkeys(place for place, _ in sums))
    sums = {(place, kind): value for (place, kind), value in sums.items() if place in found[:MOST]}
    called = short(map(str, found[:MOST]))
    totals = _totals(sums, stacked)
    lengths = totals.values() if stacked else sums.values()
    axis = Axis.of(column(table, y).title, unit, list(lengths), log=False if stacked or not kinds else None)
    values = [{**value, "x": called[str(value["x"])]} for value in _values(sums, axis, kinds, 1.0)]
    ends = [
        {"x": called[str(place)], "y": axis.placed(value), "text": written(value, unit)}
        for place, value in totals.items()
    ]
    if kinds and not stacked:
        right, step, layers = [], STEP * max(1.0, 0.6 * len(kinds.names)), _beside(kinds, axis)
    else:
        right, step, layers = [str(each["text"]) for each in ends], STEP, _stacked(kinds, axis, ends)
    names: dict[str, Any] = {
        "field": "x",
        "type": "nominal",
        "title": None,
        "sort": None,
        "scale": {"domain": list(called.values())},
    }
    if kinds and not stacked:  # lines separate the groups
        names["axis"] = {"grid": True, "tickBand": "extent", "ticks": False}
    alternative = f"{title}: " + ", ".join(f"{each} {written(totals[each], unit)}" for each in list(totals)[:DESCRIBED])
    return drawn(
        name,
        title,
        table,
        f"{alternative} and {len(found) - DESCRIBED} more." if len(found) > DESCRIBED else f"{alternative}.",
        f"{MOST} of {len(found)} bars are drawn; the table has all." if len(found) > MOST else "",
        left=called.values(),
        right=right,
        width=beside(right) - LETTER * max(map(len, called.values())),
        height={"step": step, "for": "position"},
        data={"values": values},
        encoding={"y": names},
        layer=layers,
    )


def _stacked(kinds: Categories | None, axis: Axis, ends: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the layers of stacked bars, with the totals at their ends."""
    along = {"x": {**axis.channel("y", stack="zero"), "axis": None}}
    text: dict[str, Any] = {"type": "text", "align": "left", "dx": 6}
    return [
        {"mark": BAR, "encoding": {**along, **_coloured(kinds)}},
        {"data": {"values": ends}, "mark": text, "encoding": {**along, "text": {"field": "text"}}},
    ]


def _beside(kinds: Categories, axis: Axis) -> list[dict[str, Any]]:
    """Return the layers of bars side by side; on a logarithmic axis, which has no zero, of points instead."""
    offset = {"field": "kind", "type": "nominal", "scale": {"domain": list(short(kinds.names).values())}}
    across = axis.channel("y", stack=None)
    along = {"x": {**across, "axis": {**across["axis"], "grid": True}}, "yOffset": offset}
    if not axis.log:
        return [{"mark": BAR, "encoding": {**along, **_coloured(kinds)}}]
    point = {"type": "point", "size": 60, "opacity": 1}
    return [{"mark": point, "encoding": {**along, **kinds.channel("kind", shapes=True)}}]


def _totals(sums: Sums, stacked: bool) -> dict[Value, float]:
    """Return the length of each bar: the sum of stacked parts, or the longest of parts side by side."""
    totals: dict[Value, float] = {}
    for (place, _), value in sums.items():
        before = totals.get(place, 0.0)
        totals[place] = before + value if stacked else max(before, value)
    return totals


def _values(sums: Sums, axis: Axis, kinds: Categories | None, times: float) -> list[dict[str, Any]]:
    called = short(kinds.names) if kinds else {"": ""}
    return [
        {
            "x": place * times if isinstance(place, float) else place,
            "y": axis.placed(value),
            **({"kind": called[kind], "order": list(called).index(kind)} if kinds else {}),
        }
        for (place, kind), value in sums.items()
    ]


def _coloured(kinds: Categories | None) -> dict[str, Any]:
    if not kinds:
        return {}
    return {**kinds.channel("kind"), "order": {"field": "order", "type": "quantitative"}}


def _shares(sums: Mapping[tuple[Value, str], float], kinds: Categories | None, unit: Unit) -> str:
    if not kinds:
        return ""
    parts = {kind: sum(value for (_, each), value in sums.items() if each == kind) for kind in kinds.names}
    return "; " + ", ".join(f"{kind} {written(value, unit)}" for kind, value in parts.items())
