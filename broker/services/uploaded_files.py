"""Parsers of other programs' files (logs, Metalinks), which run in a subprocess."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from broker.errors import Invalid, TooLarge
from broker.models.faults import why
from broker.models.history import Observed
from broker.subprocesses import framed
from coalloc.api import metalink_files, read_log
from coalloc.broker_client.imports import address
from coalloc.errors import CoallocError, TooMuch
from coalloc.model.replicas import ReplicaSet
from coalloc.safe_text import one_line
from predictors.observation import Observation

if TYPE_CHECKING:
    from coalloc.api import TransferLog

__all__ = ["SHOWN", "Notes", "Row", "Unpacked", "files_of", "unpack"]

CHUNK = 10_000
"""Most transfers in one transaction."""
SHOWN = 100
"""Most refused lines, and most changed values, that are reported in detail."""
LONGEST = 200
"""Most characters of a value in a note."""


class LineNote(NamedTuple):
    """A note about a refused line or a changed value; notes sort by line number."""

    line: int
    field: str
    was: str
    now: str


class Notes:
    """Notes about lines of a log: the first `SHOWN` notes, and the number of all lines with notes."""

    def __init__(self) -> None:
        self.lines = 0
        self._last = 0
        self._first: list[LineNote] = []

    def add(self, line: int, field: str, was: object, now: object = "") -> None:
        """Add a note about a line; notes about the same line must be added one after the other."""
        self.lines += line != self._last
        self._last = line
        self._first.append(LineNote(line, field, one_line(str(was), LONGEST), one_line(str(now), LONGEST)))
        if len(self._first) > 2 * SHOWN:
            self._first = nsmallest(SHOWN, self._first)

    def first(self) -> list[LineNote]:
        """Return the first notes, by line number."""
        return nsmallest(SHOWN, self._first)


class Row(NamedTuple):
    """A transfer of a log: its line number, its observation, and the observation as a report.

    :param written: name of the source in the line, if its form differs
    """

    line: int
    observation: Observation
    observed: Observed
    written: str | None

    def values(self) -> dict[str, object]:
        """Return the values of the line, by the fields of `Observed`."""
        each = self.observation
        return {
            "source": self.written or each.source,
            "sink": each.sink,
            "direction": each.direction,
            "started": each.start,
            "ended": each.end,
            "bytes": each.bytes,
            "setup_seconds": each.setup_seconds,
            "ranges": each.ranges,
            "streams": each.streams,
            "concurrency": each.concurrency,
            "file_class": each.file_class,
            "outcome": each.outcome,
        }


class Unpacked(NamedTuple):
    """The result of parsing a log, whose transfers are in a file.

    :param kind: format of the log
    :param left_out: number of lines without a transfer
    """

    kind: str
    refused: Notes
    changed: Notes
    left_out: int


def unpack(log: str, most: int, latest: float, target: str) -> Unpacked:
    """Parse a log, and write its transfers to a file as frames of pickled lists of `Row`.

    :param log: path of the log
    :param most: most bytes of the log after decompression
    :param latest: latest time at which a transfer may have ended, seconds since the epoch
    :param target: path of the file
    :raises Invalid: when the format of the log is unknown
    :raises TooLarge: when the log is longer than `most`
    """
    try:
        read = read_log(Path(log), most, databases=False)
    except CoallocError as error:
        kind = TooLarge if isinstance(error, TooMuch) else Invalid
        raise kind(error.message.replace(log, "the log"), error.remedy) from None
    refused, changed = Notes(), Notes()
    for each in read.refused:
        refused.add(each.line, "", each.why)
    for line, field, was, now in read.changed:
        if field != "source":  # sources follow later, when their stored form is known
            changed.add(line, field, was, now)
    with open(target, "wb") as file:
        for chunk in _chunks(read, latest, refused):
            file.write(framed(chunk))
    return Unpacked(read.kind, refused, changed, read.left_out)


def files_of(document: bytes) -> list[ReplicaSet]:
    """Read a Metalink. :raises Invalid: when the document is not a Metalink"""
    try:
        return metalink_files(document, "the Metalink")
    except CoallocError as error:
        raise Invalid(error.message, error.remedy) from None


def _chunks(log: "TransferLog", latest: float, refused: Notes) -> Iterator[list[Row]]:
    """Yield the transfers of a log in chunks; add a note to `refused` for each line that is no valid report."""
    seen = Counter[tuple[object, ...]]()
    written = {line: was for line, field, was, _ in log.changed if field == "source"}
    rows = list(zip(log.lines, log.observations, strict=True))
    for begin in range(0, len(rows), CHUNK):
        chunk = []
        for line, each in rows[begin : begin + CHUNK]:
            what = (each.source, each.sink, each.direction, each.start, each.end, each.bytes)
            seen[what] += 1  # equal transfers get different ids, and the same ids if the log is sent again
            try:
                observed = _observed(each, (*what, seen[what]))
            except ValidationError as error:
                refused.add(line, "", _named(error))
                continue
            if observed.ended > latest:
                refused.add(line, "", f"a transfer from {each.source} ended in the future")
            elif "://" in each.sink and address(each.sink) is None:
                refused.add(line, "", f"sink: {each.sink!r} is not an address of a server")
            else:
                chunk.append(Row(line, each, observed, written.get(line)))
        yield chunk


def _observed(each: Observation, what: object) -> Observed:
    """Return an observation as a report.

    :param what: values from which its unique id is derived
    :raises ValidationError: when it is no valid report
    """
    return Observed(
        id="log-" + hashlib.sha256(repr(what).encode(errors="surrogatepass")).hexdigest()[:40],
        source=each.source,
        sink=each.sink,
        direction=each.direction,
        started=each.start,
        ended=each.end,
        bytes=each.bytes,
        busy_seconds=each.busy_seconds,
        setup_seconds=each.setup_seconds,
        ranges=each.ranges,
        streams=max(1, each.streams),
        concurrency=each.concurrency,
        file_class=each.file_class,
        outcome=each.outcome,
    )


def _named(error: ValidationError) -> str:
    """Return the message of the first fault, with its field and value."""
    first = error.errors(include_url=False)[0]
    if not first["loc"]:
        return why(first)
    return f"{first['loc'][0]}: cannot store {one_line(str(first['input']), LONGEST // 2)!r}: {why(first)}"
