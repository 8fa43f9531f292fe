"""Charts of factors with their confidence intervals, on a logarithmic axis beside the line of no change."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from broker.reports.charts.frame import LETTER, WIDTH, Axis, Categories, column, drawn, picked, undrawn
from broker.reports.document import Figure, Table, Unit
from broker.reports.words import short, written

__all__ = ["intervals"]

MOST = 30
"""Most rows that remain readable."""
STEP = 24
LONGEST = 48
"""Most letters of a name."""
DESCRIBED = 3
"""Number of rows at each end that the text alternative names."""


class _Interval(NamedTuple):
    """A row: its name, its category, and its factor with the interval."""

    name: str
    kind: str
    value: float
    low: float
    high: float


def intervals(name: str, title: str, table: Table, of: str, value: str, low: str, high: str, kind: str) -> Figure:
    """Return a figure with a point for each row of the table, and a bar for its interval, the largest factor first.

    Rows without an interval are not drawn. Of more than 30, the 15 largest and the 15 smallest are drawn; then the note
    says so.

    :param of: column of the rows' names, which are at the left
    :param value: column of factors; 1 is no change
    :param low: column of the lower end of the interval
    :param high: column of its upper end
    :param kind: column whose values are distinguished by colour and shape
    """
    rows = picked(table, (value, low, high), (of, kind))
    found = [_Interval(str(others[0]), str(others[1]), *numbers) for numbers, others in rows]
    found.sort(key=lambda each: (-each.value, each.name))
    if not found:
        return undrawn(name, title, table, "no row has an interval yet")
    shown = found if len(found) <= MOST else [*found[: MOST // 2], *found[-MOST // 2 :]]
    names = short((each.name for each in shown), LONGEST)
    of_values = column(table, value)
    axis = Axis.of(of_values.title, of_values.unit, [1.0, *(end for each in shown for end in each[2:])], log=True)
    kinds = Categories.of(each.kind for each in shown)
    return drawn(
        name,
        title,
        table,
        _description(title, found, of_values.unit),
        _note(len(shown), len(found), len(table.rows)),
        left=names.values(),
        width=WIDTH - LETTER * max(map(len, names.values())),
        height={"step": STEP},
        data={"values": [_placed(each, names, axis, kinds) for each in shown]},
        encoding={"y": _named_rows(list(names.values()))},
        layer=_layers(axis, kinds),
    )


def _placed(each: _Interval, names: Mapping[str, str], axis: Axis, kinds: Categories) -> dict[str, Any]:
    ends = {field: axis.placed(getattr(each, field)) for field in ("value", "low", "high")}
    return {"row": names[each.name], **ends, "kind": short(kinds.names)[kinds.name(each.kind)]}


def _named_rows(names: Sequence[str]) -> dict[str, Any]:
    axis = {"ticks": False, "domain": False, "grid": True, "tickBand": "extent", "labelPadding": 6, "labelLimit": 400}
    return {"field": "row", "type": "nominal", "title": None, "sort": None, "scale": {"domain": names}, "axis": axis}


def _layers(axis: Axis, kinds: Categories) -> list[dict[str, Any]]:
    coloured, along = kinds.channel("kind", shapes=True), axis.channel("low")
    even = {"type": "rule", "color": "var(--muted)", "strokeDash": [5, 4], "strokeWidth": 1.2}
    return [
        {"data": {"values": [{"low": axis.placed(1.0)}]}, "mark": even, "encoding": {"x": along, "y": None}},
        {
            "mark": {"type": "rule", "strokeWidth": 2},
            "encoding": {"x": along, "x2": {"field": "high"}, "color": coloured["color"]},
        },
        {
            "mark": {"type": "point", "size": 80, "opacity": 1},
            "encoding": {"x": axis.channel("value"), **coloured},
        },
    ]


def _description(title: str, found: Sequence[_Interval], unit: Unit) -> str:
    """Return the text alternative: the number of rows of each kind, and the rows with extreme factors."""
    counts = ", ".join(
        f"{sum(each.kind == kind for each in found)} {kind}" for kind in sorted({each.kind for each in found})
    )
    ends = found if len(found) <= 2 * DESCRIBED else [*found[:DESCRIBED], *found[-DESCRIBED:]]
    values = ", ".join(f"{each.name} {written(each.value, unit)}" for each in ends)
    return f"{title}: {len(found)} rows, {counts}; {values}."


def _note(shown: int, found: int, rows: int) -> str:
    notes = [f"{shown} of {found} are drawn: the largest and the smallest; the table has all."] if shown < found else []
    notes += [f"{rows - found} without an interval are not drawn."] if found < rows else []
    return " ".join(notes)
