"""Common parts of all figures: rows, axes with units, categories, and the layout of labels. Lengths are in pixels."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from broker.reports.charts.palette import CATEGORIES, HABITS, SHAPES
from broker.reports.document import Column, Figure, Table, Unit, Value
from broker.reports.words import scale, short, written
from coalloc.safe_text import escaped

__all__ = [
    "WIDTH",
    "Axis",
    "Categories",
    "beside",
    "column",
    "drawn",
    "picked",
    "span",
    "spread",
    "thinned",
    "undrawn",
]

Row = TypeVar("Row")

WIDTH = 580
"""Width of the drawing area with the labels beside it; with its axis, a figure is about 640 wide."""
LETTER = 7
"""Average width of a letter."""
SPARE = 1.3
"""Extra width of a letter on machines that have only wider fonts, such as DejaVu Sans."""
MOST = 1000
"""Most points of a figure; they take 50 ms to draw, and 300 kB of a page."""
SYMBOL = 32
"""Width of a legend's symbol, with the space around it."""
LINE = 16
"""Vertical distance between two labels."""
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""Fonts with the same letter widths, so that text needs the same room in each of them."""
OTHERS = "others"
"""The name of all categories without a colour of their own."""
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
CONFIG: Mapping[str, Any] = {
    "aria": False,
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "aria": False,
        "domainColor": "var(--muted)",
        "gridColor": "var(--grid)",
        "labelColor": "var(--ink)",
        "labelFontSize": 13,
        "labelLimit": 240,
        "tickColor": "var(--muted)",
        "titleColor": "var(--muted)",
        "titleFontSize": 13,
        "titleFontWeight": "normal",
    },
    "axisX": {"grid": False, "labelFlush": False},
    "legend": {
        "aria": False,
        "labelColor": "var(--ink)",
        "labelFontSize": 13,
        "labelLimit": 240,
        "orient": "top",
        "symbolOpacity": 1,
        "symbolSize": 90,
        "title": None,
    },
    "text": {"aria": False, "color": "var(--ink)", "fontSize": 13},
    "point": {"aria": False, "filled": True, "opacity": 0.75, "size": 22},
    "line": {"aria": False, "strokeWidth": 2},
    "rule": {"aria": False, "color": "var(--muted)"},
    "area": {"aria": False, "color": "var(--band)"},
    "bar": {"aria": False, "color": "var(--c1)"},
    "rect": {"aria": False},
}


class Axis(NamedTuple):
    """A numeric axis; values are divided by a common factor, and the title has the unit.

    :param log: whether the axis is logarithmic
    """

    title: str
    unit: Unit
    divisor: float
    low: float
    high: float
    log: bool

    @classmethod
    def of(cls, name: str, unit: Unit, values: Sequence[float], log: bool | None = None, zero: bool = True) -> "Axis":
        """Return an axis for values.

        :param log: whether it is logarithmic; by default if the largest value is many times the median
        :param zero: whether a linear axis includes zero
        """
        positive = min(values) > 0
        typical = sorted(values)[len(values) // 2]
        if log is None:
            log = unit in ("rate", "bytes", "seconds", "share", "factor") and positive and max(values) > 20 * typical
        divisor, sign = scale(unit, typical if log else max(map(abs, values)))
        low, high = min(values), max(values)
        if log and positive:
            low, high = low / 1.25, high * 1.25
        else:
            low = min(0.0, low) if zero else low
            high = max(high, 0.0) if zero else high
            whole = max(abs(low), abs(high), 1e-9)
            room = 0.06 * (high - low if high - low > 1e-6 * whole else whole)
            low, high, log = low - room * (low < 0 or not zero), high + room, False
        title = ", ".join(part for part in (name, sign, "logarithmic" if log else "") if part)
        return cls(title, unit, divisor, low, high, log)

    def placed(self, value: float) -> float:
        """Return the number to draw for a value."""
        return value / self.divisor

    def share(self, value: float) -> float:
        """Return the position of a value on the axis, from 0 to 1."""
        if self.log:
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)

    def channel(self, field: str, **more: Any) -> dict[str, Any]:
        """Return the axis as a channel of Vega-Lite."""
        kind: dict[str, Any] = {"type": "log"} if self.log else {"type": "linear", "zero": False}
        domain = [self.low / self.divisor, self.high / self.divisor]
        axis = {"tickCount": 5, "format": ",~%" if self.unit == "share" else ",~g" if self.log else ",~r"}
        return {
            "field": field,
            "type": "quantitative",
            "title": self.title,
            "scale": {**kind, "domain": domain, "nice": False},
            "axis": axis,
            **more,
        }


class Categories(NamedTuple):
    """Categories with a colour and a shape each: up to six, or the first five and "others"."""

    names: tuple[str, ...]
    places: Mapping[str, int]

    @classmethod
    def of(cls, values: Iterable[Value]) -> "Categories":
        """Return the categories of values; names in `HABITS` have a fixed colour, other names get a free one."""
        found = list(dict.fromkeys("–" if value is None else str(value) for value in values))
        if len(found) > len(CATEGORIES):
            found = list(dict.fromkeys([*found[: len(CATEGORIES) - 1], OTHERS]))
        places = {name: HABITS[name] for name in found if name in HABITS}
        if len(set(places.values())) < len(places):
            places = {}
        free = [place for place in range(len(CATEGORIES)) if place not in places.values()]
        for name in found:
            if name not in places:
                places[name] = free.pop(0)
        return cls(tuple(found), places)

    def name(self, value: Value) -> str:
        """Return the name of a value's category."""
        name = "–" if value is None else str(value)
        return name if name in self.places else OTHERS

    def channel(self, field: str, shapes: bool = False) -> dict[str, Any]:
        """Return the Vega-Lite channels for colours, and for shapes if `shapes`."""
        legend: dict[str, Any] | None = {} if len(self.names) > 1 else None
        encoding: dict[str, Any] = {"field": field, "type": "nominal", "legend": legend, "sort": None}
        names = list(short(self.names).values())
        if encoding["legend"] is not None:
            longest = max(map(len, names))
            encoding["legend"] = {
                "columns": max(1, int(WIDTH / ((LETTER + SPARE) * longest + SYMBOL))),
                "columnPadding": 10 + SPARE * longest,
            }
        ranged = {
            "color": {"domain": names, "range": [CATEGORIES[self.places[name]] for name in self.names]},
            "shape": {"domain": names, "range": [SHAPES[self.places[name]] for name in self.names]},
        }
        channels = ("color", "shape") if shapes else ("color",)
        return {channel: {**encoding, "scale": ranged[channel]} for channel in channels}


