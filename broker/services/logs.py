"""What other programs logged, taken as reports: of any size that fits into the memory, and packed or not."""

import asyncio
import hashlib
import re
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from broker.errors import Invalid, TooLarge
from broker.models.access import Role
from broker.models.history import LogTaken, Observed, Refusal
from broker.services.history import AHEAD, Transfers
from coalloc.api import read_log
from coalloc.errors import CoallocError, TooMuch
from predictors.observation import Observation

__all__ = ["LARGEST_LOG", "Logs"]

LARGEST_LOG = 128 << 20
"""Bytes of a log once it is unpacked, a line counted as 256 at least: half a million transfers."""
CHUNK = 10_000
"""Transfers in one transaction."""
SHOWN = 100
"""Refused lines that are told."""


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
                refused = [Refusal(line=each.line, why=each.why) for each in log.refused[:SHOWN]]
                accepted = known = 0
                for chunk in _chunks(log.observations, refused):
                    taken = await self._transfers.take(subject, chunk, role)
                    accepted, known = accepted + taken.accepted, known + taken.known
        return LogTaken(accepted=accepted, known=known, kind=log.kind, refused=refused[:SHOWN])


async def _receive(body: AsyncIterator[bytes], file: IO[bytes]) -> None:
    taken = 0
    async for piece in body:
        taken += len(piece)
        if taken > LARGEST_LOG:
            raise TooLarge(f"the log is longer than {LARGEST_LOG} bytes", "give it in parts")
        file.write(piece)
    file.flush()


def _chunks(observations: list[Observation], refused: list[Refusal]) -> Iterator[list[Observed]]:
    """As if they had been reported, in parts; `refused` gets what nobody could report."""
    seen, latest = Counter[tuple[object, ...]](), time.time() + AHEAD
    for begin in range(0, len(observations), CHUNK):
        chunk = []
        for each in observations[begin : begin + CHUNK]:
            what = (each.source, each.sink, each.direction, each.start, each.end, each.bytes)
            seen[what] += 1  # two that are alike are two, and the same two when the log is sent again
            try:
                observed = _observed(each, (*what, seen[what]))
            except ValidationError as error:
                refused.append(Refusal(line=0, why=f"{what}: {error.errors()[0]['msg']}"[:300]))
                continue
            if observed.ended > latest:
                refused.append(Refusal(line=0, why=f"a transfer from {each.source} ended in the future"))
                continue
            chunk.append(observed)
        yield chunk


def _observed(each: Observation, what: object) -> Observed:
    """As if it had been reported; what tells it from others makes its id."""
    return Observed(
        id="log-" + hashlib.sha256(repr(what).encode()).hexdigest()[:40],
        source=each.source,
        sink=re.sub(r"[^A-Za-z0-9_.-]", "-", each.sink)[:64].lstrip(".-"),
        direction=each.direction,
        started=each.start,
        ended=each.end,
        bytes=each.bytes,
        busy_seconds=each.busy_seconds,
        setup_seconds=each.setup_seconds,
        ranges=each.ranges,
        streams=max(1, each.streams),
        concurrency=each.concurrency,
        file_class=re.sub(r"[^A-Za-z0-9_.+-]", "", each.file_class)[:64],
        outcome=each.outcome,
    )
