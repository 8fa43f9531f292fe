"""The sources of a transfer: connecting them, their first answers, and later checks that their replicas are unchanged.

`runner` fetches from them.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from coalloc.engine.base import Source
from coalloc.errors import NoFreeConnection, ReplicaChanged, ServerBusy, SourceError, Stalled
from coalloc.model.replicas import Stat
from coalloc.safe_text import redact
from coalloc.schedule.pauses import TRIES, pause_seconds

__all__ = ["Agree", "SourceConnections", "stop"]

Agree = Callable[[int, Stat], None]
"""`agree(source, stat)`: raise a SourceError if this replica is of another file, or any other error to stop all."""

ANSWER = 0.5
"""Minimum seconds allowed for each source's first answer, even if all bytes have arrived already."""
SLOWER = 2.0
"""Factor by which a first answer may then be slower than the slowest answer so far, if that is longer than `ANSWER`."""
ROOM = 0.1
"""Seconds between checks, at the end, for others that wait for the connection of a source without work."""


class SourceConnections:
    """The connections of all sources.

    :param sources: one per replica; they are opened and closed here
    :param agree: called for each replica before a byte of it is used
    :param seed: seed of the random pauses, so that they differ from transfer to transfer
    :param tries: number of requests to a busy server, after which it is not asked again
    :ivar in_use: by source, the lock of the task that uses it: a source is used by one task at a time
    :ivar errors: the last error of each source that had one
    :ivar requested_at: time of the first request to each source that was asked
    """

    def __init__(self, sources: Sequence[Source], agree: Agree, seed: int = 0, tries: int = TRIES) -> None:
        self.sources = sources
        self.agree = agree
        self.in_use = [asyncio.Lock() for _ in sources]
        self.errors: dict[int, SourceError] = {}
        self.requested_at: dict[int, float] = {}
        self._chance = Random(seed)
        self._tries = tries
        self._loop = asyncio.get_running_loop()
        self._opening: dict[int, asyncio.Task[Stat]] = {}
        self._used: set[int] = set()
        """Sources from which bytes were requested."""
        self._confirmed: set[int] = set()
        """Sources found unchanged, from which no bytes were requested since."""
        self._slowest = 0.0

    @property
    def connected(self) -> tuple[int, ...]:
        """The sources being connected, or connected, before the scheduler has requested any connection."""
        return tuple(self._opening)

    @property
    def patience(self) -> float:
        """The seconds after its request in which a source should answer."""
        return max(ANSWER, SLOWER * self._slowest)

    async def connect(self, most: int, sources: Iterable[int]) -> bool:
        """Connect to `most` of these sources at once, then to others if some fail, until one has the agreed file.

        :returns: whether a source has it; if not, `errors` has the reasons
        """
        places = asyncio.Semaphore(most)
        pending = {self._loop.create_task(self._answers(source, places)) for source in sources}
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                if True in [task.result() for task in done]:
                    return True
            return False
        finally:
            await stop(pending)

    async def _answers(self, source: int, places: asyncio.Semaphore) -> bool:
        """Return whether a source answers with the agreed file. It takes one of `places`, and then keeps it.

        If the server is busy, or has no free connection for this process, the place is released, and the source is
        asked again.
        """
        refusals = 0
        while True:
            await places.acquire()
            try:
                self.agree(source, await asyncio.shield(self.open(source)))  # shielded, as it may be needed later
                return True
            except SourceError as error:
                places.release()
                self.errors[source] = error
                await self.sources[source].close()
                refusals += isinstance(error, ServerBusy)
                if not await self._wait_out(error, refusals):
                    return False
            del self._opening[source]

    async def _wait_out(self, error: SourceError, refusals: int) -> bool:
        """Wait until the source can be asked again; return False if that is useless, as after too many refusals."""
        match error:
            case NoFreeConnection():
                await error.until_free()
            case ServerBusy() if refusals < self._tries:
                await asyncio.sleep(pause_seconds(refusals, error.retry_after, self._chance))
            case _:
                return False
        return True

    def open(self, source: int) -> asyncio.Task[Stat]:
        """Return the task that connects a source, started if it is not running."""
        if source not in self._opening:
            self._opening[source] = self._loop.create_task(self._ask(source))
        return self._opening[source]

    def forget(self, source: int) -> asyncio.Task[Stat] | None:
        """Return the task that connects a source, if there is one; the next call of `open` starts another one."""
        return self._opening.pop(source, None)

    async def _ask(self, source: int) -> Stat:
        began = self._loop.time()
        self.requested_at.setdefault(source, began)
        stat = await self.sources[source].open()
        self._slowest = max(self._slowest, self._loop.time() - began)
        return stat

    async def await_answers(self, sources: Iterable[int]) -> None:
        """Wait briefly for the first answers of these sources, and check each with `agree`."""
        opening = {source: self.open(source) for source in sources}
        if opening:
            await asyncio.wait(opening.values(), timeout=self.patience)
        for source, task in opening.items():
            if task.done():
                try:
                    self.agree(source, await task)
                except SourceError as error:
                    self.errors[source] = error

    def note_fetch(self, source: int) -> None:
        """Record that bytes are requested from a source, so that its replica must be checked again."""
        self._used.add(source)
        self._confirmed.discard(source)

    def is_unconfirmed(self, source: int) -> bool:
        """Return whether bytes were requested from a source since its replica was last found unchanged."""
        return source in self._used - self._confirmed

    async def confirm(self, source: int) -> None:
        """Check whether a source's replica is unchanged; a source that does not answer is asked again at the end."""
        try:
            if stat := await self.sources[source].recheck():
                self.agree(source, stat)
            self._confirmed.add(source)
        except SourceError as error:
            self.errors[source] = error

    async def recheck(self, sources: Iterable[int], seconds: float | None = None) -> dict[int, SourceError]:
        """Ask these sources, all at once, whether their replicas are unchanged.

        :param seconds: time limit for their answers; None for no other limit than that of a connection
        :returns: the errors of sources whose replicas changed, or that cannot be asked
        """
        sources = list(sources)
        making_room = self._loop.create_task(self._make_room())
        try:
            errors = await asyncio.gather(*(self._rechecked_within(source, seconds) for source in sources))
        finally:
            await stop([making_room])
        found = {source: error for source, error in zip(sources, errors, strict=True) if error}
        self.errors |= found
        return found

    async def _rechecked_within(self, source: int, seconds: float | None) -> SourceError | None:
        try:
            async with asyncio.timeout(seconds):
                return await self._recheck(source)
        except TimeoutError:
            silent = Stalled(f"{redact(self.sources[source].url)} did not answer again", "try again later")
            return self.errors.get(source, silent)

    async def _recheck(self, source: int) -> SourceError | None:
        if isinstance(known := self.errors.get(source), ReplicaChanged):
            return known
        refusals = 0
        async with self.in_use[source]:
            while source not in self._confirmed:
                try:
                    if stat := await self.sources[source].recheck():
                        self.agree(source, stat)
                except SourceError as error:
                    refusals += isinstance(error, ServerBusy)
                    if not await self._wait_out(error, refusals):
                        return error
                else:
                    break
        return None

    async def _make_room(self) -> None:
        """Release the connections of sources without work whenever other sources, here or elsewhere, wait for them."""
        while True:
            await asyncio.sleep(ROOM)
            for source, lock in zip(self.sources, self.in_use, strict=True):
                if source.wanted and not lock.locked():
                    await source.rest()

    async def close(self) -> None:
        """Close all sources."""
        await stop(self._opening.values())
        await asyncio.gather(*(source.close() for source in self.sources))


async def stop(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
