"""How fast bytes may be moved: the rates of all collections that they come from or go to, under whichever name.

A rate is what the owner of a server wishes. So it holds for each file in the collection's folder: also where it is
used as a replica of a dataset, or through another collection at the same server. All workers promise bytes in the same
rows; nobody is promised more than a second's worth for each range that is under way, so that nobody who is gone blocks
others for long.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from functools import partial

from broker.storage.collections import Limited
from broker.storage.database import Database, retried
from broker.storage.lanes import Lanes
from coalloc.api import Admission

__all__ = ["Limits"]


class Limits:
    """Those that a task may meet.

    :param limited: all collections that have a rate
    :param pair: the ids of those that are the task's
    """

    def __init__(self, database: Database, limited: Iterable[Limited], pair: Sequence[str]) -> None:
        self._database = database
        self._limited = list(limited)
        self._pair = pair

    def of(self, *urls: str) -> Admission | None:
        """For bytes on their way from or to these; None where nothing limits them. They count for all that do."""
        met = [each for each in self._limited if each.id in self._pair or each.has(urls)]
        if not met:
            return None
        return Admission(max(1, int(min(each.rate for each in met))), partial(self._wait, {each.id for each in met}))

    def by_url(self, sources: Iterable[str], *sink: str) -> dict[str, Admission]:
        """For bytes from each of several sources, of those that meet any."""
        found = {url: self.of(url, *sink) for url in sources}
        return {url: admission for url, admission in found.items() if admission}

    async def _wait(self, numbers: set[str], size: int) -> None:
        await asyncio.sleep(max(0.0, await self._promise(numbers, size) - time.time()))

    @retried
    async def _promise(self, numbers: set[str], size: int) -> float:
        async with self._database.write() as connection:
            return await Lanes(connection).promise(numbers, size, time.time())
