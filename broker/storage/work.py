"""Work items in the database. Workers lease and complete them in batches; a result counts only with a valid lease."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Double,
    Integer,
    ScalarSelect,
    Select,
    Subquery,
    Text,
    and_,
    bindparam,
    case,
    func,
    insert,
    literal,
    or_,
    select,
    union_all,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.tasks import Details, Work, WorkKind
from broker.models.work import PlannedWork, WorkResult, restored, storable
from broker.schema.tasks import UNFINISHED, tasks, work, workers
from broker.storage.dialects import Columns, among, gathered, tabled
from coalloc.safe_text import one_line

__all__ = ["WELL", "WorkStore", "earliest"]

PLANNED: Columns = {
    "key": Text(),
    "kind": Text(),
    "phase": Integer(),
    "source": Text(),
    "destination": Text(),
    "size": BigInteger(),
    "details": Text(),
}
DONE: Columns = {
    "id": BigInteger(),
    "leases": BigInteger(),
    "state": Text(),
    "checksum": Text(),
    "error_code": Text(),
    "error": Text(),
    "size": BigInteger(),
    "pause": Double(),
}
ABOUT: dict[WorkKind, str] = {
    "copy": "files",
    "delete": "files",
    "link": "symlinks",
    "expand": "directories",
    "remove": "directories",
}
"""The task's counter for each kind of work item."""
HELD: Columns = {"id": BigInteger(), "leases": BigInteger()}
WORK = [work.c[name] for name in Work._fields]
WRITTEN = ("details", "received")
"""Columns with JSON."""
LARGEST = 2**63 - 1
WELL = {"error_code": None, "error": None, "error_side": "", "error_since": None}
"""The values of the error columns of a task without an error."""
COUNTED = {"succeeded": "succeeded", "failed": "failed", "skipped": "skipped"}


def earliest(task: ColumnElement[str]) -> ScalarSelect[int]:
    """Return the first phase of a task with unfinished work; work of later phases must wait for it.

    There is one subquery for each state, since an index finds the first row of a state; one for both states would scan
    all work items.
    """
    of_task = select(func.min(work.c.phase).label("phase")).where(work.c.task_id == task, UNFINISHED)
    firsts = [of_task.where(work.c.state == state).correlate(tasks) for state in ("pending", "leased")]
    return select(func.min(union_all(*firsts).subquery("firsts").c.phase)).scalar_subquery()


