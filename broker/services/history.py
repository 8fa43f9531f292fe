"""What transfers achieved: reports are taken in once, and what they say is what was kept."""

import asyncio
import hashlib
import logging
import re
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from broker.errors import BrokerError, Invalid
from broker.models.history import Ingested, LogTaken, Observed, Refusal, TransferRecord
from broker.services.forecasting import Forecasting
from broker.services.places import Places
from broker.storage.database import Database
from broker.storage.history import History
from broker.storage.months import Months
from coalloc.api import read_log
from coalloc.errors import CoallocError
from predictors.observation import Observation

__all__ = ["Reports"]

log = logging.getLogger(__name__)

CHUNK = 10_000
"""Transfers of a log in one transaction."""
PAGE = 5000
SHOWN = 100
"""Refused lines that are told."""
DAY = 86_400.0
FORGET = 6 * 3600.0
"""Seconds between looks for what is too old."""
AHEAD = 3600.0
"""Seconds that a reporter's clock may be ahead of ours."""


class Reports:
    """The history of transfers."""

    def __init__(self, database: Database, places: Places, forecasting: Forecasting) -> None:
        self._database = database
        self._places = places
        self._forecasting = forecasting
        self._months = Months()

    async def take(self, subject: str, observed: Sequence[Observed]) -> Ingested:
        """Keep all that this subject has not reported before; when this returns they are kept.

        :raises Invalid: when one ended later than now, or names an endpoint that there is not
        """
        latest = time.time() + AHEAD
        for i, each in enumerate(observed):
            if each.ended > latest:
                raise Invalid(
                    f"transfer {i} ({each.id}) ended in the future, at {each.ended}",
                    "give seconds since the epoch, and look at your clock",
                )
        sources = await self._places.sources({each.source for each in observed})
        named = [
            each if sources[each.source] == each.source else each.model_copy(update={"source": sources[each.source]})
            for each in observed
        ]
        await self._have_months(named)
        async with self._database.write() as connection:
            accepted = await History(connection).add(subject, named)
        self._forecasting.news()
        return Ingested(accepted=accepted, known=len(observed) - accepted)

    async def take_log(self, subject: str, body: AsyncIterator[bytes]) -> LogTaken:
        """Keep the transfers of another program's log; those of the same log sent again are known.

        :raises Invalid: when it is no log that is known
        """
        with tempfile.NamedTemporaryFile(prefix="coget-log-") as file:
            async for piece in body:
                file.write(piece)
            file.flush()
            try:
                log = await asyncio.to_thread(read_log, Path(file.name))
            except CoallocError as error:
                raise Invalid(error.message.replace(file.name, "the log"), error.remedy) from None
        accepted = 0
        for begin in range(0, len(log.observations), CHUNK):
            part = [_observed(each) for each in log.observations[begin : begin + CHUNK]]
            accepted += (await self.take(subject, part)).accepted
        refused = [Refusal(line=each.line, why=each.why) for each in log.refused[:SHOWN]]
        known = len(log.observations) - accepted
        return LogTaken(accepted=accepted, known=known, kind=log.kind, refused=refused)

    async def forget(self, before: float) -> int:
        """Forget what ended before a moment, on PostgreSQL in whole months; how many transfers, or months."""
        async with self._database.write() as connection:
            history = History(connection)
            await history.forget_keys(before)
            if self._database.sqlite:
                return await history.forget(before)
            return await self._months.drop_before(connection, before)

    async def keep_forgetting(self, days: float) -> None:
        """Forget what is older than this, now and then, until cancelled."""
        while True:
            try:
                if count := await self.forget(time.time() - days * DAY):
                    log.info("forgotten: %d %s", count, "transfers" if self._database.sqlite else "months")
            except BrokerError as error:
                log.warning("nothing could be forgotten: %s", error)
            await asyncio.sleep(FORGET)

    async def _have_months(self, observed: Sequence[Observed]) -> None:
        """In a transaction of its own: it locks the table, for a moment."""
        if self._database.sqlite or not (lacking := self._months.lacking(each.ended for each in observed)):
            return
        async with self._database.write() as connection:
            await self._months.make(connection, lacking)
        self._months.made(lacking)

    async def pages(self, wanted: Mapping[str, Any]) -> AsyncIterator[list[TransferRecord]]:
        """All that is wanted, in parts, the newest report first."""
        before = None
        while page := await self.listed(wanted, before, PAGE):
            yield page
            before = page[-1].id

    async def listed(self, wanted: Mapping[str, Any], before: int | None, limit: int) -> list[TransferRecord]:
        """The newest report first."""
        if wanted.get("source") is not None:
            wanted = {**wanted, "source": (await self._places.sources({wanted["source"]}))[wanted["source"]]}
        async with self._database.read() as connection:
            return await History(connection).listed(wanted, before, limit)


def _observed(each: Observation) -> Observed:
    """As if it had been reported; the same transfer gets the same id each time."""
    what = (each.source, each.sink, each.direction, each.start, each.end, each.bytes)
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
