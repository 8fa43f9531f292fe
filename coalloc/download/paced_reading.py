"""Reading at a promised rate: the wait for the promise, the pace, and the sources that it needs."""

import asyncio
import time
from collections.abc import Callable

from coalloc.download.read_ahead import ReadAhead
from coalloc.download.reading_outlook import TICK, ReadingOutlook
from coalloc.guarantees.reading_pace import ReadingPace
from coalloc.model.promises import RateReport, RateView, ReadingRate
from coalloc.schedule.state import State

__all__ = ["PacedReading"]

AT_ONCE = 0.05
"""Seconds of the promised rate that the reader is given at once."""


class PacedReading:
    """The promise of a rate to one reader.

    :param room: bytes of the buffer
    """

    def __init__(self, wanted: ReadingRate, room: int) -> None:
        self._wanted = wanted
        self._outlook = ReadingOutlook(wanted, room, time.time())
        self._promised = asyncio.Event()
        self._pace: ReadingPace | None = None
        self._over_at: float | None = None
        self._loop = asyncio.get_running_loop()

    async def keep(self, state: State, ahead: ReadAhead, limit: Callable[[int, tuple[int, ...]], None]) -> None:
        """Promise the rate, and use the sources that it needs, again and again.

        :param limit: uses at most so many sources from now on, the preferred ones first
        :raises RateRefused: if the rate cannot be promised
        """
        while True:
            await asyncio.sleep(TICK)
            needed = self._outlook.look(state, ahead.front, ahead.reach, self._loop.time(), time.time())
            if needed:
                limit(needed.most, needed.preferred)
            if self._outlook.promised:
                self._promised.set()

    async def begin(self) -> None:
        """Wait until the rate is promised."""
        await self._promised.wait()
        self._pace = ReadingPace(self._wanted.rate, self._loop.time())

    async def due(self) -> int:
        """Wait until the next bytes are due; return how many at most."""
        assert self._pace is not None, "it has begun"
        await asyncio.sleep(self._pace.wait(self._loop.time()))
        return max(1, int(self._wanted.rate * AT_ONCE))

    def lack(self) -> None:
        """Record that the next bytes have not arrived."""
        if self._pace:
            self._pace.lack(self._loop.time())

    def gave(self, nbytes: int, since: float) -> None:
        """Record that the reader has taken bytes, from a moment until now."""
        assert self._pace is not None, "it has begun"
        self._pace.give(nbytes, since, self._loop.time())

    def end(self) -> None:
        """Record that the reader has all bytes."""
        self._over_at = self._loop.time()

    @property
    def view(self) -> RateView:
        """The outlook for the promise now."""
        return self._outlook.view

    @property
    def warnings(self) -> tuple[RateView, ...]:
        """All warnings so far that the promise may not be kept."""
        return tuple(self._outlook.warnings)

    def report(self) -> RateReport:
        """Return what was promised, and how it was kept so far."""
        until = self._loop.time() if self._over_at is None else self._over_at
        return self._outlook.report(*self._pace.result(until) if self._pace else (0, 0))
