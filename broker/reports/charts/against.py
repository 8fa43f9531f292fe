"""Scatter plots of one number against another."""

from typing import Any

from broker.reports.charts.frame import Axis, Categories, column, drawn, picked, span, thinned, undrawn
from broker.reports.document import Figure, Table
from broker.reports.words import short

__all__ = ["scatter"]

FEWEST = 5
"""Fewest points that can show a pattern."""
SIDE = 360
WIDTH = 480


def scatter(name: str, title: str, table: Table, x: str, y: str, *, colour: str = "") -> Figure:
    """Return a figure with a point for each row, and the diagonal of equal values if both columns have the same unit.

    If there are more than 1,000 points, every n-th is drawn, and the note says so. An axis is logarithmic if one value
    is many times the median.

    :param colour: column whose values are distinguished by colour and shape
    """
    rows = picked(table, (x, y), (colour,) if colour else ())
    if len(rows) < FEWEST:
        return undrawn(name, title, table, f"fewer than {FEWEST} points show no pattern")
    seen = thinned(rows)
    units = column(table, x).unit, column(table, y).unit
    xs, ys = ([numbers[place] for numbers, _ in rows] for place in (0, 1))
    alike = units[0] == units[1]
    across = Axis.of(column(table, x).title, units[0], [*xs, *ys] if alike else xs)
    up = Axis.of(column(table, y).title, units[1], [*xs, *ys] if alike else ys)
    kinds = Categories.of(others[0] for _, others in seen) if colour else None
    values = [
        {
            "x": across.placed(numbers[0]),
            "y": up.placed(numbers[1]),
            **({"kind": short(kinds.names)[kinds.name(others[0])]} if kinds else {}),
        }
        for numbers, others in seen
    ]
    points = kinds.channel("kind", shapes=True) if kinds else {"color": {"value": "var(--c1)"}}
    layers: list[dict[str, Any]] = [{"mark": "point", "encoding": points}]
    if alike:
        mark = {"type": "line", "color": "var(--muted)", "strokeDash": [5, 4], "strokeWidth": 1.2}
        ends = [{"x": edge / across.divisor, "y": edge / up.divisor} for edge in (across.low, across.high)]
        layers.append({"data": {"values": ends}, "mark": mark})
    note = f"{len(seen):,} of {len(rows):,} points are drawn, evenly chosen." if len(seen) < len(rows) else ""
    alternative = f"{title}: {len(rows):,} points, {column(table, x).title} {span(units[0], xs)}, "
    alternative += f"{column(table, y).title} {span(units[1], ys)}"
    if alike:
        alternative += f"; {sum(a > b for a, b in zip(xs, ys, strict=True)):,} below the diagonal"
    size: dict[str, Any] = {"width": SIDE if alike else WIDTH, "height": SIDE}
    encoding = {"x": across.channel("x"), "y": up.channel("y")}
    data = {"values": values}
    return drawn(name, title, table, f"{alternative}.", note, data=data, encoding=encoding, layer=layers, **size)
