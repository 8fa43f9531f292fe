"""Quantities in network files: "200 Mbit/s", "25 MB/s", "50 GB", "10 min", "0.02 per GB".

Numbers without a unit are bytes per second, bytes, seconds, or money per byte. Prefixes are decimal, except Ki to Ti.
"""

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

__all__ = ["amount", "price", "rate", "seconds", "show_price", "show_rate", "show_seconds", "show_size", "size"]

QUANTITY = re.compile(r"\s*(\d{1,30}(?:\.\d{0,30})?(?:e[-+]?\d{1,3})?)\s*([A-Za-z/ ]*?)\s*")
PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
SIZES = {f"{prefix}B": Fraction(factor) for prefix, factor in {**PREFIXES, **BINARY}.items()}
BITS = {f"{prefix}bit": Fraction(factor, 8) for prefix, factor in PREFIXES.items()}
SHORT = {name.lower(): factor for name, factor in BITS.items()}
RATES = {f"{name}/s": factor for name, factor in {**SIZES, **BITS}.items()} | SHORT
SECONDS = {"ms": Fraction(1, 1000), "s": Fraction(1), "min": Fraction(60), "h": Fraction(3600), "d": Fraction(86_400)}
PRICES = {f"{word}{name}": 1 / factor for name, factor in SIZES.items() for word in ("per ", "/")}
MOST = 2**63 - 1
LONGEST = 100
"""Maximum characters of a quantity; any user may send one, and rejecting it takes time cubic in its length."""
DECIMAL = {name: SIZES[name] for name in ("PB", "TB", "GB", "MB", "kB")}


def _read(value: object, units: Mapping[str, Fraction], example: str) -> Fraction:
    like, unit = f"write for example {example}", ""
    if isinstance(value, str):
        if len(value) > LONGEST or not (found := QUANTITY.fullmatch(value)):
            raise ValueError(f"{value[:LONGEST]!r} is not understood; {like}")
        number, unit = Fraction(found[1]), found[2]
        if unit and unit not in units:
            raise ValueError(f"{value!r} has an unknown unit; {like}")
    elif isinstance(value, bool) or not (isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))):
        raise ValueError(f"it is not a quantity; {like}")
    else:
        number = Fraction(value)
    if number < 0:
        raise ValueError(f"it is negative; {like}")
    read = number * units[unit] if unit else number
    if read > MOST:
        raise ValueError(f"it is too large; {like}")
    return read


def rate(value: object) -> int:
    """Parse a rate as whole bytes per second, rounded down.

    >>> rate("200 Mbit/s"), rate("25 MB/s"), rate("400mbit"), rate(1000)
    (25000000, 25000000, 50000000, 1000)

    :raises ValueError: when it is not a rate, or less than a byte per second, but not 0
    """
    read = _read(value, RATES, "200 Mbit/s or 25 MB/s")
    if 0 < read < 1:
        raise ValueError("it is less than 1 B/s; write 0 B/s for a link that carries nothing")
    return int(read)


def size(value: object) -> int:
    """Parse a size as whole bytes, rounded down.

    >>> size("1.5 GB"), size("4 MiB")
    (1500000000, 4194304)

    :raises ValueError: when it is not a size
    """
    return int(_read(value, SIZES, "50 GB"))


def seconds(value: object) -> float:
    """Parse a duration as seconds.

    >>> seconds("10 min"), seconds(2.5)
    (600.0, 2.5)

    :raises ValueError: when it is not a duration
    """
    return float(_read(value, SECONDS, "10 min"))


def price(value: object) -> float:
    """Parse a price as money per byte.

    >>> price("0.02 per GB"), price("20/TB")
    (2e-11, 2e-11)

    :raises ValueError: when it is not a price
    """
    return float(_read(value, PRICES, "0.02 per GB"))


def amount(value: object) -> float:
    """Parse a number without a unit.

    >>> amount(2), amount("1e5")
    (2.0, 100000.0)

    :raises ValueError: when it is not a number
    """
    return float(_read(value, {}, "2.5"))


def show_size(count: int) -> str:
    """Format bytes so that `size` reads the same value.

    >>> show_size(1_500_000_000), show_size(1234), show_size(0)
    ('1.5 GB', '1.234 kB', '0 B')
    """
    for unit, factor in DECIMAL.items():
        if count >= factor and 1000 * count % factor == 0:
            return f"{_plain(Decimal(1000 * count // int(factor)).scaleb(-3))} {unit}"
    return f"{count} B"


def show_rate(per_second: int) -> str:
    """Format bytes per second so that `rate` reads the same value.

    >>> show_rate(25_000_000)
    '25 MB/s'
    """
    return f"{show_size(per_second)}/s"


def show_seconds(value: float) -> str:
    """Format seconds so that `seconds` reads the same value.

    >>> show_seconds(600.0), show_seconds(0.5)
    ('600 s', '0.5 s')
    """
    return f"{_plain(Decimal(repr(value)))} s"


def show_price(per_byte: float) -> str:
    """Format money per byte so that `price` reads the same value.

    >>> show_price(2e-11)
    '0.02 per GB'
    """
    return f"{_plain(Decimal(repr(per_byte)).scaleb(9))} per GB"


def _plain(number: Decimal) -> str:
    """Format a number without trailing zeros."""
    shown = f"{number.normalize():f}"
    return shown if len(shown) <= 30 else f"{number.normalize():e}"
