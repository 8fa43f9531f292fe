"""Standard output and error streams that escape control characters in all text except coget's own."""

import codecs
import io
import logging
import sys
from typing import Any, TextIO

from coalloc.safe_text import lines, one_line, redacted_text

__all__ = ["CLOSED", "PlainStream", "Plainly", "drawn", "guard", "say", "say_json"]

CLOSED: set[int] = set()
"""Numbers of the standard streams that were closed at the start, in whose place the null device is open."""


class PlainStream(io.TextIOWrapper):
    """A stream that escapes all text written to it.

    :param drawn: the original stream, for output that controls a terminal
    """

    def __init__(self, drawn: io.TextIOWrapper) -> None:
        ascii_only = codecs.lookup(drawn.encoding).name == "ascii"
        super().__init__(
            drawn.buffer,
            "utf-8" if ascii_only else drawn.encoding,  # otherwise click would replace this stream
            "backslashreplace",
            line_buffering=drawn.line_buffering,
            write_through=True,
        )
        self.drawn = drawn

    def write(self, text: str, /) -> int:
        super().write(lines(text))
        return len(text)


class Plainly(logging.Formatter):
    """A log formatter that writes each message on one line, escaped and redacted."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class names it
        return one_line(super().formatMessage(record).rstrip())

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the base class names it
        return lines(redacted_text(super().formatException(ei)))


def guard() -> None:
    """Escape all text and log messages that this process writes to standard output and error from now on."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = PlainStream(sys.stdout)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = PlainStream(sys.stderr)
    if logging.lastResort:
        logging.lastResort.setFormatter(Plainly())


def drawn(file: TextIO) -> TextIO:
    """Return the stream that `guard` replaced by `file`, for writers that escape foreign text themselves."""
    return file.drawn if isinstance(file, PlainStream) else file


def say(text: str, err: bool = False) -> None:
    """Print `text` as one line, on standard error if `err`."""
    print(one_line(text), file=sys.stderr if err else sys.stdout, flush=True)


def say_json(document: object) -> None:
    """Print a JSON document on standard output, with non-ASCII characters as JSON escapes."""
    import json  # imported here because few outputs are documents

    print(json.dumps(document, indent=2).replace("\x7f", "\\u007f"), flush=True)
