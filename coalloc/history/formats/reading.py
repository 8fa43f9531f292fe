"""Detection of a log's format from its content, never from its name, and reading of the log."""

import csv
import gzip
import io
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import IO

from coalloc.errors import TooMuch, UsageError
from coalloc.history.formats import aria2, columns, esgf, gridftp, published
from coalloc.history.formats.log import TransferLog
from coalloc.history.transfers import TransferHistory

__all__ = ["read_log"]

GZIP, SQLITE = b"\x1f\x8b", b"SQLite format 3\0"
OURS = "transfers"
"""Table of coget's own history."""
FORMATS = (
    "a table with named columns, the transfer log of a GridFTP server, coget's history, aria2's server-stat "
    "or intake-esgf's database"
)
LEAST = 256
"""Minimum bytes that a line counts as: even a short line takes memory once it is parsed."""
LONGEST = 1 << 16
"""Maximum characters of a line."""


def read_log(path: Path, most: int | None = None, databases: bool = True) -> TransferLog:
    """Read a log; it may be compressed with gzip.

    :param most: maximum bytes of the uncompressed log, each line counted as at least `LEAST`; not for databases
    :param databases: whether to open databases; False for logs from untrusted users, as the views in a database, which
        SQLite executes, may run forever
    :raises UsageError: when the log cannot be read, or its format is unknown
    :raises TooMuch: when the log is longer than `most`
    """
    try:
        with path.open("rb") as file:
            head = file.read(len(SQLITE))
        if head == SQLITE:
            if not databases:
                raise UsageError(f"{path} is a database", "send its transfers as a table (CSV)")
            return _database(path)
        with _text(path, head) as text:
            return _log(path, _lines(path, text, most))
    except (OSError, EOFError, zlib.error, sqlite3.Error, csv.Error, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {path}: {why}", "give a complete log of transfers") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not text", f"give {FORMATS}") from None


@contextmanager
def _text(path: Path, head: bytes) -> Iterator[IO[str]]:
    with path.open("rb") as raw, gzip.open(raw) if head.startswith(GZIP) else raw as file:
        yield io.TextIOWrapper(file, encoding="utf-8-sig", newline="")


def _lines(path: Path, text: IO[str], most: int | None) -> Iterator[str]:
    """Yield the lines one by one, within limits: endless lines and extreme compression must not fill the memory."""
    taken = 0
    while line := text.readline(LONGEST):
        if len(line) == LONGEST:
            raise UsageError(f"{path} has a line of more than {LONGEST} characters", f"give {FORMATS}")
        taken += max(len(line), LEAST)
        if most is not None and taken > most:
            raise TooMuch(
                f"{path} has, unpacked, more than {most} bytes, or {most // LEAST} lines", "split it into parts"
            )
        yield line


def _log(path: Path, text: Iterator[str]) -> TransferLog:
    number, first = next(((n, line) for n, line in enumerate(text, 1) if line.strip()), (0, ""))
    lines = ((n, line) for n, line in enumerate(chain([first], text), number) if line.strip())
    if first.startswith(gridftp.FIRST):
        return gridftp.read(lines)
    if first.startswith(aria2.FIRST):
        return aria2.read(lines)
    header = [name.strip() for name in next(csv.reader([first]), [])]
    if twice := next((name for name, count in Counter(header).items() if count > 1), None):
        raise UsageError(f"{path}: duplicate column {twice}", "rename one")
    rows = _rows(text, number)
    for names, read in published.KNOWN.items():
        if set(names) <= set(header):
            return read(rows, header)
    if columns.fits(header):
        return columns.read(rows, header, number)
    raise UsageError(
        f"{path} begins with {first.strip()[:60]!r}: the format is unknown",
        f"give {FORMATS}; a table needs the columns {', '.join(columns.NEEDED)} and one of end, seconds",
    )


def _rows(text: Iterable[str], before: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a table, each with the number of the line on which it begins.

    :param before: number of lines before the first one
    """
    reader = csv.reader(text)
    while True:
        line = before + reader.line_num + 1
        row = next(reader, None)
        if row is None:
            return
        if row:
            yield line, row


def _database(path: Path) -> TransferLog:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)  # a view may compute values of any length
        database.execute("PRAGMA trusted_schema = OFF")
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if esgf.TABLE in tables:
            return esgf.read(database)
    if OURS in tables:
        observations = TransferHistory(path).observations()
        return TransferLog("coget's history", observations, [], list(range(1, len(observations) + 1)))
    raise UsageError(
        f"{path} is a database of unknown format, with the tables: {', '.join(sorted(tables)) or 'none'}",
        f"give {FORMATS}",
    )
