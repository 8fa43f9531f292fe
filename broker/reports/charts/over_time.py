"""Charts over time: points with their forecast intervals, and lines."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from broker.reports.charts.frame import Axis, Categories, beside, column, drawn, picked, span, spread, thinned, undrawn
from broker.reports.charts.palette import CATEGORIES, SHAPES
from broker.reports.document import Figure, Table, Unit, Value
from broker.reports.words import short, written

__all__ = ["lines", "moments", "series"]

FEWEST = 3
"""Fewest points that can show a trend."""
HEIGHT = 260
MARKS = 31
"""Most marks on a line; more would hide it."""
SERIES = 6
"""Most lines that readers can distinguish."""
GAP = 8
"""Distance between the end of a line and its name."""
OFTEN = 0.1
STEPS = {"interpolate": "step-after"}
NOWHERE: Mapping[str, Any] = {"x": None, "y": None}
"""Encoding of marks whose position does not come from the data."""
CLOCK = {
    **dict.fromkeys(("milliseconds", "seconds"), "%H:%M:%S"),
    **dict.fromkeys(("minutes", "hours"), "%H:%M"),
    **dict.fromkeys(("day", "date", "week"), "%b %d"),
    **dict.fromkeys(("month", "quarter"), "%b %Y"),
    "year": "%Y",
}
ONE: Mapping[str, Any] = {"values": [{}]}


def series(
    name: str,
    title: str,
    table: Table,
    x: str,
    y: str,
    *,
    low: str = "",
    middle: str = "",
    high: str = "",
    colour: str = "",
) -> Figure:
    """Return a figure with a point for each row, over the band of the forecasts, or over bars if the forecasts jump.

    Rows may be in any order; rows that lack one of the numbers are left out. If there are more than 1,000 points, every
    n-th is drawn, and the note says so. The axis is logarithmic if one value is many times the median.

    :param x: column of moments
    :param y: column of the points, of any unit
    :param low: column of the lower end of the band (p10)
    :param middle: column of the line in the band (p50)
    :param high: column of the upper end of the band (p90)
    :param colour: column whose values are distinguished by colour and shape, such as the forecaster in charge
    """
    band_columns = [each for each in (low, middle, high) if each]
    rows = sorted(picked(table, (x, y, *band_columns), (colour,) if colour else ()), key=lambda row: row[0][0])
    if len(rows) < FEWEST:
        return undrawn(name, title, table, f"fewer than {FEWEST} points show no trend")
    seen = thinned(rows)
    unit = column(table, y).unit
    axis = Axis.of(column(table, y).title, unit, [value for numbers, _ in rows for value in numbers[1:]])
    kinds = Categories.of(others[0] for _, others in rows) if colour else None
    values = [_point(numbers, others, axis, band_columns, (low, middle, high), kinds) for numbers, others in seen]
    points = kinds.channel("kind", shapes=True) if kinds else {"color": {"value": CATEGORIES[0]}}
    names = {key: column(table, each).title for key, each in (("low", low), ("middle", middle), ("high", high)) if each}
    width = beside(names.values())
    note = f"{len(seen):,} of {len(rows):,} points are drawn, evenly chosen." if len(seen) < len(rows) else ""
    return drawn(
        name,
        title,
        table,
        _description(title, rows, unit, bool(low and high)),
        note,
        right=names.values(),
        width=width,
        height=HEIGHT,
        data={"values": values},
        encoding={"x": moments("x")},
        layer=[
            *_band(values, axis),
            {"mark": "point", "encoding": {"y": axis.channel("y"), **points}},
            *_named(values[-1], axis, names, width),
        ],
    )


def _description(title: str, rows: Sequence[tuple[list[float], list[Value]]], unit: Unit, banded: bool) -> str:
    middles = [numbers[1] for numbers, _ in rows]
    sentence = f"{title}: {_extent(rows)}, from {span(unit, middles)}"
    sentence += f", half of them up to {written(sorted(middles)[(len(middles) - 1) // 2], unit)}"
    if banded:
        within = sum(numbers[2] <= numbers[1] <= numbers[-1] for numbers, _ in rows)
        sentence += f"; {written(within / len(rows), 'share')} lie within the band"
    return f"{sentence}."


def _extent(rows: Sequence[tuple[list[float], list[Value]]]) -> str:
    first, last = (written(numbers[0], "moment") for numbers, _ in (rows[0], rows[-1]))
    return f"{len(rows):,} points between {first} and {last}"


def _point(
    numbers: Sequence[float],
    others: Sequence[Value],
    axis: Axis,
    band_columns: Sequence[str],
    names: tuple[str, str, str],
    kinds: Categories | None,
) -> dict[str, Any]:
    values: dict[str, Any] = {"x": numbers[0] * 1000, "y": axis.placed(numbers[1])}
    found = dict(zip(band_columns, numbers[2:], strict=True))
    values |= {
        key: axis.placed(found[each]) for key, each in zip(("low", "middle", "high"), names, strict=True) if each
    }
    if kinds:
        values["kind"] = short(kinds.names)[kinds.name(others[0])]
    return values


def moments(field: str) -> dict[str, Any]:
    """Return a time axis in UTC, for values in milliseconds since the epoch."""
    axis = {"tickCount": 6, "labelOverlap": "greedy", "labelSeparation": 10, "format": CLOCK}
    return {"field": field, "type": "temporal", "title": "UTC", "scale": {"type": "utc"}, "axis": axis}


def _band(values: Sequence[Mapping[str, Any]], axis: Axis) -> list[dict[str, Any]]:
    """Return the layers of a band whose values last until the next point; or of bars if the values jump."""
    jumps = _jumps(values)
    layers: list[dict[str, Any]] = []
    if "high" in values[0]:
        kind = {"type": "rule", "color": "var(--band)", "strokeWidth": 2.5} if jumps else {"type": "area", **STEPS}
        layers.append({"mark": kind, "encoding": {"y": axis.channel("low"), "y2": {"field": "high"}}})
    if "middle" in values[0]:
        line = {"type": "line", "strokeWidth": 1.2, **STEPS}
        tick = {"type": "tick", "orient": "horizontal", "size": 5, "thickness": 1.2}
        mark = {**(tick if jumps else line), "color": "var(--ink)"}
        layers.append({"mark": mark, "encoding": {"y": axis.channel("middle")}})
    return layers


def _jumps(values: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether forecasts often jump out of the previous interval, as they do for files of many sizes."""
    if not {"low", "middle", "high"} <= values[0].keys():
        return False
    leaps = sum(not a["low"] <= b["middle"] <= a["high"] for a, b in pairwise(values))
    return leaps > OFTEN * len(values)


