"""Asks the database whether a lease is still this worker's, before what cannot be taken back.

A worker that is stopped, or cut off from the database, is taken for dead, and its work is given to another. When it
goes on, it finds that out here: before it begins anything, if it was not heard of for a moment, and in any case before
a file gets its final name. Questions that come together are one.
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
PAUSE = 1.0
"""Seconds between questions while there is no answer."""
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

    def begin(self, worker: str) -> None:
        """Ask under this name from now on."""
        self._worker = worker
        self.heard()

    def heard(self) -> None:
        """Note that the database has just heard of this worker, and knew it."""
        self._heard = time.monotonic()

    async def fresh(self, work: Work) -> None:
        """Return when work may begin: at once, unless this worker was stopped, or cut off, in the meantime.

        :raises LeaseLost: when it may not
        """
        if time.monotonic() - self._heard > FRESH:
            await self.hold(work)

    async def hold(self, work: Work) -> None:
        """Return when the database says that a lease is ours; it is asked until it answers.

        :raises LeaseLost: when it is not
        """
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
        if not answer.result():
            raise LeaseLost(f"{work.source} is another worker's by now", "look at the log of the workers")

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
