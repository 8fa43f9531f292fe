"""Records what workers do: many results in one transaction, each under the fence of its lease.

Results are kept for a moment and written together, since a transaction costs more than a small file. Whoever needs to
know that they are written waits for `flush`.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence

import structlog

from broker.errors import BrokerError, Unavailable
from broker.models.decisions import Made
from broker.models.history import Observed
from broker.models.tasks import Event, Task, Work
from broker.services.decisions import Decisions
from broker.services.history import Transfers
from broker.storage.database import Database
from broker.storage.tasks import Tasks
from broker.storage.work import Result, Works
from broker.tasks.fence import Fence
from broker.tasks.tuner import Done
from coalloc.intervals import Intervals

__all__ = ["Recorder"]

DECIDED = 1000
"""Decisions that are held at most: of more, the newest are not kept."""
SHOWN = 300
"""Characters of an error that its event tells."""
log = structlog.get_logger("broker.tasks")


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
            self._later(task, max(0.0, result.not_before - time.time()))
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
        """Write what there is; the leases whose results counted.

        :raises Unavailable: when it cannot be written now: then it is kept
        """
        async with self._writing:
            results, moved, events = self._results, self._bytes, self._events
            self._results, self._bytes, self._events = [], Counter(), []
            if not (results or moved or events or self._progress):
                return set()
            try:
                accepted = await self._write(worker, results, moved, events)
            except (Unavailable, asyncio.CancelledError):
                self._results, self._events = results + self._results, events + self._events
                self._bytes = moved + self._bytes
                raise
            except Exception:
                log.exception("results cannot be written together")
                accepted = await self._one_by_one(worker, results)
        await self._learn()
        return accepted

    async def _one_by_one(self, worker: str, results: Sequence[Result]) -> set[tuple[int, int]]:
        """Write each for itself: one that cannot be written has failed, and takes no other with it."""
        accepted: set[tuple[int, int]] = set()
        for each in results:
            try:
                accepted |= await self._write(worker, [each], Counter(), ())
            except Unavailable:
                self._results.append(each)
            except Exception as error:
                why = Result(each.work, "failed", error_code="UNKNOWN", error=f"cannot be recorded: {error}"[:SHOWN])
                accepted |= await self._write(worker, [why], Counter(), ())
        return accepted

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

    async def _write(
        self, worker: str, results: Sequence[Result], moved: Counter[str], events: Sequence[tuple[str, Event]]
    ) -> set[tuple[int, int]]:
        now = time.time()
        async with self._database.write() as connection:
            tasks = Tasks(connection)
            accepted = await Works(connection).complete(worker, results, now, moved)
            progress = [(held, tuple(received)) for held, received in self._progress.values()]
            await Works(connection).progress(worker, progress)
            good = [each for each in results if each.work.lease in accepted]
            ended = await tasks.finish({each.work.task_id for each in good}, now)
            ends = [(task.id, _end(task, now)) for task in ended]
            await tasks.note([*events, *_faults(good, now), *_happened(good), *ends])
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
