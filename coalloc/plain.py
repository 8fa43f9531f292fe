"""The display form of foreign text from servers, brokers, documents and other programs. Pure.

Text may hold sequences that control a terminal, line ends that forge lines, and characters that hide or reorder others.
"""

import re

from coalloc.urls import redacted_text

__all__ = ["LONGEST", "escaped", "lines", "one_line"]

LONGEST = 4096
"""Most characters of a line."""

_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Characters without a shape, though Unicode calls them letters or marks."""


def escaped(text: str, kept: str = "") -> str:
    """Return `text` with all invisible characters escaped as in Python; characters in `kept` stay.

    Escaped are control characters, all blanks but the space, line ends, changes of the writing direction, characters
    without width, and code points that are no characters.

    >>> print(escaped("550 no\\r\\n\\x1b[2Jsuch\\u202efile\\udcff"))
    550 no\\r\\n\\x1b[2Jsuch\\u202efile\\udcff
    """
    if text.isprintable() and not _INVISIBLE.search(text):
        return text
    return "".join(char if char in kept or _seen(char) else char.encode("unicode_escape").decode() for char in text)


def _seen(char: str) -> bool:
    return char.isprintable() and not _INVISIBLE.match(char)


def one_line(text: str, longest: int = LONGEST) -> str:
    """Return `text` escaped, on one line, of at most `longest` characters, with its URLs redacted.

    >>> one_line("x" * 9, 6), one_line("a\\tb")
    ('xxx...', 'a\\\\tb')
    """
    shown = escaped(redacted_text(text[: 2 * longest])[: longest + 1])
    return shown if len(shown) <= longest else f"{shown[: longest - 3]}..."


def lines(text: str) -> str:
    """Return `text` escaped, except for its line feeds and tabs. URLs in it stay unchanged."""
    return escaped(text, kept="\n\t")
