"""The asyncio shell of the scheduler: it passes events to the scheduler, and executes the actions returned.

One task per connection attempt, one task per partial copy; everything happens in one event loop, so that an action
takes effect before the next byte is delivered.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from random import Random
from typing import Any

from coalloc.engine.base import Source
from coalloc.engine.sessions.admission import pieces
from coalloc.engine.span import Deliver, Span
from coalloc.errors import NoFreeConnection, ReplicaChanged, ServerBusy, SourceError, TransferFailed
from coalloc.model import Stat
from coalloc.schedule import Scheduler
from coalloc.schedule.actions import Abandon, Action, Close, Connect, Done, Fetch, GiveUp, Shorten, Wake, Widen
from coalloc.schedule.events import Event, Failed, Finished, Held, Ready, Received, Tick, Waiting
from coalloc.schedule.pauses import TRIES, pause_seconds

__all__ = ["TransferRunner", "Write"]

Write = Callable[[int, int, int, memoryview | None], None]
"""`write(source, start, end, data)`: store the bytes [start, end), as from `Deliver`.

An exception ends the transfer.
"""
Job = Callable[[], Coroutine[None, None, None]]
Agree = Callable[[int, Stat], None]
"""`agree(source, stat)`: raise a SourceError if this replica is of another file, or any other error to stop all."""

ANSWER = 0.5
"""Minimum seconds allowed for each source's first answer, even if all bytes have arrived already."""
ROOM = 0.1
"""Seconds between checks, at the end, for others that wait for the connection of a source without work."""
SLOWER = 2.0
"""Factor by which a first answer may then be slower than the slowest answer so far, if that is longer than `ANSWER`."""


