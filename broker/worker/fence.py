"""A check that a lease still belongs to this worker, made before steps that cannot be undone.

A worker that is stopped, or cut off from the database, is taken for dead, and another worker gets its work. When it
resumes, this check tells it so: before it begins any work, unless the database has heard of it a moment ago, and always
before a file gets its final name. Checks that arrive together share one query.

A worker's silence is counted from the moment when it sent the last message that the database accepted, by its own
monotonic clock. This is longer than the silence that others see, so a worker stops before others take it for dead.
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
"""Seconds after contact with the database during which a worker may begin work without a query."""
SILENT = 9.0
"""Seconds of silence after which a worker stops; the time until others take it for dead is left for stopping."""
PAUSE = 1.0
"""Seconds between queries while the database does not answer, or while the worker is silent."""
log = structlog.get_logger("broker.worker")


class LeaseLost(BrokerError):
    """A lease that is no longer this worker's: another worker may do the work, or it was withdrawn."""


class Fence:
    """The check of one worker's leases."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._worker = ""
        self._last_contact = 0.0
        self._pending: dict[tuple[int, int], asyncio.Future[bool]] = {}
        self._turn = asyncio.Lock()

    def begin(self, worker: str, sent: float) -> None:
        """Set the worker's name for all checks from now on.

        :param sent: time when the name was sent to the database, by the monotonic clock
        """
        self._worker = worker
        self.contacted(sent)

    def contacted(self, sent: float) -> None:
        """Note that the database has accepted a message of this worker.

        :param sent: time when that message was sent, by the monotonic clock
        """
        self._last_contact = sent

    @property
    def silent(self) -> bool:
        """Return whether other workers may soon take this worker for dead."""
        return time.monotonic() - self._last_contact > SILENT

    async def check_if_silent(self, work: Work) -> None:
        """Wait until work may begin: not at all, unless this worker was stopped or cut off in the meantime.

        :raises LeaseLost: when the lease is no longer this worker's
        """
        if time.monotonic() - self._last_contact > FRESH:
            await self.check(work)

    async def check(self, work: Work) -> None:
        """Wait until a lease is certain to be this worker's for the next seconds; ask the database until it answers.

        :raises LeaseLost: when it is not
        """
        while True:
            if not await self._is_held(work):
                raise LeaseLost(f"another worker has taken over {work.source}", "see the log of the workers")
            if not self.silent:
                return
            await asyncio.sleep(PAUSE)

    async def _is_held(self, work: Work) -> bool:
        """Return whether the database holds a lease as this worker's."""
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
