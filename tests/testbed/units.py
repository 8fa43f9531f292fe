"""Conversion of quantities in topologies, such as "400mbit", "10ms", "0.1%" or "64kb", to numbers and back. Pure.

Sizes and rates are decimal, as in networking: 1 kb is 1000 bytes, 1 mbit is a million bits per second.
"""

import re
from collections.abc import Mapping

__all__ = ["duration", "probability", "rate", "show_duration", "show_rate", "size"]

NUMBER = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:e-?[0-9]+)?)\s*([a-z%]*)")
RATES = {"bit": 1 / 8, "kbit": 1e3 / 8, "mbit": 1e6 / 8, "gbit": 1e9 / 8}
DURATIONS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
SIZES = {"b": 1.0, "kb": 1e3, "mb": 1e6}
PROBABILITIES = {"%": 0.01}


def _read(text: object, units: Mapping[str, float], example: str) -> float:
    found = NUMBER.fullmatch(str(text).strip().lower())
    if found and float(found[1]) == 0 and not found[2]:
        return 0.0
    if not found or found[2] not in units:
        raise ValueError(f"{text!r} is not understood; write for example {example} (units: {', '.join(units)})")
    return float(found[1]) * units[found[2]]


def rate(text: object) -> float:
    """Return a rate in bytes per second.

    :raises ValueError: not a number with a unit
    """
    return _read(text, RATES, "400mbit")


def duration(text: object) -> float:
    """Return a duration in seconds.

    :raises ValueError: not a number with a unit
    """
    return _read(text, DURATIONS, "10ms")


def size(text: object) -> float:
    """Return a size in bytes.

    :raises ValueError: not a number with a unit
    """
    return _read(text, SIZES, "64kb")


def probability(text: object) -> float:
    """Return a probability from 0 to 1.

    :raises ValueError: not a percentage from 0% to 100%
    """
    value = _read(text, PROBABILITIES, "0.1%")
    if value > 1:
        raise ValueError(f"{text!r} is more than 100%")
    return value


def show_rate(value: float) -> str:
    """Format bytes per second as Mbit/s."""
    return f"{value * 8 / 1e6:g} Mbit/s"


def show_duration(value: float) -> str:
    """Format seconds as milliseconds."""
    return f"{value * 1e3:g} ms"
