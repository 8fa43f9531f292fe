"""Files of other programs, read into the broker's types: pure apart from files, and run in a separate process."""

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
from coalloc.model import ReplicaSet
from coalloc.safe_text import one_line
from predictors.observation import Observation

if TYPE_CHECKING:
    from coalloc.api import TransferLog

__all__ = ["SHOWN", "Notes", "Row", "Unpacked", "files_of", "unpack"]

CHUNK = 10_000
"""Transfers in one transaction."""
SHOWN = 100
"""Most refused lines, and most changed values, that are listed one by one: those of the first lines."""
LONGEST = 200
"""Most characters of a value in a note."""


class LineNote(NamedTuple):
    """A note about a refused line or a changed value; notes sort by lines."""

    line: int
    field: str
    was: str
    now: str


class Notes:
    """Notes about lines of a log: those about the first lines, and the number of all lines with notes."""

    def __init__(self) -> None:
        self.lines = 0
        self._last = 0
        self._first: list[LineNote] = []

    def add(self, line: int, field: str, was: object, now: object = "") -> None:
        """Add a note about a line; the notes about one line have to follow each other."""
        self.lines += line != self._last
        self._last = line
        self._first.append(LineNote(line, field, one_line(str(was), LONGEST), one_line(str(now), LONGEST)))
        if len(self._first) > 2 * SHOWN:
            self._first = nsmallest(SHOWN, self._first)

    def first(self) -> list[LineNote]:
        """Return the notes about the first lines, in their order."""
        return nsmallest(SHOWN, self._first)


class Row(NamedTuple):
    """A transfer of a log: its line, the observation in it, and the same as a report.

    :param written: name of the source in the line, if that is in another form
    """

    line: int
    observation: Observation
    observed: Observed
    written: str | None

    def values(self) -> dict[str, object]:
        """Return the values of the line, by the names of the columns that store them."""
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
    """A log that was read: its kind and the notes about its lines; its transfers are in a file.

    :param left_out: number of lines that hold no transfer
    """

    kind: str
    refused: Notes
    changed: Notes
    left_out: int


def unpack(log: str, most: int, latest: float, target: str) -> Unpacked:
    """Read a log, and write its transfers into a file: pickled lists of `Row`, framed.

    :param log: path of the log
    :param most: most bytes of the log after decompression
    :param latest: latest time at which a transfer may have ended, seconds since the epoch
    :param target: path of the file
    :raises Invalid: when the kind of log is not known
    :raises TooLarge: when it is longer than `most`
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
        if field != "source":  # sources are noted later, when their stored form is known
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
    """Yield the transfers of a log, in parts; note in `refused` the lines that are not valid as reports."""
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
    """Return a line as a report.

    :param what: values that distinguish it from all others; its id is derived from them
    :raises ValidationError: when it cannot be stored as it is
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
    """Return the first fault, with the name and the value of its field."""
    first = error.errors(include_url=False)[0]
    if not first["loc"]:
        return why(first)
    return f"{first['loc'][0]}: {one_line(str(first['input']), LONGEST // 2)!r} cannot be kept: {why(first)}"
