"""A table of transfers with named columns (CSV), the format for logs without a reader of their own.

Required columns are `start`, `bytes`, and one of `end` and `seconds`. Optional ones are `source`, `sink`, `direction`
(read, write), `file_class`, `streams`, `concurrency`, `ranges`, `busy_seconds`, `setup_seconds` and `outcome` (ok,
slow, failed, corrupt). Times are seconds since the epoch, or ISO 8601; without a time zone they are in UTC.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import cast

from coalloc.history.formats.log import ChangedValue, TransferLog, gather, named, others_under_way
from coalloc.util.counts import count
from predictors.observation import Direction, Observation, Outcome

__all__ = ["NEEDED", "fits", "read"]

NEEDED = ("start", "bytes")
READ = frozenset(NEEDED) | {
    "source",
    "sink",
    "end",
    "seconds",
    "direction",
    "file_class",
    "streams",
    "concurrency",
    "ranges",
    "busy_seconds",
    "setup_seconds",
    "outcome",
}
"""Columns that are read."""
LARGE = 1e20
"""More bytes than any file has; the digits of larger numbers are not needed."""
OUTCOMES = ("ok", "slow", "failed", "corrupt")
DIRECTIONS = ("read", "write")


def fits(header: Iterable[str]) -> bool:
    """Return whether a table with these columns can be read."""
    names = set(header)
    return names.issuperset(NEEDED) and bool(names & {"end", "seconds"})


def read(rows: Iterable[tuple[int, Sequence[str]]], header: Sequence[str], line: int) -> TransferLog:
    """Read all rows; count the concurrency if the table lacks it. Unread columns are reported in `changed`.

    :param rows: rows with their line numbers
    :param line: line number of the header
    """
    log = gather("a table of transfers", rows, lambda values: _transfer(named(header, values)))
    unread = [ChangedValue(line, "column", name, "") for name in header if name and name not in READ]
    log = log._replace(changed=unread)
    counted = "concurrency" in header
    return log if counted else log._replace(observations=others_under_way(log.observations))


def _transfer(row: Mapping[str, str]) -> Observation:
    start = _time(row["start"])
    end = _time(row["end"]) if row.get("end") else start + float(row["seconds"])
    setup, busy = row.get("setup_seconds"), row.get("busy_seconds")
    return Observation(
        source=row.get("source") or "",
        sink=row.get("sink") or "",
        start=start,
        end=end,
        bytes=_whole(row["bytes"]),
        busy_seconds=float(busy) if busy else None,
        setup_seconds=float(setup) if setup else None,
        ranges=_whole(row.get("ranges") or "1"),
        streams=_whole(row.get("streams") or "1"),
        concurrency=_whole(row.get("concurrency") or "0"),
        direction=cast(Direction, _one_of(row.get("direction") or "read", DIRECTIONS)),
        file_class=row.get("file_class") or "",
        outcome=cast(Outcome, _one_of(row.get("outcome") or "ok", OUTCOMES)),
    )


def _whole(text: str) -> int:
    """Parse a whole number without losing digits.

    >>> _whole("9007199254740993"), _whole("1e9"), _whole("4.9885858065465981e+16")
    (9007199254740993, 1000000000, 49885858065465981)

    :raises ValueError: when the text is not a whole number
    """
    number = count(text)
    if number is None:
        value = float(text)
        try:
            exact = Decimal(text) if abs(value) < LARGE else value
        except InvalidOperation:  # its exponent is too long
            raise ValueError(f"{text!r} is not a number of bytes") from None
        if not value.is_integer() or int(exact) != exact:
            raise ValueError(f"{text!r} is not a whole number")
        number = int(exact)
    return number


def _one_of(word: str, words: tuple[str, ...]) -> str:
    if word not in words:
        raise ValueError(f"{word!r} is not one of {', '.join(words)}")
    return word


def _time(text: str) -> float:
    """Parse a time as seconds since the epoch.

    >>> _time("86400.5"), _time("1970-01-02 00:00:00"), _time("1970-01-02T01:00+01:00")
    (86400.5, 86400.0, 86400.0)
    """
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
