"""Rate limits for bytes, in force for all access to a collection's directory.

A collection's rate protects its server. So it also applies to a file in this directory that is read as a replica of a
dataset, or through another collection at the same server. On a link on which others have promises, a lane uses only
what these leave.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf

import structlog

from broker.errors import Invalid, Unavailable
from broker.services.network.places import server_address
from broker.storage.collections import Limited
from broker.storage.database import Database, retried
from broker.storage.lanes import LaneStore
from coalloc.api import Admission

__all__ = ["LinkTurns", "RateLimits", "RateReservations"]

AGAIN = 1.0
"""Seconds between attempts while the database is unavailable."""
LOOK = 5.0
"""Seconds between looks at what is promised to others."""
UNLIMITED = 64 << 20
"""Bytes that are admitted at once on a link that has no limit now."""
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


class LinkTurns:
    """The turns of one lane on a link on which others have promises.

    :param rate: bytes per second that the lane may use
    :param look: returns the present rates by source; a link without an entry has no limit any more
    """

    def __init__(self, source: str, rate: float, look: Callable[[], Awaitable[Mapping[str, float]]]) -> None:
        self.rate = rate
        self._source = source
        self._look = look
        self._turn = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._looked = self._free_at = self._loop.time()

    async def wait(self, size: int) -> None:
        """Wait until `size` bytes may be moved."""
        async with self._turn:
            if self._loop.time() - self._looked >= LOOK:
                await self._renew()
            begin = max(self._loop.time(), self._free_at)
            self._free_at = begin + size / self.rate
            await asyncio.sleep(begin - self._loop.time())

    async def _renew(self) -> None:
        self._looked = self._loop.time()
        try:
            self.rate = (await self._look()).get(self._source, inf)
        except Unavailable as error:
            log.warning("the database cannot be used now", error=error.message)


class RateLimits:
    """The rate limits that apply to a task.

    :param limited: all collections with a rate
    :param pair: ids of the task's collections
    :param turns: the links on which others have promises, by source
    """

    def __init__(
        self,
        reservations: RateReservations,
        limited: Sequence[Limited],
        pair: Sequence[str],
        turns: Mapping[str, LinkTurns],
    ) -> None:
        self._reservations = reservations
        self._limited = limited
        self._pair = pair
        self._turns = turns

    def __bool__(self) -> bool:
        """Return whether there is any limit; if there is none, the caller need not build the URLs of its files."""
        return bool(self._limited or self._turns)

    def of(self, source: str, *sink: str) -> Admission | None:
        """Return the admission for bytes between these URLs, one second's bytes at a time; None without a limit."""
        met = [each for each in self._limited if each.id in self._pair or each.has((source, *sink))]
        found = [(min(each.rate for each in met), self._reserved(met))] if met else []
        if turns := self._turns_of(source):
            found.append((turns.rate, turns.wait))
        if not found:
            return None
        rate = min(rate for rate, _ in found)
        piece = UNLIMITED if rate == inf else max(1, int(rate))  # a promise that has ended may be followed by another
        return Admission(piece, partial(_wait, [wait for _, wait in found]))

    def _turns_of(self, source: str) -> LinkTurns | None:
        try:
            return self._turns.get(server_address(source)) if self._turns else None
        except Invalid:  # it has no server
            return None

    def _reserved(self, met: Sequence[Limited]) -> Callable[[int], Awaitable[None]]:
        return partial(self._reservations.wait, frozenset(each.id for each in met))

    def by_url(self, sources: Iterable[str], *sink: str) -> dict[str, Admission]:
        """Return the admissions of the sources that have a limit, by URL."""
        found = {url: self.of(url, *sink) for url in sources}
        return {url: admission for url, admission in found.items() if admission}


async def _wait(waits: Sequence[Callable[[int], Awaitable[None]]], size: int) -> None:
    for wait in waits:
        await wait(size)
