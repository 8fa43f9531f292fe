"""Calibration charts: nominal against observed coverage, with confidence intervals."""

import math
from collections.abc import Sequence, Set
from typing import Any, NamedTuple

from broker.reports.charts.frame import Categories, column, drawn, picked, undrawn
from broker.reports.document import Figure, Table, Value
from broker.reports.words import short, written

__all__ = ["Interval", "calibration", "wilson"]

FEWEST = 20
"""Fewest forecasts of a point; with fewer, chance alone may shift the observed share by 20 percentage points."""
SIDE = 320
OFFSET = 0.018
"""Horizontal distance between points of the same promised share, so that all are visible."""
DESCRIBED = 8
"""Number of points that the text alternative names."""
Z = 1.959964
"""Number of standard deviations on both sides of the mean that contain 95 % of a normal distribution."""


class Interval(NamedTuple):
    """An interval of shares, from 0 to 1."""

    low: float
    high: float


def wilson(hits: float, trials: float) -> Interval:
    """Return the 95 % confidence interval of a share, from the numbers of hits and trials (Wilson 1927).

    >>> [round(end, 3) for end in wilson(8, 10)]
    [0.49, 0.943]
    """
    share, square = hits / trials, Z * Z / trials
    middle = (share + square / 2) / (1 + square)
    half = Z * math.sqrt(share * (1 - share) / trials + square / (4 * trials)) / (1 + square)
    return Interval(max(0.0, middle - half), min(1.0, middle + half))


def calibration(name: str, title: str, table: Table, nominal: str, hits: str, trials: str, of: str = "") -> Figure:
    """Return a figure with a point for each row: the promised share of outcomes, and the observed share.

    The bars at the points are 95 % confidence intervals (Wilson): a forecaster is well calibrated if they touch the
    diagonal. Rows with fewer than 20 forecasts are not drawn, and the note says so.

    :param nominal: column of the promised share
    :param hits: column of the number of forecasts that came true
    :param trials: column of the number of forecasts
    :param of: column whose values are distinguished by colour and shape, such as the forecaster
    """
    rows = picked(table, (nominal, hits, trials), (of,) if of else ())
    seen = [row for row in rows if row[0][2] >= FEWEST]
    if not seen:
        return undrawn(name, title, table, f"fewer than {FEWEST} forecasts are not reliable")
    kinds = Categories.of(others[0] for _, others in seen) if of else None
    values = [_point(numbers, others, kinds) for numbers, others in seen]
    coloured = kinds.channel("kind", shapes=True) if kinds else {"color": {"value": "var(--c1)"}}
    layers = [
        _diagonal(),
        *([_promises({numbers[0] for numbers, _ in seen}, len(kinds.names))] if kinds else []),
        {
            "mark": {"type": "rule", "strokeWidth": 2},
            "encoding": {**_axes(column(table, nominal).title), **_bar(coloured)},
        },
        {
            "mark": {"type": "point", "size": 80, "opacity": 1},
            "encoding": {**_axes(column(table, nominal).title), **coloured},
        },
        _text(0.31, 0.26, "as promised", 0),
        _text(0.02, 0.96, "more came true than promised", 0),
        _text(0.98, 0.04, "less than promised", 1),
    ]
    few = len(rows) - len(seen)
    note = f"{few} of fewer than {FEWEST} forecasts are not drawn." if few else ""
    size: dict[str, Any] = {"width": SIDE, "height": SIDE}
    return drawn(name, title, table, _description(title, seen), note, data={"values": values}, layer=layers, **size)


def _point(numbers: Sequence[float], others: Sequence[Value], kinds: Categories | None) -> dict[str, Any]:
    """Return a point; points with the same promised share are drawn side by side."""
    nominal, hits, trials = numbers
    low, high = wilson(hits, trials)
    point = {"nominal": nominal, "observed": hits / trials, "low": low, "high": high}
    if kinds is None:
        return point
    kind = kinds.name(others[0])
    offset = OFFSET * (kinds.names.index(kind) - (len(kinds.names) - 1) / 2)
    return {**point, "nominal": nominal + offset, "kind": short(kinds.names)[kind]}


def _axes(title: str) -> dict[str, Any]:
    return {"x": _share("nominal", title), "y": _share("observed", "Observed")}


def _share(field: str, title: str) -> dict[str, Any]:
    axis = {"format": ".0%", "values": [0, 0.2, 0.4, 0.6, 0.8, 1]}
    return {"field": field, "type": "quantitative", "title": title, "scale": {"domain": [0, 1]}, "axis": axis}


def _bar(coloured: dict[str, Any]) -> dict[str, Any]:
    return {"y": _share("low", "Observed"), "y2": {"field": "high"}, "color": coloured["color"]}


def _diagonal() -> dict[str, Any]:
    mark = {"type": "line", "color": "var(--muted)", "strokeDash": [5, 4], "strokeWidth": 1.2}
    values = [{"nominal": 0, "observed": 0}, {"nominal": 1, "observed": 1}]
    return {"data": {"values": values}, "mark": mark, "encoding": _axes("")}


def _promises(shares: Set[float], kinds: int) -> dict[str, Any]:
    """Return short horizontal lines at each promised share, for the points beside the diagonal."""
    reach = OFFSET * (kinds + 1) / 2
    values = [{"nominal": each - reach, "end": each + reach, "observed": each} for each in sorted(shares)]
    mark = {"type": "rule", "strokeWidth": 1.2, "clip": True}
    return {"data": {"values": values}, "mark": mark, "encoding": {**_axes(""), "x2": {"field": "end"}}}


def _text(x: float, y: float, text: str, right: int) -> dict[str, Any]:
    mark = {"type": "text", "text": text, "color": "var(--muted)", "align": ("left", "right")[right], "fontSize": 12}
    where = {"x": {"value": x * SIDE}, "y": {"value": (1 - y) * SIDE}}
    return {"data": {"values": [{}]}, "mark": mark, "encoding": where}


def _description(title: str, rows: Sequence[tuple[list[float], list[Value]]]) -> str:
    each = [
        f"{' '.join(map(str, others))} {written(nominal, 'share')} promised, {written(hits / trials, 'share')} observed"
        for (nominal, hits, trials), others in rows[:DESCRIBED]
    ]
    more = f"; and {len(rows) - DESCRIBED} more" if len(rows) > DESCRIBED else ""
    return f"{title}: {'; '.join(part.strip() for part in each)}{more}."
