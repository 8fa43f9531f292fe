"""What is made of observations follows them: soon after they came, or when another process has taken them in."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from broker.errors import BrokerError

__all__ = ["Follower"]

LOOK = 2.0
"""Seconds between looks, where nobody tells of anything new."""
REST = 4.0
"""How many times as long as a step took others have the database, and the processor, while the broker is at work."""
log = structlog.get_logger("broker.tasks")


class Follower:
    """Takes one step after the other while there is something to do.

    :param name: for the log
    :param step: does some of it, in a moment; whether there may be more
    :param rest: how many times as long others have it then; 0 for steps that leave others their turns by themselves
    """

    def __init__(self, name: str, step: Callable[[], Awaitable[bool]], rest: float = REST) -> None:
        self._name = name
        self._step = step
        self._rest = rest
        self._news = asyncio.Event()

    def news(self) -> None:
        """There is something new."""
        self._news.set()

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            self._news.clear()
            try:
                await self._catch_up()
            except BrokerError as error:
                log.warning("cannot be followed at the moment", what=self._name, error=str(error))
            except Exception:  # else what follows would stand still unnoticed
                log.exception("cannot be followed at the moment", what=self._name)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._news.wait()

    async def _catch_up(self) -> None:
        """Take steps until there is nothing to do."""
        began = time.monotonic()
        while await self._step():
            await asyncio.sleep(self._rest * (time.monotonic() - began))
            began = time.monotonic()
