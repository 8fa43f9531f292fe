"""The import of other programs' logs, compressed or not, as reports of transfers.

The response lists each line that was refused, and each value that was stored in another form.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from typing import IO

from broker.errors import TooLarge, TooManyRequests
from broker.models.callers import Role
from broker.models.history import LineRefusal, LogChange, LogTaken, Observed
from broker.services.forecasting.history import AHEAD, Transfers
from broker.services.uploaded_files import Notes, Row, unpack
from broker.subprocesses import JobKind, SeparateProcess, Turns, frames

__all__ = ["LARGEST_LOG", "Logs"]

LARGEST_LOG = 64 << 20
"""Most bytes of a decompressed log. Each line counts as at least 256 bytes, so that a log has at most 262,144 lines."""
READING = JobKind("the log", "split it into parts")


class Logs:
    """The import of logs, one at a time for each user.

    :param apart: subprocess that parses logs, since a whole log is in memory
    :param large: turns for storing transfers
    """

    def __init__(self, transfers: Transfers, apart: SeparateProcess, large: Turns) -> None:
        self._transfers = transfers
        self._apart = apart
        self._large = large
        self._taking: set[str] = set()

    async def take(self, subject: str, body: AsyncIterator[bytes], role: Role = "reader") -> LogTaken:
        """Store the transfers of another program's log; a repeated import has no effect.

        :raises Invalid: when the format of the log is unknown
        :raises TooLarge: when the log is longer than `LARGEST_LOG`
        :raises TooManyRequests: when another log of this user is being imported
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
    """Record the values whose stored form differs from the line."""
    for row, stored in zip(rows, filed, strict=True):
        if stored is row.observed and row.observation.streams and row.written is None:
            continue  # the usual case: unchanged
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
