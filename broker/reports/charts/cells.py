"""Heat maps of sources and sinks."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from broker.reports.charts.frame import LETTER, SPARE, WIDTH, column, drawn, span, undrawn
from broker.reports.charts.palette import STEPS, on
from broker.reports.document import Figure, Table, Unit
from broker.reports.words import scale, short

__all__ = ["grid", "steps"]

MOST = 30
"""Most rows, and most columns, that remain readable."""
TALL = 30
WIDE = (16, 90)
"""Smallest and largest width of a cell."""
READABLE = 44
"""Smallest width of a cell that shows its value as text."""
STALE = "stale"


class GridCell(NamedTuple):
    """A cell of the grid."""

    source: str
    sink: str
    value: float
    stale: bool


def grid(name: str, title: str, table: Table, source: str, sink: str, value: str) -> Figure:
    """Return a figure with a cell for each row of the table, at its source and sink.

    Larger values are darker (lighter in dark mode); stale rows (`Table.stale`) are grey. Sources are in the order of
    the table, and sinks in the order of the sources with the same name. At most the first 30 of each are drawn; then
    the note says so.

    :param value: column shown as colour, and as a number in the cell if there is room
    """
    cells = _cells(table, source, sink, value)
    if not cells:
        return undrawn(name, title, table, "no pair has data yet")
    sources = list(dict.fromkeys(cell.source for cell in cells))
    sinks = _like(sources, dict.fromkeys(cell.sink for cell in cells))
    shown = [cell for cell in cells if cell.source in sources[:MOST] and cell.sink in sinks[:MOST]]
    column_ = column(table, value)
    typical = sorted(cell.value for cell in shown)[len(shown) // 2]
    divisor, sign = scale(column_.unit, typical)
    bounds = steps([cell.value / divisor for cell in shown])
    names = short(dict.fromkeys([*sources[:MOST], *sinks[:MOST]]))
    rows, columns = ([names[each] for each in found[:MOST]] for found in (sources, sinks))
    wide = max(WIDE[0], min(WIDE[1], int((WIDTH - (LETTER + SPARE) * max(map(len, rows))) / len(columns))))
    tall = min(TALL, max(TALL // 2, wide))
    layers: list[dict[str, Any]] = [_coloured(bounds, ", ".join(filter(None, (column_.title, sign))), shown)]
    if wide >= READABLE:
        ink = {"field": "ink", "type": "nominal", "scale": None}
        layers.append({"mark": {"type": "text", "fontSize": 12}, "encoding": {"text": {"field": "text"}, "color": ink}})
    few = len(shown) < len(cells)
    note = f"{len(rows)} of {len(sources)} sources and {len(columns)} of {len(sinks)} sinks are drawn." if few else ""
    return drawn(
        name,
        title,
        table,
        _description(title, shown, column_.unit),
        note,
        left=rows,
        width={"step": wide},
        height={"step": tall},
        data={"values": [_value(cell, names, bounds, divisor) for cell in shown]},
        encoding=_axes(column(table, source).title, column(table, sink).title, rows, columns, wide),
        layer=layers,
    )


def steps(values: Sequence[float]) -> list[float]:
    """Return the bounds between colours: round numbers that divide the values into groups of similar size.

    >>> steps([1.0, 2.0, 3.0, 4.0, 5.0, 6.04])
    [2.0, 3.0, 4.0, 5.0, 6.0]
    """
    order = sorted(values)
    quantiles = (order[number * len(order) // len(STEPS)] for number in range(1, len(STEPS)))
    bounds = sorted({float(f"{each:.2g}") for each in quantiles})
    return [each for each in bounds if each > order[0]]


def _cells(table: Table, source: str, sink: str, value: str) -> list[GridCell]:
    places = [[each.name for each in table.columns].index(name) for name in (source, sink, value)]
    stale = table.stale or [False] * len(table.rows)
    known = [(row, old) for row, old in zip(table.rows, stale, strict=True) if row[places[2]] is not None]
    return [GridCell(str(row[places[0]]), str(row[places[1]]), float(row[places[2]]), old) for row, old in known]  # type: ignore[arg-type]


def _like(sources: Sequence[str], sinks: Iterable[str]) -> list[str]:
    """Return the sinks in the order of the sources; sinks that are no sources come last."""
    order = {name: place for place, name in enumerate(sources)}
    return sorted(sinks, key=lambda name: order.get(name, len(order)))


def _value(cell: GridCell, names: Mapping[str, str], bounds: Sequence[float], divisor: float) -> dict[str, Any]:
    value = cell.value / divisor
    step = bisect_right(bounds, value)
    return {
        "source": names[cell.source],
        "sink": names[cell.sink],
        "step": STALE if cell.stale else _labels(bounds)[step],
        "text": f"{value:,.0f}" if value >= 100 else f"{value:.2g}",
        "ink": "var(--ink)" if cell.stale else on(_place(step, bounds)),
    }


def _labels(bounds: Sequence[float]) -> list[str]:
    numbers = [f"{each:,.4g}" for each in bounds]
    if not numbers:
        return ["all"]
    return [f"< {numbers[0]}", *(f"{a} – {b}" for a, b in pairwise(numbers)), f"≥ {numbers[-1]}"]


def _place(step: int, bounds: Sequence[float]) -> int:
    """Return the index of a step's colour; few steps are spread over all colours."""
    return round(step * (len(STEPS) - 1) / len(bounds)) if bounds else 2


