"""What other programs logged, taken as reports: of any size that fits into the memory, and packed or not.

Nothing is rewritten in silence. What is kept is what its line says, or the answer names the line: as one that is
refused, or as one that is kept in another form.
"""

import asyncio
import hashlib
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from heapq import nsmallest
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from broker.errors import Invalid, TooLarge
from broker.models.access import Role
from broker.models.faults import why
from broker.models.history import Change, LogTaken, Observed, Refusal
from broker.services.history import AHEAD, Transfers
from coalloc.api import read_log
from coalloc.errors import CoallocError, TooMuch
from coalloc.imports import address
from coalloc.plain import one_line
from predictors.observation import Observation

if TYPE_CHECKING:
    from coalloc.api import Log

__all__ = ["LARGEST_LOG", "Logs"]

LARGEST_LOG = 128 << 20
"""Bytes of a log once it is unpacked, a line counted as 256 at least: half a million transfers."""
CHUNK = 10_000
"""Transfers in one transaction."""
SHOWN = 100
"""Refused lines, and changed values, that are told one by one: those of the first lines."""
LONGEST = 200
"""Characters of a value in what is told of it."""


class Told(NamedTuple):
    """A refused line, or a changed value, as it sorts: by lines."""

    line: int
    field: str
    was: str
    now: str


class Notes:
    """What is told of lines: that of the first ones, and how many lines there are."""

    def __init__(self) -> None:
        self.lines = 0
        self._last = 0
        self._first: list[Told] = []

    def add(self, line: int, field: str, was: object, now: object = "") -> None:
        """Note something of a line; all of one line in a row."""
        self.lines += line != self._last
        self._last = line
        self._first.append(Told(line, field, one_line(str(was), LONGEST), one_line(str(now), LONGEST)))
        if len(self._first) > 2 * SHOWN:
            self._first = nsmallest(SHOWN, self._first)

    def first(self) -> list[Told]:
        """Those of the first lines, in their order."""
        return nsmallest(SHOWN, self._first)


class Logs:
    """Takes logs, one after the other: while it is read, all of one is in the memory."""

    def __init__(self, transfers: Transfers) -> None:
        self._transfers = transfers
        self._reading = asyncio.Lock()

    async def take(self, subject: str, body: AsyncIterator[bytes], role: Role = "reader") -> LogTaken:
        """Keep the transfers of another program's log; those of the same log sent again are known.

        :raises Invalid: when it is no log that is known
        :raises TooLarge: when it is longer than `LARGEST_LOG`
        """
        with tempfile.NamedTemporaryFile(prefix="coget-log-") as file:
            await _receive(body, file)
            async with self._reading:
                try:
                    log = await asyncio.to_thread(read_log, Path(file.name), LARGEST_LOG, databases=False)
                except CoallocError as error:
                    kind = TooLarge if isinstance(error, TooMuch) else Invalid
                    raise kind(error.message.replace(file.name, "the log"), error.remedy) from None
                return await self._keep(subject, log, role)

    async def _keep(self, subject: str, log: "Log", role: Role) -> LogTaken:
        refused, changed = Notes(), Notes()
        for each in log.refused:
            refused.add(each.line, "", each.why)
        sources = {line: was for line, field, was, _ in log.changed if field == "source"}
        for line, field, was, now in log.changed:
            if field != "source":
                changed.add(line, field, was, now)
        accepted = known = 0
        for chunk in _chunks(log, refused):
            filed = await self._transfers.filed(subject, [row.observed for row in chunk], role)
            for row, now_filed in zip(chunk, filed, strict=True):
                if now_filed is row.observed and row.observation.streams and row.line not in sources:
                    continue  # as most are
                for name, meant in row.said(sources.get(row.line)).items():
                    if getattr(now_filed, name) != meant:
                        changed.add(row.line, name, meant, getattr(now_filed, name))
            taken = await self._transfers.keep(subject, filed)
            accepted, known = accepted + taken.accepted, known + taken.known
        return LogTaken(
            accepted=accepted,
            known=known,
            kind=log.kind,
            refused=[Refusal(line=each.line, why=each.was) for each in refused.first()],
            changed=[Change(**each._asdict()) for each in changed.first()],
            lines_refused=refused.lines,
            lines_changed=changed.lines,
            lines_left_out=log.left_out,
        )


class Row(NamedTuple):
    """A transfer of a log: its line, what that says, and the same as if it had been reported."""

    line: int
    observation: Observation
    observed: Observed

    def said(self, source: str | None) -> dict[str, object]:
        """What the line says, by the names of what is kept.

        :param source: how the line calls it, if in another form
        """
        each = self.observation
        return {
            "source": source or each.source,
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


async def _receive(body: AsyncIterator[bytes], file: IO[bytes]) -> None:
    taken = 0
    async for piece in body:
        taken += len(piece)
        if taken > LARGEST_LOG:
            raise TooLarge(f"the log is longer than {LARGEST_LOG} bytes", "give it in parts")
        file.write(piece)
    file.flush()


def _chunks(log: "Log", refused: Notes) -> Iterator[list[Row]]:
    """The transfers of a log, in parts; `refused` gets what nobody could report."""
    seen, latest = Counter[tuple[object, ...]](), time.time() + AHEAD
    rows = list(zip(log.lines, log.observations, strict=True))
    for begin in range(0, len(rows), CHUNK):
        chunk = []
        for line, each in rows[begin : begin + CHUNK]:
            what = (each.source, each.sink, each.direction, each.start, each.end, each.bytes)
            seen[what] += 1  # two that are alike are two, and the same two when the log is sent again
            try:
                observed = _observed(each, (*what, seen[what]))
            except ValidationError as error:
                refused.add(line, "", _named(error))
                continue
            if observed.ended > latest:
                refused.add(line, "", f"a transfer from {each.source} ended in the future")
            elif "://" in each.sink and address(each.sink) is None:
                refused.add(line, "", f"sink: {each.sink!r} is no address of a server")
            else:
                chunk.append(Row(line, each, observed))
        yield chunk


def _observed(each: Observation, what: object) -> Observed:
    """As if it had been reported; what tells it from others makes its id.

    :raises ValidationError: when it cannot be kept as it is
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
    """The first that is wrong, with its name and its value."""
    first = error.errors(include_url=False)[0]
    if not first["loc"]:
        return why(first)
    return f"{first['loc'][0]}: {one_line(str(first['input']), LONGEST // 2)!r} cannot be kept: {why(first)}"
