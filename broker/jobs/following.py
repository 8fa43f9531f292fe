"""Keeps data derived from observations current, soon after new ones arrive in this process or in another.

The sums of traffic are kept up to date with reported transfers.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from broker.errors import BrokerError
from broker.storage.database import Database, retried
from broker.storage.traffic import TrafficStore

__all__ = ["ObservationFollower", "Rolling"]

LOOK = 2.0
"""Seconds between looks at the database while no new observations are announced."""
REST = 4.0
"""Pause after each step, as a multiple of its duration, so that others get the database and the processor."""
log = structlog.get_logger("broker.jobs")


class ObservationFollower:
    """A loop that takes one step after the other while there is something to do.

    :param name: name in the log
    :param step: function that does a small part of the work, and returns whether there may be more
    :param rest: pause after a step, as a multiple of its duration; 0 for steps that pause by themselves
    """

    def __init__(self, name: str, step: Callable[[], Awaitable[bool]], rest: float = REST) -> None:
        self._name = name
        self._step = step
        self._rest = rest
        self._news = asyncio.Event()

    def news(self) -> None:
        """Wake the loop: there are new observations."""
        self._news.set()

    async def run(self) -> None:
        """Repeat until cancelled."""
        while True:
            self._news.clear()
            try:
                await self._catch_up()
            except BrokerError as error:
                log.warning("failed to process new transfers; trying again", what=self._name, error=str(error))
            except Exception:  # otherwise an error would stop it unnoticed
                log.exception("failed to process new transfers; trying again", what=self._name)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._news.wait()

    async def _catch_up(self) -> None:
        """Take steps until there is nothing to do."""
        began = time.monotonic()
        while await self._step():
            await asyncio.sleep(self._rest * (time.monotonic() - began))
            began = time.monotonic()


class Rolling:
    """Addition of new transfers to the sums. Any number of processes may do it: each takes pairs that no other has."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def step(self) -> bool:
        """Count some transfers; return whether there were any to count."""
        async with self._database.read() as connection:  # a read, which blocks no writer
            if not await TrafficStore(connection).lacks():
                return False
        return await self._roll()

    @retried
    async def _roll(self) -> bool:
        async with self._database.write() as connection:
            return await TrafficStore(connection).roll() > 0
