"""Jobs that keep derived data, such as the sums of traffic, up to date with reported transfers."""

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
"""Seconds between checks of the database if this process receives no observations."""
REST = 4.0
"""Pause after each step, as a multiple of its duration, which leaves the database and the processor to requests."""
log = structlog.get_logger("broker.jobs")


class ObservationFollower:
    """A loop that repeats a step while there is work, and then waits for new observations.

    :param name: name in the log
    :param step: function that does a small part of the work, and returns whether there may be more work
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
            except Exception:  # otherwise an error would stop the loop silently
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
    """Addition of new transfers to the traffic sums; several processes may do it, each for other pairs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def step(self) -> bool:
        """Add some transfers to the sums; return whether there were new transfers."""
        async with self._database.read() as connection:  # checks first in a read transaction, which blocks no writer
            if not await TrafficStore(connection).lacks():
                return False
        return await self._roll()

    @retried
    async def _roll(self) -> bool:
        async with self._database.write() as connection:
            return await TrafficStore(connection).roll() > 0
