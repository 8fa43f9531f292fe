"""Asks the database whether a lease is still this worker's, before what cannot be taken back.

A worker that is stopped, or cut off from the database, is taken for dead, and its work is given to another. When it
goes on, it finds that out here: before it begins anything, if it was not heard of for a moment, and in any case before
a file gets its final name. Questions that come together are one.

A worker counts as silent for longer than it is: from when it sent what the database then accepted, by its own clock
that nobody sets. So it knows that it is silent before others take it for dead.
"""

import asyncio
import time

import structlog

from broker.errors import BrokerError, Unavailable
from broker.models.tasks import Work
from broker.storage.database import Database
from broker.storage.work import Works

__all__ = ["Fence", "LeaseLost"]

FRESH = 3.0
"""Seconds for which a worker that the database has heard of may begin work without asking."""
SILENT = 9.0
"""Seconds of silence after which a worker stops; the rest until others take it for dead is for stopping."""
PAUSE = 1.0
"""Seconds between questions while there is no answer, or while the worker is silent."""
log = structlog.get_logger("broker.tasks")


class LeaseLost(BrokerError):
    """A lease that is no longer this worker's: another may do the work, or nobody is to."""


class Fence:
    """What the leases of one worker are good for."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._worker = ""
        self._heard = 0.0
        self._asked: dict[tuple[int, int], asyncio.Future[bool]] = {}
        self._turn = asyncio.Lock()

    def begin(self, worker: str, sent: float) -> None:
        """Ask under this name from now on; it was said to the database at a moment of the monotonic clock."""
        self._worker = worker
        self.heard(sent)

    def heard(self, sent: float) -> None:
        """Note that the database knew this worker when it heard of it, not before a moment of the monotonic clock."""
        self._heard = sent

    @property
    def silent(self) -> bool:
        """Whether others may soon take this worker for dead."""
        return time.monotonic() - self._heard > SILENT

    async def fresh(self, work: Work) -> None:
        """Return when work may begin: at once, unless this worker was stopped, or cut off, in the meantime.

        :raises LeaseLost: when it may not
        """
        if time.monotonic() - self._heard > FRESH:
            await self.hold(work)

    async def hold(self, work: Work) -> None:
        """Return when a lease is ours, and will not be another's for the next seconds; it is asked until that is known.

        :raises LeaseLost: when it is not
        """
        while True:
            if not await self._is_held(work):
                raise LeaseLost(f"{work.source} is another worker's by now", "look at the log of the workers")
            if not self.silent:
                return
            await asyncio.sleep(PAUSE)

    async def _is_held(self, work: Work) -> bool:
        """Whether the database says that a lease is ours."""
        answer = self._asked.setdefault(work.lease, asyncio.get_running_loop().create_future())
        while not answer.done():
            async with self._turn:
                if answer.done():
                    break
                try:
                    await self._ask()
                except Unavailable as error:
                    log.warning("leases cannot be asked about now", error=error.message)
                    await asyncio.sleep(PAUSE)
        return answer.result()

    async def _ask(self) -> None:
        """Ask about all that is asked for."""
        asked, self._asked = self._asked, {}
        try:
            async with self._database.read() as connection:
                held = await Works(connection).held(self._worker, list(asked))
        except BaseException:
            self._asked = {**self._asked, **asked}
            raise
        for lease, answer in asked.items():
            answer.set_result(lease in held)
