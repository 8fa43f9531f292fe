"""Records what workers do: many results in one transaction, each under the fence of its lease.

Results are kept for a moment and written together, since a transaction costs more than a small file. Whoever needs to
know that they are written waits for `flush`.

When the answer to a COMMIT is lost, nobody knows whether it was written. So it is written again as it was, under the
same number, and the database refuses what it has: results by their leases, bytes and events by that number.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.errors import BrokerError, Unavailable
from broker.models.decisions import Made
from broker.models.history import Observed
from broker.models.tasks import Event, Task, Work
from broker.services.decisions import Decisions
from broker.services.history import Transfers
from broker.storage.database import Database
from broker.storage.tasks import Tasks
from broker.storage.work import Result, Works
from broker.storage.workers import Workers
from broker.tasks.fence import Fence
from broker.tasks.tuner import Done
from coalloc.intervals import Intervals

__all__ = ["Recorder"]

DECIDED = 1000
"""Decisions that are held at most: of more, the newest are not kept."""
SHOWN = 300
"""Characters of an error that its event tells."""
log = structlog.get_logger("broker.tasks")


class _Batch(NamedTuple):
    """What is written in one transaction, by whom, and its number among all that they write."""

    worker: str
    number: int
    results: Sequence[Result]
    moved: Counter[str]
    events: Sequence[tuple[str, Event]]

    @property
    def leases(self) -> set[tuple[int, int]]:
        """Those of all its results."""
        return {each.work.lease for each in self.results}


class _WrittenBefore(Exception):
    """All of it is in the database already."""


class Recorder:
    """The results of one worker.

    :param later: is told in how many seconds there is work of a task again
    """

    def __init__(
        self,
        database: Database,
        history: Transfers,
        decisions: Decisions,
        later: Callable[[str, float], None],
    ) -> None:
        self._database = database
        self._history = history
        self._decisions = decisions
        self._later = later
        self._results: list[Result] = []
        self._bytes: Counter[str] = Counter()
        self._events: list[tuple[str, Event]] = []
        self._observed: dict[str, list[Observed]] = {}
        self._decided: list[tuple[str, Made]] = []
        self._progress: dict[int, tuple[Work, Intervals]] = {}
        self._taken: dict[str, Done] = {}
        self._unsure: _Batch | None = None
        self._numbers = itertools.count(1)
        self._writing = asyncio.Lock()
        self.fence = Fence(database)
        """Tells whether leases are still this worker's."""

    def observe(self, subject: str, observed: Sequence[Observed]) -> None:
        """Something was achieved."""
        if observed:
            self._observed.setdefault(subject, []).extend(observed)

    def decide(self, subject: str, made: Made) -> None:
        """It was decided from where a file comes, and that is over."""
        if len(self._decided) < DECIDED:
            self._decided.append((subject, made))

    def report(self, result: Result) -> None:
        """A piece of work is over, or an attempt at it."""
        self._results.append(result)
        task = result.work.task_id
        if result.state == "pending":
            self._later(task, result.pause)
        self._take(task, Done(files=result.counts.get("files_transferred", 0), failures=bool(result.error_code)))

    def found(self, task: str) -> None:
        """There is more to do than one lane takes at once."""
        self._later(task, 0.0)

    def moved(self, task: str, count: int) -> None:
        """Bytes of a task have arrived."""
        self._bytes[task] += count
        self._take(task, Done(bytes=count))

    def _take(self, task: str, done: Done) -> None:
        had = self._taken.get(task, Done())
        self._taken[task] = Done(had.bytes + done.bytes, had.files + done.files, had.failures + done.failures)

    def taken(self) -> dict[str, Done]:
        """What was done of each task since this was asked last."""
        taken, self._taken = self._taken, {}
        return taken

    def progress(self, work: Work, received: Intervals) -> None:
        """So much of a large file has arrived, for whoever has to go on with it."""
        self._progress[work.id] = (work, received)

    def forget(self, batch: Sequence[Work]) -> None:
        """Keep no more progress of these: nobody is at them."""
        for work in batch:
            self._progress.pop(work.id, None)

    def note(self, task: str, event: Event) -> None:
        """Something happened in a task."""
        self._events.append((task, event))

    async def flush(self, worker: str) -> set[tuple[int, int]]:
        """Write what there is; the leases of which there is nothing more to record.

        :raises Unavailable: when it cannot be written now: then it is kept
        """
        async with self._writing:
            recorded = await self._again(worker) if self._unsure else set()
            if self._results or self._bytes or self._events or self._progress:
                recorded |= await self._put(self._batched(worker))
        await self._learn()
        return recorded

    def _batched(self, worker: str) -> _Batch:
        """All that there is to write."""
        batch = _Batch(worker, next(self._numbers), self._results, self._bytes, self._events)
        self._results, self._bytes, self._events = [], Counter(), []
        return batch

    async def _again(self, worker: str) -> set[tuple[int, int]]:
        """Write what was written once, and nobody answered; nothing of that counts any more for one who was dead."""
        batch, self._unsure = self._unsure, None
        return await self._put(batch) if batch and batch.worker == worker else set()

    async def _put(self, batch: _Batch) -> set[tuple[int, int]]:
        try:
            return await self._write(batch)
        except (Unavailable, asyncio.CancelledError):
            self._unsure = batch
            raise
        except Exception:
            log.exception("results cannot be written together")
            return await self._one_by_one(batch)

    async def _one_by_one(self, batch: _Batch) -> set[tuple[int, int]]:
        """Write each for itself: one that cannot be written has failed, and takes no other with it."""
        recorded: set[tuple[int, int]] = set()
        rest = batch._replace(number=next(self._numbers), results=())
        try:
            await self._write(rest)
        except Unavailable:
            self._unsure = rest
        except Exception:
            log.exception("bytes and events cannot be written")
        for each in batch.results:
            one = rest._replace(number=next(self._numbers), results=[each], moved=Counter(), events=())
            try:
                recorded |= await self._write(one)
            except Unavailable:
                self._results.append(each)
            except Exception as error:
                why = Result(each.work, "failed", error_code="UNKNOWN", error=f"cannot be recorded: {error}"[:SHOWN])
                recorded |= await self._write(one._replace(results=[why]))
        return recorded

    async def _learn(self) -> None:
        """Tell what was achieved, and what was decided; what nobody wants is nobody's loss."""
        observed, self._observed = self._observed, {}
        for subject, some in observed.items():
            try:
                await self._history.take(subject, some)
            except BrokerError as error:
                log.warning("transfers of tasks could not be kept", error=error.message)
        decided, self._decided = self._decided, []
        for subject, made in decided:
            try:
                await self._decisions.keep(subject, [made])
            except BrokerError as error:
                log.warning("a decision could not be kept", error=error.message)
            except Exception:
                log.exception("a decision could not be kept")

    async def _write(self, batch: _Batch) -> set[tuple[int, int]]:
        """Write it, unless it was written, or its worker is dead for the database; the leases that are settled so."""
        try:
            async with self._database.write() as connection:
                workers = Workers(connection)
                if (now := await workers.may_flush(batch.worker, batch.number)) is None:
                    raise _WrittenBefore
                accepted = await self._fill(connection, batch, now)
                if not await workers.flushed(batch.worker, batch.number):
                    raise _WrittenBefore
        except _WrittenBefore:
            return batch.leases
        return accepted

    async def _fill(self, connection: AsyncConnection, batch: _Batch, now: float) -> set[tuple[int, int]]:
        """Write it in a transaction; the leases whose results count."""
        tasks, works = Tasks(connection), Works(connection)
        progress = [(held, tuple(received)) for held, received in self._progress.values()]
        of_work = {held.task_id for held, _ in progress} | {each.work.task_id for each in batch.results}
        await works.lock(of_work | set(batch.moved) | {task for task, _ in batch.events})
        accepted = await works.complete(batch.worker, batch.results, now, batch.moved)
        await works.progress(batch.worker, progress)
        good = [each for each in batch.results if each.work.lease in accepted]
        ended = await tasks.finish({each.work.task_id for each in good}, now)
        ends = [(task.id, _end(task, now)) for task in ended]
        await tasks.note([*batch.events, *_faults(good, now), *_happened(good), *ends])
        return accepted


