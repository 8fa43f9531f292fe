"""Parser of whole numbers in replies, headers, listings and documents. Pure."""

import re

__all__ = ["LARGEST", "count"]

LARGEST = 2**63 - 1
"""Largest file offset, and largest integer in databases."""
DECIMAL = re.compile("0{0,20}([0-9]{1,19})")


def count(text: str) -> int | None:
    """Return a whole number from 0 to `LARGEST` in ASCII digits, perhaps between blanks; None for any other string.

    >>> count(" 12\\t"), count("9223372036854775807"), count("9223372036854775808"), count("1" * 4301)
    (12, 9223372036854775807, None, None)
    >>> count("-1"), count("+1"), count("1_0"), count("\\uff11"), count("")
    (None, None, None, None, None)
    """
    found = DECIMAL.fullmatch(text.strip(" \t\r\n"))
    value = int(found[1]) if found else None
    return value if value is not None and value <= LARGEST else None
