"""Rate limits for bytes: the rates of all collections that the bytes come from or go to, under whichever name.

The owner of a server sets a rate. So it holds for each file in the collection's folder, also where the file is used as
a replica of a dataset, or through another collection at the same server.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

import structlog

from broker.errors import Unavailable
from broker.storage.collections import Limited
from broker.storage.database import Database, retried
from broker.storage.lanes import LaneStore
from coalloc.api import Admission

__all__ = ["RateLimits", "RateReservations"]

AGAIN = 1.0
"""Seconds between attempts while the database cannot be used."""
log = structlog.get_logger("broker.worker")


class RateReservations:
    """Reservations of bytes against rates, shared by all workers through the same database rows.

    In this process, each reservation is made only when the time of the one before has come. So a process that dies, or
    stops a copy, blocks a rate only for a moment. While the database cannot be used, no bytes are granted.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turns: defaultdict[frozenset[str], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def wait(self, numbers: frozenset[str], size: int) -> None:
        """Wait until so many bytes may be moved under the rates of these collections."""
        async with self._turns[numbers]:
            await asyncio.sleep(await self._start(numbers, size))

    async def _start(self, numbers: frozenset[str], size: int) -> float:
        """Return in how many seconds the bytes may be moved; wait until the database answers."""
        while True:
            try:
                return await self._promise(numbers, size)
            except Unavailable as error:
                log.warning("the database cannot be used now", error=error.message)
                await asyncio.sleep(AGAIN)

    @retried
    async def _promise(self, numbers: frozenset[str], size: int) -> float:
        async with self._database.write() as connection:
            return await LaneStore(connection).reserve(numbers, size)


class RateLimits:
    """The rate limits that a task may meet.

    :param limited: all collections that have a rate
    :param pair: ids of the task's collections
    """

    def __init__(self, reservations: RateReservations, limited: Sequence[Limited], pair: Sequence[str]) -> None:
        self._reservations = reservations
        self._limited = limited
        self._pair = pair

    def __bool__(self) -> bool:
        """Return whether any collection has a rate; if none has, no URLs need to be made for a great many files."""
        return bool(self._limited)

    def of(self, *urls: str) -> Admission | None:
        """Return the admission for bytes from or to these URLs, a second's worth at once; None without a limit."""
        met = [each for each in self._limited if each.id in self._pair or each.has(urls)]
        if not met:
            return None
        slowest = min(each.rate for each in met)
        return Admission(max(1, int(slowest)), partial(self._reservations.wait, frozenset(each.id for each in met)))

    def by_url(self, sources: Iterable[str], *sink: str) -> dict[str, Admission]:
        """Return the admission of each source whose bytes are limited, by URL."""
        found = {url: self.of(url, *sink) for url in sources}
        return {url: admission for url, admission in found.items() if admission}
