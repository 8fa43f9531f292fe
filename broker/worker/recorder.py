"""Storage of a worker's results in the database; a result is accepted only if its lease is still valid.

Results are collected and written in one transaction, since a transaction costs more than a small file. `flush` returns
when they are written.

When the answer to a COMMIT is lost, it is unknown whether the data were written. So the same batch is written again
under the same number. The database recognises duplicates: results by their leases, bytes and events by the number.
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
from broker.models.work import WorkResult
from broker.services.forecasting.decisions import Decisions
from broker.services.forecasting.history import Transfers
from broker.storage.database import Database
from broker.storage.tasks import TaskStore
from broker.storage.work import WorkStore
from broker.storage.workers import WorkerStore
from broker.worker.fence import Fence
from broker.worker.tuner import PairWork
from coalloc.util.intervals import Intervals

__all__ = ["Recorder"]

DECIDED = 1000
"""Highest number of decisions in memory; further decisions are dropped."""
SHOWN = 300
"""Characters of an error that are kept in its event."""
log = structlog.get_logger("broker.worker")


class _Batch(NamedTuple):
    """The data of one transaction.

    :param number: number of the batch among those of the worker
    :param failure: whether it replaces a result that cannot be written
    """

    worker: str
    number: int
    results: Sequence[WorkResult]
    moved: Counter[str]
    events: Sequence[tuple[str, Event]]
    failure: bool = False

    @property
    def leases(self) -> set[tuple[int, int]]:
        """The leases of all its results."""
        return {each.work.lease for each in self.results}


class _WrittenBefore(Exception):
    """A batch that the database already has, or whose worker counts as dead."""


class Recorder:
    """The results of one worker, kept in memory until `flush`.

    :param later: function that is called with a task and the number of seconds until it has work again
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
        self._results: list[WorkResult] = []
        self._bytes: Counter[str] = Counter()
        self._events: list[tuple[str, Event]] = []
        self._observed: dict[str, list[Observed]] = {}
        self._decided: list[tuple[str, Made]] = []
        self._progress: dict[int, tuple[Work, Intervals]] = {}
        self._taken: dict[str, PairWork] = {}
        self._waiting: list[_Batch] = []
        self._numbers = itertools.count(1)
        self._writing = asyncio.Lock()
        self.fence = Fence(database)
        """The check that leases still belong to this worker."""

    def observe(self, subject: str, observed: Sequence[Observed]) -> None:
        """Keep observations of transfers."""
        if observed:
            self._observed.setdefault(subject, []).extend(observed)

    def decide(self, subject: str, made: Made) -> None:
        """Keep a finished decision about the sources of a file."""
        if len(self._decided) < DECIDED:
            self._decided.append((subject, made))

    def report(self, result: WorkResult) -> None:
        """Keep the result of an attempt at a work item."""
        self._results.append(result)
        task = result.work.task_id
        if result.state == "pending":
            self._later(task, result.pause)
        self._take(task, PairWork(files=result.counts.get("files_transferred", 0), failures=bool(result.error_code)))

    def found(self, task: str) -> None:
        """Wake other lanes for a task that has more work than one lane takes at once."""
        self._later(task, 0.0)

    def moved(self, task: str, count: int) -> None:
        """Count bytes that have arrived for a task."""
        self._bytes[task] += count
        self._take(task, PairWork(bytes=count))

    def _take(self, task: str, done: PairWork) -> None:
        had = self._taken.get(task, PairWork())
        self._taken[task] = PairWork(had.bytes + done.bytes, had.files + done.files, had.failures + done.failures)

    def taken(self) -> dict[str, PairWork]:
        """Return the work done for each task since the last call."""
        taken, self._taken = self._taken, {}
        return taken

    def progress(self, work: Work, received: Intervals) -> None:
        """Keep the received ranges of a large file, with which another worker can resume it."""
        self._progress[work.id] = (work, received)

    def forget(self, batch: Sequence[Work]) -> None:
        """Drop the progress of work items that this worker no longer has."""
        for work in batch:
            self._progress.pop(work.id, None)

    def note(self, task: str, event: Event) -> None:
        """Keep an event of a task."""
        self._events.append((task, event))

    async def flush(self, worker: str) -> set[tuple[int, int]]:
        """Write all results, bytes, events and progress; return the leases whose results are settled.

        :raises Unavailable: when the database is unavailable; the data are kept for the next flush
        """
        async with self._writing:
            recorded = await self._write_waiting(worker)
            if self._results or self._bytes or self._events or self._progress:
                self._waiting.append(self._batched(worker))
                recorded |= await self._write_waiting(worker)
        await self._learn()
        return recorded

    def _batched(self, worker: str) -> _Batch:
        """Return a batch of all results, bytes and events, and start empty lists."""
        batch = _Batch(worker, next(self._numbers), self._results, self._bytes, self._events)
        self._results, self._bytes, self._events = [], Counter(), []
        return batch

    async def _write_waiting(self, worker: str) -> set[tuple[int, int]]:
        """Write the waiting batches in the order of their numbers; drop those of an earlier name of the worker.

        A batch waits until it is written for certain: later ones would make the database take it for a duplicate.
        """
        recorded: set[tuple[int, int]] = set()
        while self._waiting:
            batch, others = self._waiting[0], self._waiting[1:]
            if batch.worker == worker:
                try:
                    recorded |= await self._write(batch)
                except Unavailable:
                    raise
                except Exception as error:
                    log.exception("failed to write results, bytes or events", results=len(batch.results))
                    others = [*self._instead(batch, error), *others]
            self._waiting = others
        return recorded

    def _instead(self, batch: _Batch, error: Exception) -> list[_Batch]:
        """Return smaller batches in place of one that cannot be written, so that only the unwritable result fails.

        A batch with several results becomes a batch for each, and one for the rest. One with a single result becomes
        its failure. One without results, or with a failure that cannot be written, is dropped.
        """
        if batch.failure or not batch.results:
            return []
        if len(batch.results) == 1 and not batch.moved and not batch.events:
            why = f"cannot record the result: {error}"[:SHOWN]
            failure = WorkResult(batch.results[0].work, "failed", error_code="UNKNOWN", error=why)
            return [batch._replace(results=[failure], failure=True)]
        rest = batch._replace(number=next(self._numbers), results=())
        return [rest, *(_Batch(batch.worker, next(self._numbers), [each], Counter(), ()) for each in batch.results)]

    async def _learn(self) -> None:
        """Store observations and decisions; log and drop those that are refused."""
        observed, self._observed = self._observed, {}
        for subject, some in observed.items():
            try:
                await self._history.take(subject, some)
            except BrokerError as error:
                log.warning("failed to store transfers of tasks", error=error.message)
        decided, self._decided = self._decided, []
        for subject, made in decided:
            try:
                await self._decisions.keep(subject, [made])
            except BrokerError as error:
                log.warning("failed to store a decision", error=error.message)
            except Exception:
                log.exception("failed to store a decision")

    async def _write(self, batch: _Batch) -> set[tuple[int, int]]:
        """Write a batch, unless it was written before or its worker counts as dead; return the settled leases."""
        try:
            async with self._database.write() as connection:
                workers = WorkerStore(connection)
                if (now := await workers.may_flush(batch.worker, batch.number)) is None:
                    raise _WrittenBefore
                accepted = await self._fill(connection, batch, now)
                if not await workers.flushed(batch.worker, batch.number):
                    raise _WrittenBefore
        except _WrittenBefore:
            return batch.leases
        return accepted

    async def _fill(self, connection: AsyncConnection, batch: _Batch, now: float) -> set[tuple[int, int]]:
        """Write a batch within a transaction; return the leases whose results were accepted."""
        tasks, works = TaskStore(connection), WorkStore(connection)
        progress = [(held, tuple(received)) for held, received in self._progress.values()]
        of_work = {held.task_id for held, _ in progress} | {each.work.task_id for each in batch.results}
        await works.lock(of_work | set(batch.moved) | {task for task, _ in batch.events})
        await works.progress(batch.worker, progress)  # before results end the leases
        accepted = await works.complete(batch.worker, batch.results, now, batch.moved)
        good = [each for each in batch.results if each.work.lease in accepted]
        ended = await tasks.finish({each.work.task_id for each in good}, now)
        ends = [(task.id, _end(task, now)) for task in ended]
        await tasks.note([*batch.events, *_faults(good, now), *_happened(good), *ends])
        return accepted


def _faults(results: Sequence[WorkResult], now: float) -> list[tuple[str, Event]]:
    """Return one event for each error code of each task, with the first affected item."""
    first: dict[tuple[str, str], WorkResult] = {}
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


def _happened(results: Sequence[WorkResult]) -> list[tuple[str, Event]]:
    """Return the first of the results' events for each code of each task, and count the others."""
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
