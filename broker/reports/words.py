"""Values as text for readers, and short forms of names."""

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from broker.reports.document import Unit, Value
from coalloc.safe_text import escaped
from predictors.context import SIZES

__all__ = ["Scale", "scale", "short", "size_span", "written"]

LONGEST = 28
"""Most letters of a name in a figure; longer names are shortened in the middle, since names differ at their ends."""
STEPS = {
    "bytes": ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "rate": ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")),
    "seconds": ((172_800.0, "d"), (7_200.0, "h"), (300.0, "min"), (1.0, "s"), (1e-3, "ms")),
}
DIVISORS = {"d": 86_400.0, "h": 3_600.0, "min": 60.0}


class Scale(NamedTuple):
    """The scale of the values of one axis.

    :param divisor: number by which values are divided
    :param sign: unit of the divided values; empty for values without a unit
    """

    divisor: float
    sign: str


def scale(unit: Unit, largest: float) -> Scale:
    """Return the scale that gives few digits to values up to `largest`.

    >>> scale("rate", 52_000_000.0)
    Scale(divisor=1000000.0, sign='MB/s')
    """
    if unit not in STEPS:
        return Scale(1.0, "×" if unit == "factor" else "")
    for least, sign in STEPS[unit]:
        if abs(largest) >= least:
            return Scale(DIVISORS.get(sign, least), sign)
    _, sign = STEPS[unit][-1]
    return Scale(STEPS[unit][-1][0], sign)


def written(value: Value, unit: Unit) -> str:
    """Return a value with its unit: three significant digits, moments in UTC, a dash for an unknown value.

    >>> written(52_300_000.0, "rate"), written(0.8, "share"), written(None, "rate")
    ('52.3 MB/s', '80 %', '–')
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) or unit == "text":
        return escaped(str(value))
    if unit == "moment":
        return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M} UTC"
    if unit == "count":
        return f"{value:,.0f}"
    if unit == "share":
        return f"{_digits(value * 100)} %"
    divisor, sign = scale(unit, value)
    return f"{_digits(value / divisor)} {sign}".rstrip()


def size_span(size_class: int) -> str:
    """Return the range of a size class (`predictors.context`) as text.

    >>> size_span(0), size_span(1), size_span(8)
    ('below 1 MB', '1 MB – 4 MB', 'from 16 GB')
    """
    low, high = (written(SIZES[i], "bytes") if 0 <= i < len(SIZES) else "" for i in (size_class - 1, size_class))
    if not low:
        return f"below {high}"
    return f"{low} – {high}" if high else f"from {low}"


def _digits(value: float) -> str:
    if abs(value) >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def short(names: Iterable[str], longest: int = LONGEST) -> dict[str, str]:
    """Return a short form of each name, different for different names.

    :param longest: most letters of a short form

    >>> short(["cern", "a-very-long-name-of-storage.at.some.university.example"])["cern"]
    'cern'
    """
    made: dict[str, str] = {}
    taken: set[str] = set()
    for name in dict.fromkeys(names):
        written, number = _fitted(escaped(name) or "–", "", longest), 1
        while written in taken:
            number += 1
            written = _fitted(escaped(name), f" ({number})", longest)
        taken.add(written)
        made[name] = written
    return made


def _fitted(name: str, ending: str, longest: int) -> str:
    room = longest - len(ending)
    if len(name) > room:
        head = (room - 1) // 2
        name = f"{name[:head]}…{name[len(name) - (room - 1 - head) :]}"
    return name + ending