class WorkStore:
    """Work items in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._going_on: set[tuple[str, str]] = set()

    async def add(self, task: str, planned: Collection[PlannedWork]) -> int:
        """Add new work items to a task, and increase its counters; return the number of new items.

        Nothing is added to a task that is not active.
        """
        active = select(tasks.c.id).where(tasks.c.id == task, tasks.c.status == "ACTIVE")
        active = active.with_for_update(key_share=True)  # the strongest lock that lets others lease
        if not planned or (await self._connection.execute(active)).scalar() is None:
            return 0  # the task has ended
        first: dict[str, PlannedWork] = {}
        for each in planned:
            first.setdefault(each.key, each)
        if fresh := await self._add(task, first):
            rise = Counter(total=len(fresh))
            rise["bytes"] = sum(min(each.size, LARGEST) for each in fresh if each.kind == "copy")
            rise.update(ABOUT[each.kind] for each in fresh if each.kind in ABOUT)
            values = {name: tasks.c[name] + count for name, count in rise.items()}
            await self._connection.execute(update(tasks).where(tasks.c.id == task).values(values))
        return len(fresh)

    async def _add(self, task: str, planned: Mapping[str, PlannedWork]) -> list[PlannedWork]:
        """Add work items with new keys; return them. The caller's lock keeps others from adding to the task."""
        known = await self.known(task, planned)
        fresh = {key: each for key, each in planned.items() if key not in known}
        if not fresh:
            return []
        given = tabled(self._connection, [(key, *_row(each)) for key, each in fresh.items()], PLANNED)
        begun = (literal("pending"), literal(0), literal(0), literal(0.0))
        names = ["task_id", *PLANNED, "state", "attempt", "lost", "not_before"]
        added = insert(work).from_select(names, select(literal(task), *given.c, *begun))
        await self._connection.execute(added)
        return list(fresh.values())

    async def total(self, task: str) -> int:
        """Return the number of a task's work items, including finished ones."""
        return (await self._connection.execute(select(tasks.c.total).where(tasks.c.id == task))).scalar() or 0

    async def unplanned(self, task: str, planned: Collection[PlannedWork]) -> int:
        """Return how many of these work items a task lacks; an interrupted attempt may have added the others."""
        keys = {each.key for each in planned}
        return len(keys - await self.known(task, keys)) if keys else 0

    async def known(self, task: str, keys: Collection[str]) -> set[str]:
        """Return the keys of work items that the task has."""
        given = tabled(self._connection, [(key,) for key in keys], {"key": Text()})
        there = select(work.c.key).where(work.c.task_id == task, work.c.key.in_(select(given.c.key)))
        return set((await self._connection.execute(there)).scalars())

    async def lease(
        self,
        task: str,
        worker: str,
        kinds: Collection[WorkKind],
        large_first: bool,
        most: int,
        most_bytes: int,
        now: float | ColumnElement[float],
    ) -> list[Work]:
        """Lease due work items to a worker: at most `most_bytes` in total, but at least one item if there is any.

        No work of an ended task is leased, and none to a worker that counts as dead: no process would free the leases.

        :param kinds: kinds of work items to lease
        :param large_first: whether to lease the largest files first; otherwise the smallest
        :param most: most work items
        :param now: seconds since the epoch, or the SQL expression of the database's clock
        """
        if (task, worker) not in self._going_on and not await self._may_lease(task, worker):
            return []
        self._going_on.add((task, worker))
        free = _due(task, kinds, now).order_by(work.c.size.desc() if large_first else work.c.size).limit(most)
        chosen: list[Work] = []
        total = 0
        for row in await gathered(self._connection, free.with_for_update(skip_locked=True, of=work), WRITTEN):
            each = _work(row)
            total += each.size
            if chosen and (total > most_bytes or each.lost):
                break
            chosen.append(each._replace(attempt=each.attempt + 1, leases=each.leases + 1))
            if each.lost:  # leased alone, as it may have caused the death of an earlier worker
                break
        if chosen:
            taken = update(work).where(among(self._connection, work.c.id, [each.id for each in chosen]))
            begun = {"attempt": work.c.attempt + 1, "leases": work.c.leases + 1}
            await self._connection.execute(taken.values(state="leased", worker=worker, **begun))
        return chosen

    async def _may_lease(self, task: str, worker: str) -> bool:
        """Lock a task and a worker if both are active; return whether they are.

        A transaction that ends one of them waits for this one, and then sees its leases.
        """
        active = (tasks.c.id == task, tasks.c.status == "ACTIVE")
        both = select(workers.c.id, tasks.c.id).join_from(workers, tasks, and_(*active)).where(workers.c.id == worker)
        both = both.with_for_update(read=True, key_share=True)
        return (await self._connection.execute(both)).first() is not None

    async def leased(self, worker: str) -> set[tuple[int, int]]:
        """Return all leases of a worker."""
        mine = select(work.c.id, work.c.leases).where(work.c.worker == worker, work.c.state == "leased")
        return {(number, lease) for number, lease in await gathered(self._connection, mine)}

    async def held(self, worker: str, leases: Collection[tuple[int, int]]) -> set[tuple[int, int]]:
        """Return the leases among these that a worker still has."""
        numbers = sorted({number for number, _ in leases})
        ours = (work.c.worker == worker, work.c.state == "leased")
        found = select(work.c.id, work.c.leases).where(among(self._connection, work.c.id, numbers), *ours)
        return {(number, lease) for number, lease in await self._connection.execute(found)} & set(leases)

    async def some(self, *which: ColumnElement[bool], most: int | None = None) -> list[Work]:
        """Return the work items that meet all conditions, in the order of ids."""
        chosen = select(*WORK).where(*which).order_by(work.c.id).limit(most)
        return [_work(row) for row in await gathered(self._connection, chosen, WRITTEN)]

    async def writing(self, numbers: Collection[int]) -> list[Work]:
        """Return the work items with these ids, of any task, that may have partial files."""
        unswept = select(tasks.c.id).where(tasks.c.unswept.is_not(None))
        there = or_(work.c.state.in_(("pending", "leased")), work.c.task_id.in_(unswept))
        return await self.some(among(self._connection, work.c.id, list(numbers)), there)

    async def complete(
        self, worker: str, results: Sequence[WorkResult], now: float, moved: Mapping[str, int] = {}
    ) -> set[tuple[int, int]]:
        """Record the results of leases that a worker still has, and return these leases.

        If there are two results for one lease, the first counts.

        :param moved: newly transferred bytes, by task
        """
        first: dict[tuple[int, int], WorkResult] = {}
        for each in results:
            first.setdefault(each.work.lease, each)
        accepted = await self._complete(worker, first, now) if first else set()
        await self._count([each for lease, each in first.items() if lease in accepted], moved, now)
        return accepted

    async def _complete(
        self, worker: str, first: Mapping[tuple[int, int], WorkResult], now: float
    ) -> set[tuple[int, int]]:
        rows = [_done(each) for each in first.values()]
        given = tabled(self._connection, rows, DONE)
        columns = {name: given.c[name] for name in DONE if name in work.c and name not in HELD}
        over = {"not_before": now + given.c.pause, "worker": None, "finished_at": now}
        done = update(work).where(self._held(worker, given)).values(**columns, **over)
        if (await self._connection.execute(done)).rowcount == len(first):
            return set(first)
        now_over = select(work.c.id, work.c.leases).where(work.c.id == given.c.id, work.c.finished_at == now)
        return {(number, lease) for number, lease in await gathered(self._connection, now_over)} & set(first)

    async def progress(self, worker: str, received: Sequence[tuple[Work, tuple[tuple[int, int], ...]]]) -> None:
        """Store the received ranges of files, for leases that a worker still has."""
        if not received:
            return
        rows = [
            {"number": each.id, "lease": each.leases, "ranges": orjson.dumps(ranges).decode()}
            for each, ranges in received
        ]
        ours = (work.c.id == bindparam("number"), work.c.leases == bindparam("lease"), work.c.worker == worker)
        held = update(work).where(*ours)
        await self._connection.execute(held.values(received=bindparam("ranges")), rows)

    async def _count(self, results: Sequence[WorkResult], moved: Mapping[str, int], now: float) -> None:
        """Add the children of results, and update the tasks' counters and errors.

        A task keeps its latest error until a work item succeeds. Tasks are updated in the order of their ids, to avoid
        deadlocks.
        """
        rises = defaultdict(Counter, {task: Counter(bytes_transferred=count) for task, count in moved.items()})
        children: defaultdict[str, list[PlannedWork]] = defaultdict(list)
        trouble: dict[str, Mapping[str, Any]] = {}
        for each in results:
            rise = rises[each.work.task_id]
            rise.update(each.counts)
            if each.state in COUNTED:
                rise[COUNTED[each.state]] += 1
            if each.size is not None:
                rise["bytes"] += min(each.size, LARGEST) - each.work.size
            if each.state in ("failed", "skipped") and each.work.kind == "copy":
                rise["bytes"] -= each.work.size
            if each.state == "pending" and each.error_code:
                rise["faults"] += 1
                trouble[each.work.task_id] = _trouble(each, now)
            elif each.state == "succeeded":
                trouble[each.work.task_id] = WELL
            children[each.work.task_id] += each.children
        for task in sorted(rises):
            values: dict[str, Any] = {name: tasks.c[name] + count for name, count in rises[task].items()}
            values |= trouble.get(task, {})
            if values:
                await self._connection.execute(update(tasks).where(tasks.c.id == task).values(values))
            await self.add(task, children[task])

    async def release(self, worker: str, held: Collection[tuple[int, int]]) -> None:
        """Give back leases that a worker still has: the work items are pending again, and keep their `received` ranges.

        Lease numbers are not reused, so that a late release does not free a newer lease.
        """
        if held:
            given = tabled(self._connection, list(held), HELD)
            back = update(work).where(self._held(worker, given))
            begun = {"attempt": work.c.attempt - 1, "received": func.coalesce(work.c.received, "[]")}
            await self._connection.execute(back.values(state="pending", worker=None, **begun))

    @staticmethod
    def _held(worker: str, given: Subquery) -> ColumnElement[bool]:
        """Return the condition that a row is one of these leases, and still belongs to the worker.

        Rows should be found by id. So the other conditions are in a CASE, for which databases use no index; otherwise
        both databases would scan all leases of the worker for each row.
        """
        ours = and_(work.c.leases == given.c.leases, work.c.worker == worker, work.c.state == "leased")
        return and_(work.c.id == given.c.id, case((ours, literal(True)), else_=literal(False)))

    async def items(self, task: str) -> list[tuple[str, str]]:
        """Return the source and destination of each item of a task, as submitted."""
        query = select(work.c.kind, work.c.source, work.c.destination, work.c.details).where(
            work.c.task_id == task, work.c.kind.in_(("look", "link"))
        )
        rows = await gathered(self._connection, query, WRITTEN)
        return [
            (source, destination)
            for kind, source, destination, details in rows
            if kind == "look" or Details(*details).link is None
        ]

    async def lock(self, numbers: Collection[str]) -> None:
        """Lock tasks so that they cannot end before this transaction does.

        Transactions that change work items of several tasks lock all these tasks first.
        """
        rows = select(tasks.c.id).where(tasks.c.id.in_(sorted(numbers))).order_by(tasks.c.id)
        await self._connection.execute(rows.with_for_update(key_share=True))


