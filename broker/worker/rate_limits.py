"""Rate limits for bytes, in force for all access to a collection's directory.

A collection's rate protects its server. So it also applies to a file in this directory that is read as a replica of a
dataset, or through another collection at the same server.
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
"""Seconds between attempts while the database is unavailable."""
log = structlog.get_logger("broker.worker")


class RateReservations:
    """Reservations of bytes under rates, which all workers share through the database.

    A process makes each reservation only after the wait for the previous one. So a process that dies, or stops a
    copy, blocks a rate only for a moment. While the database is unavailable, no bytes may be moved.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turns: defaultdict[frozenset[str], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def wait(self, numbers: frozenset[str], size: int) -> None:
        """Wait until `size` bytes may be moved under the rates of these collections."""
        async with self._turns[numbers]:
            await asyncio.sleep(await self._start(numbers, size))

    async def _start(self, numbers: frozenset[str], size: int) -> float:
        """Return the seconds until the bytes may be moved; retry while the database is unavailable."""
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
    """The rate limits that apply to a task.

    :param limited: all collections with a rate
    :param pair: ids of the task's collections
    """

    def __init__(self, reservations: RateReservations, limited: Sequence[Limited], pair: Sequence[str]) -> None:
        self._reservations = reservations
        self._limited = limited
        self._pair = pair

    def __bool__(self) -> bool:
        """Return whether any collection has a rate; if none has, the caller need not build the URLs of its files."""
        return bool(self._limited)

    def of(self, *urls: str) -> Admission | None:
        """Return the admission for bytes from or to these URLs, one second's bytes at a time; None without a limit."""
        met = [each for each in self._limited if each.id in self._pair or each.has(urls)]
        if not met:
            return None
        slowest = min(each.rate for each in met)
        return Admission(max(1, int(slowest)), partial(self._reservations.wait, frozenset(each.id for each in met)))

    def by_url(self, sources: Iterable[str], *sink: str) -> dict[str, Admission]:
        """Return the admissions of the sources that have a limit, by URL."""
        found = {url: self.of(url, *sink) for url in sources}
        return {url: admission for url, admission in found.items() if admission}
