"""Headers that the user gives with --header, as for curl."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from coalloc.errors import UsageError

__all__ = ["header_fields", "read_headers"]

NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
VALUE = re.compile(r"[\t\x20-\x7e]*")
OURS = frozenset(
    {
        *("accept-encoding", "connection", "content-length", "expect", "host", "if-range", "keep-alive", "range"),
        *("proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
"""Headers that coget itself sets, or that would change what an answer means."""
SPELLED = {name.lower(): name for name in ("Accept", "Authorization", "Cookie", "User-Agent")}
"""Headers that coget may set itself; they are written in one way, so that the user's takes the place of coget's."""
FORM = "write it as --header 'NAME: VALUE', or --header @FILE with such lines"


def read_headers(texts: Iterable[str]) -> dict[str, str]:
    """Return the headers of `--header` options: NAME: VALUE, @FILE with one a line, or @- for standard input.

    :raises UsageError: for an unreadable file or an invalid header; the message does not contain its value
    """
    return header_fields(line for text in texts for line in _lines(text))


def header_fields(lines: Iterable[str]) -> dict[str, str]:
    """Return the headers in lines NAME: VALUE; the last one of each name counts.

    >>> header_fields(["x-key: secret", "AUTHORIZATION:Bearer x"])
    {'x-key': 'secret', 'Authorization': 'Bearer x'}

    :raises UsageError: for an invalid header; the message does not contain its value
    """
    found: Mapping[str, tuple[str, str]] = {name.lower(): (name, value) for name, value in map(_field, lines)}
    return {SPELLED.get(lower, name): value for lower, (name, value) in found.items()}


def _lines(text: str) -> Iterator[str]:
    if not text.startswith("@"):
        yield text
        return
    try:
        content = sys.stdin.read() if text == "@-" else Path(text[1:]).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read the headers in {text[1:]}: {reason}", FORM) from None
    yield from filter(str.strip, content.splitlines())


def _field(line: str) -> tuple[str, str]:
    name, colon, value = line.strip("\r\n").partition(":")
    if not colon or not NAME.fullmatch(name):
        raise UsageError("a header has no valid name followed by a colon", FORM)
    if not VALUE.fullmatch(value) or not value.strip():
        raise UsageError(f"the header {name} has no value, or one that is not plain ASCII", FORM)
    if name.lower() in OURS:
        raise UsageError(f"the header {name} cannot be given: coget sets it itself", "leave it out")
    return name, value.strip()