def _done(result: WorkResult) -> tuple[Any, ...]:
    """Return the values of `DONE`."""
    size = min(result.work.size if result.size is None else result.size, LARGEST)
    error = result.error and one_line(result.error)
    return (*result.work.lease, result.state, result.checksum, result.error_code, error, size, result.pause)


def _trouble(result: WorkResult, now: float) -> Mapping[str, Any]:
    """Return the values of a task's error columns: an error that it has already keeps the time when it began."""
    same = and_(tasks.c.error_code == result.error_code, tasks.c.error_side == result.side)
    return {
        "error_code": result.error_code,
        "error": result.error and one_line(result.error),
        "error_side": result.side,
        "error_since": case((same, func.coalesce(tasks.c.error_since, now)), else_=now),
    }


def _due(task: str, kinds: Collection[WorkKind], now: float | ColumnElement[float]) -> Select[Any]:
    """Select the work items of a task that a worker may begin now: those of its earliest phase."""
    return select(*WORK).where(
        work.c.task_id == task,
        work.c.state == "pending",
        UNFINISHED,
        work.c.phase == earliest(literal(task)),
        work.c.kind.in_(list(kinds)),
        work.c.not_before <= now,
    )


def _row(each: PlannedWork) -> tuple[Any, ...]:
    known = each.details
    details = known._replace(link=known.link and storable(known.link), twin=known.twin and storable(known.twin))
    size = min(each.size, LARGEST)
    return (
        each.kind,
        each.phase,
        storable(each.source),
        storable(each.destination),
        size,
        orjson.dumps(tuple(details)).decode(),
    )


def _work(row: Sequence[Any]) -> Work:
    number, task, kind, phase, source, destination, size, details, attempt, lost, error_code, received, leases = row
    known = Details(*details)
    known = known._replace(link=known.link and restored(known.link), twin=known.twin and restored(known.twin))
    ranges = tuple(map(tuple, received or ()))
    return Work(
        *(number, task, kind, phase, restored(source), restored(destination), size, known),
        *(attempt, lost, error_code, ranges, leases),
    )
