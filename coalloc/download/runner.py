"""The asyncio shell of the scheduler: it passes events to the scheduler, and executes the actions returned.

One task per connection attempt, one task per partial copy; everything happens in one event loop, so that an action
takes effect before the next byte is delivered.
"""

import asyncio
from collections.abc import Callable, Coroutine, Set

from coalloc.download.connections import SourceConnections, stop
from coalloc.engine.span import Deliver, PacedSpan, Span, pieces
from coalloc.errors import NoFreeConnection, SourceError, TransferFailed, TransferRefused
from coalloc.model.replicas import Stat
from coalloc.schedule import Scheduler
from coalloc.schedule.actions import Abandon, Action, Close, Connect, Done, Fetch, GiveUp, Shorten, Wake, Widen
from coalloc.schedule.events import Event, Failed, Finished, Held, Ready, Received, SourceLimit, Tick, Waiting

__all__ = ["TransferRunner", "Write"]

Write = Callable[[int, int, int, memoryview | None], None]
"""`write(source, start, end, data)`: store the bytes [start, end), as from `Deliver`.

An exception ends the transfer.
"""
Job = Callable[[], Coroutine[None, None, None]]


class TransferRunner:
    """An executor of a scheduler's actions.

    :param connections: the sources; the runner closes them
    :param write: receives the bytes
    """

    def __init__(self, connections: SourceConnections, write: Write) -> None:
        self._connections = connections
        self._sources = connections.sources
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._waiting: set[int] = set()
        """Sources that wait for a free connection."""
        self._confirming: dict[int, asyncio.Task[None]] = {}
        self._answered: dict[int, Stat] = {}
        self._spans: dict[int, Span] = {}
        self._fetching: dict[int, asyncio.Task[None]] = {}
        self._copies: list[set[int]] = [set() for _ in self._sources]
        """For each source, the copies that are being fetched."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._waker: asyncio.TimerHandle | None = None
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._error: Exception | None = None
        self._scheduler: Scheduler | None = None

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
            await stop(self._fetching.values())
        if self._error is not None:
            raise self._error

    def limit(self, most: int, preferred: tuple[int, ...] = ()) -> None:
        """Use at most `most` sources at once from now on; of those in use, keep the `preferred` ones first."""
        self._handle(SourceLimit(self._loop.time(), most, preferred))

    def tell(self, event: Event) -> bool:
        """Pass an event to the scheduler while the run goes on; return False, without effect, if it is over."""
        if self._over.done():
            return False
        self._handle(event)
        return True

    def end(self, error: Exception | None) -> None:
        """End the run, with this error if there is one. An error between two runs ends the next one."""
        self._error = self._error or error
        if not self._over.done():
            self._over.set_result(None)

    async def await_late_answers(self, guests: Set[int] = frozenset()) -> None:
        """Wait briefly for sources, other than `guests`, that have not answered yet: a replica may be of another file.

        The time counts from their requests, so that this waits only if all bytes came almost at once.

        :raises CoallocError: if an answer ends the transfer
        """
        new = self._connecting.keys() - self._answered.keys() - self._waiting - guests
        late = {source: self._connecting[source] for source in new}
        if late:
            now, requested_at = self._loop.time(), self._connections.requested_at
            until = max(requested_at.get(source, now) for source in late) + self._connections.patience
            await asyncio.wait(late.values(), timeout=max(0.0, until - now))
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        """Close all sources and end all tasks."""
        await stop(self._tasks)
        await self._connections.close()

    def _handle(self, event: Event) -> None:
        """Pass an event to the scheduler and execute its actions; no action calls back before it returns."""
        assert self._scheduler is not None
        try:
            for action in self._scheduler.handle(event):
                self._perform(action)
        except Exception as error:  # a defect must end the transfer, not hang it
            self.end(error)

    def _perform(self, action: Action) -> None:
        match action:
            case Fetch(copy, source, start, end, skip):
                self._spans[copy] = Span(start, end, skip)
                task = self._begin(self._fetch_beside_others(copy, source))
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
                self.end(None)
            case GiveUp(reason):
                self.end(self._given_up(reason))

    def _given_up(self, reason: str) -> TransferFailed:
        errors = self._connections.errors.values()
        if len(errors) == len(self._sources) and all(error.permanent for error in errors):
            remedy = "; ".join({error.remedy: None for error in errors})
            return TransferRefused(f"no source is left: {reason}", remedy)
        return TransferFailed(f"no source is left: {reason}", "run the same command again to continue")

    def _tick(self) -> None:
        wanted = tuple(i for i, source in enumerate(self._sources) if source.wanted)
        queueing = tuple(i for i, source in enumerate(self._sources) if source.queues)
        self._handle(Tick(self._loop.time(), tuple(source.path_state for source in self._sources), wanted, queueing))

    def _work(self, source: int, job: Job) -> asyncio.Task[None]:
        """Run `job` once the previous job of its source is over: a source is used by one task at a time."""

        async def work() -> None:
            async with self._connections.in_use[source]:
                await job()

        return self._begin(work())

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _fetch_beside_others(self, copy: int, source: int) -> None:
        """Run a partial copy while its source is used by nothing but other partial copies.

        First wait for the end of abandoned fetches from the source, which may not permit one more.
        """
        copies = self._copies[source]
        while ending := [self._fetching[each] for each in copies if each not in self._spans]:
            await asyncio.wait(ending)
        if not copies:
            await self._connections.in_use[source].acquire()
        copies.add(copy)
        try:
            await self._fetch(copy, source)
        finally:
            copies.remove(copy)
            if not copies:
                self._connections.in_use[source].release()

    async def _open_when_free(self, source: int) -> Stat:
        """Open a source. If others have all connections to its server, report that and wait for a free one."""
        try:
            return await self._connections.open(source)
        except NoFreeConnection as error:
            self._waiting.add(source)
            self._handle(Waiting(self._loop.time(), source, str(error)))
            await error.until_free()
            self._connections.forget(source)
            return await self._connections.open(source)
        finally:
            self._waiting.discard(source)

    async def _connect(self, source: int) -> None:
        try:
            stat = await self._open_when_free(source)
            self._connections.agree(source, stat)
            self._answered[source] = stat
        except SourceError as error:
            self._connecting.pop(source, None)
            await self._failed(source, None, error)
        except Exception as error:
            self.end(error)
        else:
            self._connecting.pop(source, None)
            self._handle(Ready(self._loop.time(), source, stat.ranged, stat.rtt))
            if not self._over.done():
                self._tick()  # the transfer may have begun: sources still connecting have a share now
        finally:
            self._connections.forget(source)

    async def _release(self, source: int, temporary: bool) -> None:
        """Close a source; if temporarily, first check its replica for changes, unless that needs a connection."""
        if opening := self._connections.forget(source):
            await stop([opening])
        if not temporary:
            await self._sources[source].close()
            return
        if self._connections.is_unconfirmed(source) and source not in self._connecting:
            asking = self._confirming[source] = self._loop.create_task(self._confirm(source))
            try:
                await asyncio.wait({asking})
            finally:
                del self._confirming[source]
                await stop([asking])
        await self._sources[source].rest()

    async def _confirm(self, source: int) -> None:
        try:
            await self._connections.confirm(source)
        except Exception as error:
            self.end(error)

    async def _fetch(self, copy: int, source: int) -> None:
        self._connections.note_fetch(source)
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
            self.end(error)
        else:
            if copy in self._spans:
                handle(Finished(time(), copy))
        finally:
            self._spans.pop(copy, None)

    async def _fetch_admitted(self, copy: int, source: int, span: Span, deliver: Deliver) -> None:
        """Fetch a range, each piece after its admission.

        A piece is admitted before it is requested, not when its bytes are read: a copy between two servers can be
        slowed down in no other way, and a slow reader of a download would still let megabytes flow into buffers. Only
        the bytes of a server without ranges are read slowly.
        """
        fetch, admission = self._sources[source].fetch, self._sources[source].options.admission
        if admission is None:
            await fetch(span, deliver)
            return

        async def wait(nbytes: int) -> None:
            self._handle(Held(self._loop.time(), copy))
            await admission.wait(nbytes)
            self._handle(Held(self._loop.time(), copy, over=True))

        if not self._answered[source].ranged:
            await fetch(PacedSpan(span, admission.piece, wait), deliver)
            return
        for piece in pieces(span, admission.piece):
            await wait(piece.end - piece.start)
            await fetch(piece, deliver)

    async def _failed(self, source: int, copy: int | None, error: SourceError) -> None:
        """Report a failure, and close the source, so that others can use its connections while it pauses."""
        self._connections.errors[source] = error
        if copy is None or copy in self._spans:
            self._handle(Failed(self._loop.time(), source, str(error), error.permanent, copy, error.retry_after))
        await self._sources[source].close()
