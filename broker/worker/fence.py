"""A check that a lease still belongs to this worker, for use before steps that cannot be undone.

A worker that is stopped, or cut off from the database, counts as dead after a while, and another worker gets its work.
When it resumes, this check stops it: before it starts work, unless it had contact with the database recently, and
always before a file gets its final name. Concurrent checks share one query.

A worker measures its silence from the time when it sent the last message that the database accepted, by its own
monotonic clock. This is longer than the silence that others measure, so that it stops before it counts as dead.
"""

import asyncio
import time

import structlog

from broker.errors import BrokerError, Unavailable
from broker.models.tasks import Work
from broker.storage.database import Database
from broker.storage.work import WorkStore

__all__ = ["Fence", "LeaseLost"]

FRESH = 3.0
"""Seconds after contact with the database in which a worker may start work without a query."""
SILENT = 9.0
"""Seconds of silence after which a worker stops, some time before it counts as dead."""
PAUSE = 1.0
"""Seconds between queries while the database does not answer, or while the worker is silent."""
log = structlog.get_logger("broker.worker")


class LeaseLost(BrokerError):
    """A lease that this worker no longer has, because it was withdrawn, or another worker may have it."""


class Fence:
    """The check of one worker's leases."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._worker = ""
        self._last_contact = 0.0
        self._pending: dict[tuple[int, int], asyncio.Future[bool]] = {}
        self._turn = asyncio.Lock()

    def begin(self, worker: str, sent: float) -> None:
        """Set the worker's name for later checks.

        :param sent: time when the name was sent to the database (monotonic)
        """
        self._worker = worker
        self.contacted(sent)

    def contacted(self, sent: float) -> None:
        """Record that the database has accepted a message of this worker.

        :param sent: time when the message was sent (monotonic)
        """
        self._last_contact = sent

    @property
    def silent(self) -> bool:
        """Return whether this worker may soon count as dead."""
        return time.monotonic() - self._last_contact > SILENT

    async def check_if_silent(self, work: Work) -> None:
        """Check a lease if this worker has had no contact with the database for `FRESH` seconds.

        :raises LeaseLost: when this worker no longer has the lease
        """
        if time.monotonic() - self._last_contact > FRESH:
            await self.check(work)

    async def check(self, work: Work) -> None:
        """Wait until the database confirms that this worker has a lease, and will keep it for some seconds.

        :raises LeaseLost: when this worker no longer has the lease
        """
        while True:
            if not await self._is_held(work):
                raise LeaseLost(f"another worker has taken over {work.source}", "read the log of the workers")
            if not self.silent:
                return
            await asyncio.sleep(PAUSE)

    async def _is_held(self, work: Work) -> bool:
        """Return whether this worker has a lease, according to the database."""
        answer = self._pending.setdefault(work.lease, asyncio.get_running_loop().create_future())
        while not answer.done():
            async with self._turn:
                if answer.done():
                    break
                try:
                    await self._ask()
                except Unavailable as error:
                    log.warning("failed to check leases; trying again", error=error.message)
                    await asyncio.sleep(PAUSE)
        return answer.result()

    async def _ask(self) -> None:
        """Answer all waiting checks with one query."""
        pending, self._pending = self._pending, {}
        try:
            async with self._database.read() as connection:
                held = await WorkStore(connection).held(self._worker, list(pending))
        except BaseException:
            self._pending = {**self._pending, **pending}
            raise
        for lease, answer in pending.items():
            answer.set_result(lease in held)