def _faults(results: Sequence[Result], now: float) -> list[tuple[str, Event]]:
    """An event for each kind of error in each task, with the first that it befell."""
    first: dict[tuple[str, str], Result] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for each in results:
        if each.error_code:
            kind = (each.work.task_id, each.error_code)
            first.setdefault(kind, each)
            counts[kind] += 1
    events = []
    for (task, code), each in first.items():
        details = f"{each.work.source}: {each.error}"[:SHOWN] + _others(counts[task, code])
        events.append((task, Event(now, code, True, code.replace("_", " ").lower(), details)))
    return events


def _happened(results: Sequence[Result]) -> list[tuple[str, Event]]:
    """What results tell, once for each kind in each task, with the first that it befell."""
    first: dict[tuple[str, str], Event] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for each in results:
        for event in each.events:
            kind = (each.work.task_id, event.code)
            first.setdefault(kind, event)
            counts[kind] += 1
    return [
        (task, event._replace(details=event.details[:SHOWN] + _others(counts[task, code])))
        for (task, code), event in first.items()
    ]


def _others(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""


def _end(task: Task, now: float) -> Event:
    if task.status == "SUCCEEDED":
        return Event(now, "SUCCEEDED", False, "succeeded", f"files succeeded: {task.files_transferred}")
    return Event(now, "FAILED", True, "failed", task.error or "")
