"""How fast bytes may be moved: the rates of all collections that they come from or go to, under whichever name.

A rate is what the owner of a server wishes. So it holds for each file in the collection's folder: also where it is
used as a replica of a dataset, or through another collection at the same server.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

import structlog

from broker.errors import Unavailable
from broker.storage.collections import Limited
from broker.storage.database import Database, retried
from broker.storage.lanes import Lanes
from coalloc.api import Admission

__all__ = ["Limits", "Promises"]

AGAIN = 1.0
"""Seconds after which a database that cannot be used is asked again."""
log = structlog.get_logger("broker.tasks")


class Promises:
    """Promises of bytes that all workers make in the same rows.

    Here one is made after the other, when the time of the one before has come: so a process that dies, or stops what it
    was about to move, blocks a rate for a moment only. While the database cannot be used there is no leave.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turns: defaultdict[frozenset[str], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def wait(self, numbers: frozenset[str], size: int) -> None:
        """Until so many bytes may be moved that count for these collections."""
        async with self._turns[numbers]:
            await asyncio.sleep(await self._start(numbers, size))

    async def _start(self, numbers: frozenset[str], size: int) -> float:
        """In how many seconds they may be moved, once that can be promised."""
        while True:
            try:
                return await self._promise(numbers, size)
            except Unavailable as error:
                log.warning("the database cannot be used now", error=error.message)
                await asyncio.sleep(AGAIN)

    @retried
    async def _promise(self, numbers: frozenset[str], size: int) -> float:
        async with self._database.write() as connection:
            return await Lanes(connection).promise(numbers, size)


class Limits:
    """Those that a task may meet.

    :param limited: all collections that have a rate
    :param pair: the ids of those that are the task's
    """

    def __init__(self, promises: Promises, limited: Sequence[Limited], pair: Sequence[str]) -> None:
        self._promises = promises
        self._limited = limited
        self._pair = pair

    def __bool__(self) -> bool:
        """Whether there is any: of very many files URLs are not made for nothing."""
        return bool(self._limited)

    def of(self, *urls: str) -> Admission | None:
        """For bytes on their way from or to these, a second's worth at once; None where nothing limits them."""
        met = [each for each in self._limited if each.id in self._pair or each.has(urls)]
        if not met:
            return None
        slowest = min(each.rate for each in met)
        return Admission(max(1, int(slowest)), partial(self._promises.wait, frozenset(each.id for each in met)))

    def by_url(self, sources: Iterable[str], *sink: str) -> dict[str, Admission]:
        """For bytes from each of several sources, of those that meet any."""
        found = {url: self.of(url, *sink) for url in sources}
        return {url: admission for url, admission in found.items() if admission}