def column(table: Table, name: str) -> Column:
    """Return the column of this name."""
    return next(each for each in table.columns if each.name == name)


def picked(table: Table, numbers: Sequence[str], others: Sequence[str] = ()) -> list[tuple[list[float], list[Value]]]:
    """Return the values of `numbers` and of `others` for each row; skip rows that lack one of the numbers."""
    places = {each.name: place for place, each in enumerate(table.columns)}
    rows = []
    for row in table.rows:
        values = [row[places[name]] for name in numbers]
        found = [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]
        if len(found) == len(values):
            rows.append((found, [row[places[name]] for name in others]))
    return rows


def thinned(rows: Sequence[Row], most: int = MOST) -> Sequence[Row]:
    """Return every n-th row, with the smallest n that leaves at most `most` rows."""
    return rows[:: -(-len(rows) // most)] if len(rows) > most else rows


def spread(targets: Sequence[float], height: float, least: float = LINE) -> list[float]:
    """Return positions of labels near their targets, with a minimum distance between them.

    :param targets: wanted positions from the top, in any order
    :param height: largest position; all labels lie between 0 and `height`
    :param least: minimum distance, which is reduced if there is too little room
    """
    order = sorted(range(len(targets)), key=lambda index: targets[index])
    least = min(least, height / max(len(targets) - 1, 1))
    places = [0.0] * len(targets)
    before = -math.inf
    for index in order:
        places[index] = before = max(targets[index], before + least, 0.0)
    after = math.inf
    for index in reversed(order):
        places[index] = after = min(places[index], after - least, height)
    return places


def beside(labels: Iterable[str]) -> int:
    """Return the width that remains for the drawing beside labels at the right."""
    return WIDTH - 24 - LETTER * max(map(len, labels), default=0)


def drawn(
    name: str,
    title: str,
    table: Table,
    alternative: str,
    note: str = "",
    left: Iterable[str] = (),
    right: Iterable[str] = (),
    **spec: Any,
) -> Figure:
    """Return a figure with a specification.

    :param left: labels at the left edge
    :param right: labels at the right edge
    :param spec: top-level properties of Vega-Lite, with either `layer` or `mark`
    """
    edges = {"left": left, "right": right, "top": (), "bottom": ()}
    padding = {edge: 4 + math.ceil(SPARE * max(map(len, labels), default=0)) for edge, labels in edges.items()}
    whole = {"$schema": SCHEMA, "config": CONFIG, "background": None, "padding": padding, "width": WIDTH, **spec}
    return Figure(name, title, table, _cleaned(whole), escaped(alternative), escaped(note))


def _cleaned(part: Any) -> Any:
    """Return a specification with all strings escaped, since users supply names and titles."""
    if isinstance(part, str):
        return escaped(part)
    if isinstance(part, Mapping):
        return {key: _cleaned(value) for key, value in part.items()}
    return [_cleaned(each) for each in part] if isinstance(part, list | tuple) else part


def undrawn(name: str, title: str, table: Table, why: str) -> Figure:
    """Return a figure without a drawing, with the reason."""
    return Figure(name, title, table, {}, f"Not drawn: {why}.", f"Not drawn: {why}.")


def span(unit: Unit, values: Sequence[float]) -> str:
    """Return the range of values as text, like "1 s to 3 s"."""
    least, most = written(min(values), unit), written(max(values), unit)
    return least if least == most else f"{least} to {most}"
