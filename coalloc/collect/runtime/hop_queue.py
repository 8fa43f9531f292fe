"""The hops of one ordered pair of hosts, one after the other over a channel that stays open.

Long hops are copied in slices of a fraction of a second. Several slices are in flight, so that there are no pauses;
progress is reported often, and a cancelled hop ends soon. A lost channel is opened again after pauses, and the bytes in
flight are requested again. If that does not help, the owner of the queue decides.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random

from coalloc.collect.runtime.channels import Channel
from coalloc.collect.runtime.hop import Hop
from coalloc.errors import (
    CoallocError,
    ConnectionLost,
    NoFreeConnection,
    NoSpace,
    ServerBusy,
    SourceError,
    Stalled,
    UnknownHost,
    Unreachable,
)
from coalloc.schedule.pauses import USEFUL, pause_seconds

__all__ = ["HopQueue"]

FIRST, MOST = 256 * 1024, 1 << 30
"""Bytes of the first (and smallest) slice, and of the largest."""
GROWTH = 4
"""Maximum growth factor from one slice to the next."""
SLICE_SECONDS = 0.25
AHEAD = 2
"""Slices in flight, measured in bytes; for a channel that does not queue pieces, the number of copies in flight."""
FLYING = 32
"""Maximum number of copies in flight, however short."""
LOOK_SECONDS = 0.5
"""Seconds between checks whether others wait for the connections of an idle channel."""
TRIES = 4
"""Consecutive failures without useful progress after which the owner of the queue has to decide."""

LOST = ConnectionLost, Stalled, Unreachable, UnknownHost, ServerBusy, NoFreeConnection
"""Errors that are unrelated to the piece being copied."""

Connect = Callable[[], Awaitable[Channel]]


class HopQueue:
    """A queue that moves the hops from one host to another.

    :param connect: function that opens a channel
    :param broken: callback with the reason when no channel can be opened; the queue then waits for `fail` or `close`
    :param failed: callback for an error that is not a SourceError; it ends the whole collect job
    :param chance: random numbers for the length of pauses
    """

    def __init__(
        self,
        connect: Connect,
        broken: Callable[[SourceError], None],
        failed: Callable[[Exception], None],
        chance: Random,
    ) -> None:
        self._connect = connect
        self._broken = broken
        self._failed = failed
        self._chance = chance
        self._channel: Channel | None = None
        self._waiting: deque[Hop] = deque()
        self._flying: dict[asyncio.Task[None], tuple[Hop, int, int]] = {}
        self._news = asyncio.Event()
        self._slice = FIRST
        self._failures = 0
        self._moved = 0
        """Bytes since the last failure; a few do not count as progress, as a server may send some in each answer."""
        self._tries = TRIES
        self._suspended = False
        self._ended = False
        self._loop = asyncio.get_running_loop()
        self._settled_at = 0.0
        self._work = self._loop.create_task(self._run())
        self.error: SourceError | None = None
        """The last error."""

    @property
    def hops(self) -> list[Hop]:
        """Return the hops that wait or are in flight, in order."""
        flying = [hop for hop, _, _ in self._flying.values()]
        return [hop for hop in dict.fromkeys([*flying, *self._waiting]) if not hop.over]

    def begin(self, hop: Hop) -> None:
        """Append a hop to the queue."""
        if self._ended:
            hop.stop()
        self._waiting.append(hop)
        self._news.set()

    def stop(self, hop: Hop) -> None:
        """Stop a hop without a report; it has `landed` when none of its bytes are in flight any more."""
        hop.stop()
        for task, (flying, _, _) in self._flying.items():
            if flying is hop and self._channel and not self._channel.sliced:
                task.cancel()
        self._news.set()

    def fail(self, error: SourceError) -> None:
        """Fail all current hops; later hops get a single attempt, until bytes arrive again."""
        self._suspended, self._tries = False, self._failures + 1
        for hop in self.hops:
            hop.end(error)
        self._news.set()

    async def close(self) -> None:
        """Close the channel, and stop all present and future hops without reports. May be called twice."""
        self._ended = True
        for hop in self.hops:
            hop.stop()
        self._work.cancel()
        await asyncio.gather(self._work, return_exceptions=True)
        await self._let_go()

    async def _let_go(self) -> None:
        self._ended = True
        for hop in self.hops:
            hop.stop()
        for task in self._flying:
            task.cancel()
        await asyncio.gather(*self._flying, return_exceptions=True)
        with suppress(CoallocError):
            self._settle()
        if self._channel:
            self._channel.close()

    async def _run(self) -> None:
        try:
            while True:
                self._news.clear()
                lost = self._settle()
                if not (lost or self._suspended):
                    lost = await self._ask()
                if self._ended:  # a copy's error can replace the cancellation by `close`
                    return
                if lost:
                    await self._pause(lost)
                else:
                    await self._rest()
        except Exception as error:
            self._failed(error)
            for hop in self.hops:
                hop.end(error)
            await self._let_go()

    async def _rest(self) -> None:
        """Wait for news; meanwhile give back connections that are idle if others wait for them."""
        while self._channel:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), LOOK_SECONDS)
                return
            if self._flying:
                self._channel.spare()
            elif self._channel.wanted:
                self._channel.close()
                self._channel = None
        await self._news.wait()

    async def _ask(self) -> SourceError | None:
        """Start copying the next slices, up to the limits; return the error if no channel can be opened."""
        while self._next() and self._has_room():
            if self._channel is None or not self._channel.usable:
                if self._flying:
                    return None  # these copies fail soon; then their bytes are requested again, in order
                if self._channel:
                    self._channel.close()  # one of its two connections may still be open
                try:
                    self._channel = await self._connect()
                except SourceError as error:
                    return error
            elif hop := self._next():
                self._take(self._channel, hop)
        return None

    def _next(self) -> Hop | None:
        while self._waiting and not self._waiting[0].has_requests_left:
            self._waiting.popleft()
        return self._waiting[0] if self._waiting else None

    def _has_room(self) -> bool:
        if self._channel and not self._channel.queues:
            return len(self._flying) < AHEAD
        coming = (gap for hop, *taken in self._flying.values() for gap in hop.arrived.gaps(*taken))
        return sum(end - start for start, end in coming) < AHEAD * self._slice and len(self._flying) < FLYING

    def _take(self, channel: Channel, hop: Hop) -> None:
        if not self._flying:
            self._settled_at = self._loop.time()
        start, end = hop.take(self._slice if channel.sliced else MOST)
        task = self._loop.create_task(self._copy(channel, hop, start, end))
        task.add_done_callback(lambda _: self._news.set())
        self._flying[task] = hop, start, end

    async def _copy(self, channel: Channel, hop: Hop, start: int, end: int) -> None:
        try:
            await hop.prepare()
        except SourceError as error:
            error.blame_destination()
            raise

        def received(start: int, end: int) -> None:
            self._moved += end - start
            if self._moved >= USEFUL:
                self._forget_failures()
            hop.received(start, end)
            if self._waiting:
                self._news.set()

        for stored in channel.held(hop.sink_path, start, end):
            hop.found(*stored)
        await channel.copy(hop.source_path, hop.sink_path, start, end, received)

    def _settle(self) -> SourceError | None:
        """Remove finished copies; return the error if all failures were losses of the channel.

        :raises Exception: any error that is not a SourceError
        """
        ended = [task for task in self._flying if task.done()]
        errors: list[Exception] = []
        copied, again = 0, list[Hop]()
        for task in ended:
            hop, start, end = self._flying.pop(task)
            error = _error(task)
            if error and not hop.over:
                errors.append(error)
            hop.returned(start, end, error)
            copied += 0 if error else end - start
            if error is None:
                self._forget_failures()
            if isinstance(error, SourceError) and not isinstance(error, LOST):
                self._blame(hop, error)
            if hop.has_requests_left and hop not in self._waiting:
                again.append(hop)
        self._waiting.extendleft(reversed(again))
        self._pace(copied)
        return self._judge(errors)

    def _forget_failures(self) -> None:
        self._failures, self._tries = 0, TRIES

    def _judge(self, errors: Sequence[Exception]) -> SourceError | None:
        for error in errors:
            if not isinstance(error, SourceError):
                raise error
            self.error = error
        lost = [error for error in errors if isinstance(error, LOST)]
        return lost[0] if len(lost) == len(errors) > 0 and isinstance(lost[0], SourceError) else None

    def _blame(self, hop: Hop, error: SourceError) -> None:
        """Count a failure caused by a hop; end the hop if another attempt is useless."""
        hop.failures += 1
        self.error = error
        if error.permanent or isinstance(error, NoSpace) or hop.failures >= TRIES:
            hop.at_fault = True
            hop.end(error)

    def _pace(self, copied: int) -> None:
        """Set the length of the next slices, so that each takes `SLICE_SECONDS`."""
        if not copied:
            return
        now = self._loop.time()
        moment = int(copied * SLICE_SECONDS / max(now - self._settled_at, 1e-6))
        self._slice = max(FIRST, min(moment, GROWTH * self._slice, MOST))
        self._settled_at = now

    async def _pause(self, lost: SourceError) -> None:
        """Wait before the next attempt to connect; after too many attempts, let the owner decide.

        Then the pause is short, as the owner has pauses of its own.
        """
        self._failures += 1
        self._moved = 0
        self.error = lost
        if self._failures >= self._tries or lost.permanent:
            self._suspended = True
            self._broken(lost)
        failures = 1 if self._suspended else self._failures
        await asyncio.sleep(pause_seconds(failures, lost.retry_after, self._chance))
        self._settle()  # copies that were lost together with the channel
        self._news.set()


def _error(task: "asyncio.Task[None]") -> Exception | None:
    """Return the error of a copy, if it failed."""
    if task.cancelled():
        return ConnectionLost("the copy was cancelled", "connect again")
    error = task.exception()
    if error is None or isinstance(error, Exception):
        return error
    raise error