def _named(last: Mapping[str, Any], axis: Axis, names: Mapping[str, str], width: int) -> list[dict[str, Any]]:
    """Return labels for the band's edges and its line, at the right end."""
    heights = [HEIGHT * (1 - axis.share(last[key] * axis.divisor)) for key in names]
    return [
        _label(width + GAP, place, text) for place, text in zip(spread(heights, HEIGHT), names.values(), strict=True)
    ]


def _label(x: float, y: float, text: str) -> dict[str, Any]:
    mark = {"type": "text", "align": "left", "baseline": "middle", "text": text, "x": x, "y": y}
    return {"data": ONE, "mark": mark, "encoding": NOWHERE}


def lines(name: str, title: str, table: Table, x: str, y: str, of: str) -> Figure:
    """Return a figure with a line for each value of a column, with its name at the end, and marks of different shapes.

    At most the first six lines of the table are drawn; then the note says so.

    :param x: column of moments
    :param y: column of the values, of any unit
    :param of: column whose values are the names of the lines
    """
    rows = sorted(picked(table, (x, y), (of,)), key=lambda row: row[0][0])
    found = dict.fromkeys(others[0] for _, others in picked(table, (x, y), (of,)))
    shown = list(found)[:SERIES]
    rows = [row for row in rows if row[1][0] in shown]
    if len({numbers[0] for numbers, _ in rows}) < 2:
        return undrawn(name, title, table, "a line needs values at two times or more")
    unit = column(table, y).unit
    axis = Axis.of(column(table, y).title, unit, [numbers[1] for numbers, _ in rows])
    kinds = Categories.of(shown)
    called = short(kinds.names)
    values = [
        {"x": numbers[0] * 1000, "y": axis.placed(numbers[1]), "kind": called[kinds.name(others[0])]}
        for numbers, others in rows
    ]
    marked = [
        value
        for kind in called.values()
        for value in thinned([value for value in values if value["kind"] == kind], MARKS)
    ]
    width = beside(called.values())
    layers: list[dict[str, Any]] = [
        {"mark": "line", "encoding": _plain(kinds.channel("kind"))},
        {
            "data": {"values": marked},
            "mark": {"type": "point", "size": 50, "opacity": 1},
            "encoding": _plain(kinds.channel("kind", shapes=True)),
        },
        *_ends(rows, axis, kinds, width),
    ]
    note = f"{SERIES} of {len(found)} lines are drawn; the table has all." if len(found) > SERIES else ""
    lasts = {called[kinds.name(others[0])]: numbers[1] for numbers, others in rows}
    ends = ", ".join(f"{kind} {written(value, unit)}" for kind, value in lasts.items())
    alternative = f"{title}: {_extent(rows)}; at the end {ends}."
    encoding = {"x": moments("x"), "y": axis.channel("y")}
    data = {"values": values}
    size: dict[str, Any] = {"width": width, "height": HEIGHT, "right": called.values()}
    return drawn(name, title, table, alternative, note, data=data, encoding=encoding, layer=layers, **size)


def _plain(channels: Mapping[str, Any]) -> dict[str, Any]:
    """Return the channels without a legend, since lines have their names at the end."""
    return {channel: {**encoding, "legend": None} for channel, encoding in channels.items()}


def _ends(
    rows: Sequence[tuple[list[float], list[Value]]], axis: Axis, kinds: Categories, width: int
) -> list[dict[str, Any]]:
    """Return the layers with the lines' names and marks, each beside the end of its line."""
    lasts = {kinds.name(others[0]): numbers[1] for numbers, others in rows}
    places = spread([HEIGHT * (1 - axis.share(value)) for value in lasts.values()], HEIGHT)
    layers = []
    for kind, place in zip(lasts, places, strict=True):
        number = kinds.places[kind]
        mark = {"type": "point", "shape": SHAPES[number], "size": 50, "opacity": 1, "color": CATEGORIES[number]}
        layers.append({"data": ONE, "mark": {**mark, "x": width + GAP + 4, "y": place}, "encoding": NOWHERE})
        layers.append(_label(width + 2 * GAP + 4, place, short(kinds.names)[kind]))
    return layers
