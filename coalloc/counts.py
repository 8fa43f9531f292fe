"""Whole numbers as others write them, in replies, headers, listings and documents. Pure."""

import re

__all__ = ["LARGEST", "count"]

LARGEST = 2**63 - 1
"""What an offset in a file can be, and what databases keep."""
DECIMAL = re.compile("0{0,20}([0-9]{1,19})")


def count(text: str) -> int | None:
    """A whole number from 0 to `LARGEST` in ASCII digits, with blanks around it or none; None for anything else.

    >>> count(" 12\\t"), count("9223372036854775807"), count("9223372036854775808"), count("1" * 4301)
    (12, 9223372036854775807, None, None)
    >>> count("-1"), count("+1"), count("1_0"), count("\\uff11"), count("")
    (None, None, None, None, None)
    """
    found = DECIMAL.fullmatch(text.strip(" \t\r\n"))
    value = int(found[1]) if found else None
    return value if value is not None and value <= LARGEST else None