class TransferRunner:
    """An executor of a scheduler's actions, which also connects the sources.

    :param sources: one per replica; the runner opens and closes them
    :param agree: called for each replica before a byte of it is used
    :param write: receives the bytes
    :param seed: seed of the random pauses, so that they differ from transfer to transfer
    """

    def __init__(self, sources: Sequence[Source], agree: Agree, write: Write, seed: int = 0) -> None:
        self._sources = sources
        self._chance = Random(seed)
        self._agree = agree
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._opening: dict[int, asyncio.Task[Stat]] = {}
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._waiting: set[int] = set()
        """Sources that wait for a free connection."""
        self._confirming: dict[int, asyncio.Task[None]] = {}
        self._used: set[int] = set()
        """Sources from which bytes were requested."""
        self._confirmed: set[int] = set()
        """Sources found unchanged, from which no bytes were requested since."""
        self._requested_at: dict[int, float] = {}
        self._answered: dict[int, Stat] = {}
        self._slowest = 0.0
        self._spans: dict[int, Span] = {}
        self._fetching: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy = [asyncio.Lock() for _ in sources]
        self._waker: asyncio.TimerHandle | None = None
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._error: Exception | None = None
        self._scheduler: Scheduler | None = None
        self.errors: dict[int, SourceError] = {}
        """The last error of each source that had one."""

    @property
    def connected(self) -> tuple[int, ...]:
        """The sources being connected, or connected, before the scheduler has requested any connection."""
        return tuple(self._opening)

    async def connect(self, most: int) -> bool:
        """Connect to `most` sources at once, then to others if some fail or wait, until one has the agreed file.

        :returns: whether a source has it; if not, `errors` has the reasons
        """
        places = asyncio.Semaphore(most)
        pending = {self._loop.create_task(self._answers(source, places)) for source in range(len(self._sources))}
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                if True in [task.result() for task in done]:
                    return True
            return False
        finally:
            await _stop(pending)

    async def _answers(self, source: int, places: asyncio.Semaphore) -> bool:
        """Return whether a source answers with the agreed file. It takes one of `places`, and then keeps it.

        If the server is busy, or has no free connection for us, the place is released, and the source is asked again.
        """
        refusals = 0
        while True:
            await places.acquire()
            try:
                self._agree(source, await asyncio.shield(self._open(source)))  # shielded, as it may be needed later
                return True
            except SourceError as error:
                places.release()
                self.errors[source] = error
                await self._sources[source].close()
                refusals += isinstance(error, ServerBusy)
                if not await self._wait_out(error, refusals):
                    return False
            del self._opening[source]

    async def _wait_out(self, error: SourceError, refusals: int) -> bool:
        """Wait until the source can be asked again; return False if that is useless, as after too many refusals."""
        match error:
            case NoFreeConnection():
                await error.until_free()
            case ServerBusy() if refusals < TRIES:
                await asyncio.sleep(pause_seconds(refusals, error.retry_after, self._chance))
            case _:
                return False
        return True

    async def run(self, scheduler: Scheduler, first: Event) -> None:
        """Run `scheduler`, from event `first` until every byte has arrived. May be called again after verification.

        :raises TransferFailed: when no source is left
        """
        self._scheduler = scheduler
        self._over = self._loop.create_future()
        try:
            self._handle(first)
            if self._error is None:
                await self._over
        finally:
            if self._waker:
                self._waker.cancel()
            await _stop(self._fetching.values())
        if self._error is not None:
            raise self._error

    async def await_late_answers(self) -> None:
        """Wait briefly for sources that have not answered yet: a replica may be of another file.

        The time counts from their requests, so that this waits only if all bytes came almost at once.

        :raises CoallocError: if an answer ends the transfer
        """
        new = self._connecting.keys() - self._answered.keys() - self._waiting
        late = {source: self._connecting[source] for source in new}
        if late:
            patience = max(ANSWER, SLOWER * self._slowest)
            now = self._loop.time()
            until = max(self._requested_at.get(source, now) for source in late) + patience
            await asyncio.wait(late.values(), timeout=max(0.0, until - now))
        if self._error is not None:
            raise self._error

    async def await_answers(self, sources: Iterable[int]) -> None:
        """Wait briefly for the first answers of these sources, and check each with `agree`."""
        opening = {source: self._open(source) for source in sources}
        if opening:
            await asyncio.wait(opening.values(), timeout=max(ANSWER, SLOWER * self._slowest))
        for source, task in opening.items():
            if task.done():
                try:
                    self._agree(source, await task)
                except SourceError as error:
                    self.errors[source] = error

    async def recheck(self, sources: Iterable[int]) -> dict[int, SourceError]:
        """Ask these sources, all at once, whether their replicas are unchanged.

        :returns: the errors of sources whose replicas changed, or that cannot be asked
        """
        sources = list(sources)
        making_room = self._loop.create_task(self._make_room())
        try:
            errors = await asyncio.gather(*(self._recheck(source) for source in sources))
        finally:
            await _stop([making_room])
        found = {source: error for source, error in zip(sources, errors, strict=True) if error}
        self.errors |= found
        return found

    async def _recheck(self, source: int) -> SourceError | None:
        if isinstance(known := self.errors.get(source), ReplicaChanged):
            return known
        refusals = 0
        async with self._busy[source]:
            while source not in self._confirmed:
                try:
                    if stat := await self._sources[source].recheck():
                        self._agree(source, stat)
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
            for source, busy in zip(self._sources, self._busy, strict=True):
                if source.wanted and not busy.locked():
                    await source.rest()

    async def close(self) -> None:
        """Close all sources and end all tasks."""
        await _stop(self._tasks)
        await _stop(self._opening.values())
        await asyncio.gather(*(source.close() for source in self._sources))

    def _handle(self, event: Event) -> None:
        """Pass an event to the scheduler and execute its actions; no action calls back before it returns."""
        assert self._scheduler is not None
        try:
            for action in self._scheduler.handle(event):
                self._perform(action)
        except Exception as error:  # a defect must end the transfer, not hang it
            self._finish(error)

    def _perform(self, action: Action) -> None:
        match action:
            case Fetch(copy, source, start, end, skip):
                self._spans[copy] = Span(start, end, skip)
                task = self._work(source, lambda: self._fetch(copy, source))
                self._fetching[copy] = task
                task.add_done_callback(lambda _: self._fetching.pop(copy, None))
            case Shorten(copy, end):
                self._spans[copy].end = end
            case Abandon(copy):
                del self._spans[copy]
                self._fetching[copy].cancel()
            case Connect(source):
                if source in self._confirming:
                    self._confirming[source].cancel()
                self._connecting[source] = self._work(source, lambda: self._connect(source))
            case Close(source, temporary):
                if connecting := self._connecting.pop(source, None):
                    connecting.cancel()
                self._work(source, lambda: self._release(source, temporary))
            case Widen(source, streams):
                self._sources[source].widen(streams)
            case Wake(at):
                if self._waker:
                    self._waker.cancel()
                self._waker = self._loop.call_at(at, self._tick)
            case Done():
                self._finish(None)
            case GiveUp(reason):
                self._finish(TransferFailed(f"no source is left: {reason}", "run the same command again to continue"))

    def _tick(self) -> None:
        wanted = tuple(i for i, source in enumerate(self._sources) if source.wanted)
        self._handle(Tick(self._loop.time(), tuple(source.path_state for source in self._sources), wanted))

    def _finish(self, error: Exception | None) -> None:
        """End the run. An error that a late replica causes between two runs ends the next run."""
        self._error = self._error or error
        if not self._over.done():
            self._over.set_result(None)

    def _work(self, source: int, job: Job) -> asyncio.Task[None]:
        """Run `job` once the previous job of its source is over: a source is used by one task at a time."""

        async def work() -> None:
            async with self._busy[source]:
                await job()

        task = self._loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _open(self, source: int) -> asyncio.Task[Stat]:
        """Return the task that connects a source, started if it is not running."""
        if source not in self._opening:
            self._opening[source] = self._loop.create_task(self._ask(source))
        return self._opening[source]

    async def _ask(self, source: int) -> Stat:
        began = self._loop.time()
        self._requested_at.setdefault(source, began)
        stat = await self._sources[source].open()
        self._slowest = max(self._slowest, self._loop.time() - began)
        return stat

    async def _open_when_free(self, source: int) -> Stat:
        """Open a source. If others have all connections to its server, report that and wait for a free one."""
        try:
            return await self._open(source)
        except NoFreeConnection as error:
            self._waiting.add(source)
            self._handle(Waiting(self._loop.time(), source, str(error)))
            await error.until_free()
            del self._opening[source]
            return await self._open(source)
        finally:
            self._waiting.discard(source)

    async def _connect(self, source: int) -> None:
        try:
            stat = await self._open_when_free(source)
            self._agree(source, stat)
            self._answered[source] = stat
        except SourceError as error:
            self._connecting.pop(source, None)
            await self._failed(source, None, error)
        except Exception as error:
            self._finish(error)
        else:
            self._connecting.pop(source, None)
            self._handle(Ready(self._loop.time(), source, stat.ranged, stat.rtt))
            if not self._over.done():
                self._tick()  # the transfer may have begun: sources still connecting have a share now
        finally:
            self._opening.pop(source, None)

    async def _release(self, source: int, temporary: bool) -> None:
        """Close a source; if temporarily, first check its replica for changes, unless that needs a connection."""
        if opening := self._opening.pop(source, None):
            await _stop([opening])
        if not temporary:
            await self._sources[source].close()
            return
        if source in self._used - self._confirmed and source not in self._connecting:
            asking = self._confirming[source] = self._loop.create_task(self._confirm(source))
            try:
                await asyncio.wait({asking})
            finally:
                del self._confirming[source]
                await _stop([asking])
        await self._sources[source].rest()

    async def _confirm(self, source: int) -> None:
        """Check whether a source's replica is unchanged; a source that does not answer is asked again at the end."""
        try:
            if stat := await self._sources[source].recheck():
                self._agree(source, stat)
            self._confirmed.add(source)
        except SourceError as error:
            self.errors[source] = error
        except Exception as error:
            self._finish(error)

    async def _fetch(self, copy: int, source: int) -> None:
        self._used.add(source)
        self._confirmed.discard(source)
        span, write, handle, time = self._spans[copy], self._write, self._handle, self._loop.time

        def deliver(start: int, end: int, data: memoryview | None) -> None:
            if copy in self._spans:
                write(source, start, end, data)
                handle(Received(time(), copy, start, end))

        try:
            await self._fetch_admitted(copy, source, span, deliver)
        except SourceError as error:
            await self._failed(source, copy, error)
        except Exception as error:  # a failure of the disk, or a defect
            self._finish(error)
        else:
            if copy in self._spans:
                handle(Finished(time(), copy))
        finally:
            self._spans.pop(copy, None)

    async def _fetch_admitted(self, copy: int, source: int, span: Span, deliver: Deliver) -> None:
        """Fetch a range: each piece after its admission; from a server without ranges, all after the last admission."""
        fetch, admission = self._sources[source].fetch, self._sources[source].options.admission
        if admission is None:
            await fetch(span, deliver)
            return
        ranged = self._answered[source].ranged
        for piece in pieces(span, admission.piece):
            self._handle(Held(self._loop.time(), copy))
            await admission.wait(piece.end - piece.start)
            self._handle(Held(self._loop.time(), copy, over=True))
            if ranged:
                await fetch(piece, deliver)
        if not ranged:
            await fetch(span, deliver)

    async def _failed(self, source: int, copy: int | None, error: SourceError) -> None:
        """Report a failure, and close the source, so that others can use its connections while it pauses."""
        self.errors[source] = error
        if copy is None or copy in self._spans:
            self._handle(Failed(self._loop.time(), source, str(error), error.permanent, copy, error.retry_after))
        await self._sources[source].close()


async def _stop(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
