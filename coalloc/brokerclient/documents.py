"""JSON as a broker may write it, and the numbers in it: what makes no sense is a ValueError. Pure."""

import json
import math
from typing import Any

from coalloc.counts import LARGEST

__all__ = ["document", "number", "whole"]


def document(text: str) -> Any:
    """A JSON document. :raises ValueError: also for numbers that are infinite or none, which JSON does not have"""
    return json.loads(text, parse_constant=_refuse, parse_float=_finite)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large")
    return value


def whole(said: Any) -> int:
    """A whole number from 0 on that a file or a database can count to.

    >>> whole(3)
    3
    >>> whole(True)
    Traceback (most recent call last):
    ValueError: True is no whole number
    """
    if type(said) is not int or not 0 <= said <= LARGEST:
        raise ValueError(f"{said!r:.40} is no whole number")
    return said


def number(said: Any) -> float:
    """A finite number from 0 on. :raises ValueError: for anything else, booleans too"""
    if type(said) not in (int, float) or not 0 <= said < math.inf:
        raise ValueError(f"{said!r:.40} is no number")
    return float(said)