def _coloured(bounds: Sequence[float], title: str, cells: Sequence[GridCell]) -> dict[str, Any]:
    labels = _labels(bounds)
    colours = [STEPS[_place(step, bounds)] for step in range(len(labels))]
    if any(cell.stale for cell in cells):
        labels, colours = [*labels, STALE], [*colours, "var(--stale)"]
    legend = {"title": title, "symbolType": "square", "symbolSize": 160, "titleColor": "var(--muted)", "columns": 4}
    colour = {
        "field": "step",
        "type": "nominal",
        "sort": None,
        "scale": {"domain": labels, "range": colours},
        "legend": {**legend, "titleFontSize": 13, "titleFontWeight": "normal"},
    }
    return {"mark": {"type": "rect", "stroke": "var(--paper)", "strokeWidth": 2}, "encoding": {"color": colour}}


def _axes(source: str, sink: str, rows: Sequence[str], columns: Sequence[str], wide: int) -> dict[str, Any]:
    axis = {"domain": False, "ticks": False, "labelPadding": 6}
    above = {"titleAngle": 0, "titleAlign": "right", "titleBaseline": "bottom", "titleX": -6, "titleY": -4}
    room = {"minExtent": (LETTER + SPARE) * max(map(len, rows))}
    slanted = {
        "labelAngle": -45 if wide >= READABLE else -90,
        "labelAlign": "left",
        "labelBaseline": "middle",
        "orient": "top",
    }
    return {
        "y": {
            "field": "source",
            "type": "nominal",
            "title": source,
            "scale": {"domain": rows},
            "axis": {**axis, **above, **room},
        },
        "x": {
            "field": "sink",
            "type": "nominal",
            "title": sink,
            "scale": {"domain": columns},
            "axis": {**axis, **slanted},
        },
    }


def _description(title: str, cells: Sequence[GridCell], unit: Unit) -> str:
    values = [cell.value for cell in cells]
    least, most = min(cells, key=lambda cell: cell.value), max(cells, key=lambda cell: cell.value)
    stale = sum(cell.stale for cell in cells)
    text = f"{title}: {len(cells)} pairs, {span(unit, values)}; least from {least.source} to {least.sink}, "
    text += f"most from {most.source} to {most.sink}"
    return f"{text}; {stale} stale." if stale else f"{text}."
