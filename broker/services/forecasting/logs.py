"""Logs of other programs, taken in as reports: of any size that fits into memory, compressed or not.

Nothing is changed silently. What is stored is what the line says; otherwise the answer lists the line, as refused or as
stored in another form.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from typing import IO

from broker.errors import TooLarge, TooManyRequests
from broker.models.access import Role
from broker.models.history import LineRefusal, LogChange, LogTaken, Observed
from broker.services.forecasting.history import AHEAD, Transfers
from broker.services.uploaded_files import Notes, Row, unpack
from broker.subprocesses import JobKind, SeparateProcess, Turns, frames

__all__ = ["LARGEST_LOG", "Logs"]

LARGEST_LOG = 64 << 20
"""Most bytes of a log after decompression; each line counts as at least 256: a quarter of a million transfers."""
READING = JobKind("the log", "split it into parts")


class Logs:
    """The intake of logs, one at a time for each user.

    :param apart: processes in which logs are read, as a whole log is held in memory
    :param large: turns in which transfers are stored
    """

    def __init__(self, transfers: Transfers, apart: SeparateProcess, large: Turns) -> None:
        self._transfers = transfers
        self._apart = apart
        self._large = large
        self._taking: set[str] = set()

    async def take(self, subject: str, body: AsyncIterator[bytes], role: Role = "reader") -> LogTaken:
        """Store the transfers of another program's log; if the same log is sent again, they are known.

        :raises Invalid: when the kind of log is not known
        :raises TooLarge: when it is longer than `LARGEST_LOG`
        :raises TooManyRequests: when another log of this user is being read
        """
        if subject in self._taking:
            raise self._large.refusal(TooManyRequests("another log of yours is being read", "wait for its end", 5))
        self._taking.add(subject)
        try:
            return await self._take(subject, body, role)
        finally:
            self._taking.remove(subject)

    async def _take(self, subject: str, body: AsyncIterator[bytes], role: Role) -> LogTaken:
        if role != "admin":
            self._large.admit(subject, "logs")
        with (
            tempfile.NamedTemporaryFile(prefix="coget-log-") as file,
            tempfile.NamedTemporaryFile(prefix="coget-log-") as target,
        ):
            await _receive(body, file)
            words = (file.name, LARGEST_LOG, time.time() + AHEAD, target.name)
            log = await self._apart.run(READING, subject, unpack, *words)
            accepted = known = 0
            chunks = frames(target)
            while (rows := await asyncio.to_thread(next, chunks, None)) is not None:
                async with self._large.turn(subject, "logs", admitted=True):
                    filed = await self._transfers.filed(subject, [row.observed for row in rows], role)
                    _compare(rows, filed, log.changed)
                    taken = await self._transfers.keep(subject, filed)
                accepted, known = accepted + taken.accepted, known + taken.known
        return LogTaken(
            accepted=accepted,
            known=known,
            kind=log.kind,
            refused=[LineRefusal(line=each.line, why=each.was) for each in log.refused.first()],
            changed=[LogChange(**each._asdict()) for each in log.changed.first()],
            lines_refused=log.refused.lines,
            lines_changed=log.changed.lines,
            lines_left_out=log.left_out,
        )


def _compare(rows: Sequence[Row], filed: Sequence[Observed], changed: Notes) -> None:
    """Note the values that are stored in another form than their lines have."""
    for row, stored in zip(rows, filed, strict=True):
        if stored is row.observed and row.observation.streams and row.written is None:
            continue  # the usual case: nothing was changed
        for name, meant in row.values().items():
            if getattr(stored, name) != meant:
                changed.add(row.line, name, meant, getattr(stored, name))


async def _receive(body: AsyncIterator[bytes], file: IO[bytes]) -> None:
    taken = 0
    async for piece in body:
        taken += len(piece)
        if taken > LARGEST_LOG:
            raise TooLarge(f"the log is longer than {LARGEST_LOG} bytes", "split it into parts")
        await asyncio.to_thread(file.write, piece)
    file.flush()
