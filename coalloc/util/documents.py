"""Parsers of a broker's JSON and its numbers; malformed input raises ValueError. Pure."""

import json
import math
from typing import Any

from coalloc.util.counts import LARGEST

__all__ = ["document", "number", "whole"]


def document(text: str) -> Any:
    """Parse a JSON document. :raises ValueError: also for infinities and NaN, which JSON does not have"""
    return json.loads(text, parse_constant=_refuse, parse_float=_finite)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large")
    return value


def whole(value: Any) -> int:
    """Return a non-negative integer that fits into a file size or a database column.

    >>> whole(3)
    3
    >>> whole(True)
    Traceback (most recent call last):
    ValueError: True is not a whole number
    """
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise ValueError(f"{value!r:.40} is not a whole number")
    return value


def number(value: Any) -> float:
    """Return a finite number of at least 0. :raises ValueError: for anything else, including booleans"""
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r:.40} is not a number")
    return float(value)
