"""The work of tasks in the database: leased in batches to workers, and completed in batches, each under a fence."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Self

import orjson
from sqlalchemy import BigInteger, Double, Integer, Text, and_, bindparam, delete, func, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.tasks import Details, Item, Work, WorkKind, WorkState
from broker.schema.tasks import lanes, tasks, work, workers
from broker.storage.tabled import Columns, tabled
from broker.storage.upsert import ALWAYS, insert

__all__ = ["Planned", "Result", "Works"]

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
    "attempt": Integer(),
    "state": Text(),
    "checksum": Text(),
    "error_code": Text(),
    "error": Text(),
    "not_before": Double(),
}
ABOUT: dict[WorkKind, str] = {"copy": "files", "delete": "files", "link": "symlinks", "expand": "directories"}
"""Which counters say what a task is about."""
COUNTED = {"succeeded": "succeeded", "failed": "failed", "skipped": "skipped"}


class Planned(NamedTuple):
    """A piece of work to be done."""

    kind: WorkKind
    source: str
    destination: str = ""
    size: int = 0
    details: Details = Details()
    phase: int = 0

    @classmethod
    def of(cls, kind: WorkKind, item: Item) -> Self:
        """The first piece of work about an item that was submitted."""
        details = Details(checksum=item.checksum, recursive=item.recursive)
        return cls("link" if item.symlink else kind, item.source, item.destination, details=details)

    @property
    def key(self) -> str:
        """The same for the same work."""
        what = orjson.dumps((self.kind, self.source, self.destination))
        return hashlib.blake2b(what, digest_size=16).hexdigest()


class Result(NamedTuple):
    """What became of a piece of work, or of an attempt if its state is `pending` again.

    :param counts: what the task's counters rise by
    """

    work: Work
    state: WorkState
    checksum: str | None = None
    error_code: str | None = None
    error: str | None = None
    not_before: float = 0.0
    counts: Mapping[str, int] = {}
    children: tuple[Planned, ...] = ()


class Works:
    """The work."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._sqlite = connection.dialect.name == "sqlite"

    async def add(self, task: str, planned: Collection[Planned]) -> int:
        """Add work to a task; how much of it is new. The task's counters of what it is about rise by that."""
        kinds: defaultdict[WorkKind, list[Planned]] = defaultdict(list)
        for each in planned:
            kinds[each.kind].append(each)
        sizes = {kind: await self._add(task, some) for kind, some in kinds.items()}
        rise = Counter(total=sum(map(len, sizes.values())), bytes=sum(sizes.get("copy", ())))
        for kind, found in sizes.items():
            if kind in ABOUT:
                rise[ABOUT[kind]] += len(found)
        if rise["total"]:
            values = {name: tasks.c[name] + count for name, count in rise.items()}
            await self._connection.execute(update(tasks).where(tasks.c.id == task).values(values))
        return rise["total"]

    async def _add(self, task: str, planned: Sequence[Planned]) -> list[int]:
        """The sizes of what was new."""
        given = tabled(self._connection, [_row(each) for each in planned], PLANNED)
        fresh = select(literal(task), *given.c, literal("pending"), literal(0), literal(0.0)).where(ALWAYS)
        names = ["task_id", *PLANNED, "state", "attempt", "not_before"]
        once = insert(self._connection, work).from_select(names, fresh)
        once = once.on_conflict_do_nothing(index_elements=["task_id", "key"])
        return list((await self._connection.execute(once.returning(work.c.size))).scalars())

    async def lease(
        self,
        task: str,
        worker: str,
        kinds: Collection[WorkKind],
        large_first: bool,
        most: int,
        most_bytes: int,
        now: float,
    ) -> list[Work]:
        """Work that may begin now, for this worker only: at least one piece if there is any, at most so many bytes."""
        unfinished = and_(work.c.task_id == task, work.c.state.in_(("pending", "leased")))
        phase = select(func.min(work.c.phase)).where(unfinished).scalar_subquery()
        free = (
            select(work.c.id, work.c.size)
            .where(
                work.c.task_id == task,
                work.c.state == "pending",
                work.c.phase == phase,
                work.c.kind.in_(list(kinds)),
                work.c.not_before <= now,
            )
            .order_by(work.c.size.desc() if large_first else work.c.size.asc(), work.c.id)
            .limit(most)
            .with_for_update(skip_locked=True, of=work)
        )
        chosen: list[int] = []
        total = 0
        for row in await self._connection.execute(free):
            total += row.size
            if chosen and total > most_bytes:
                break
            chosen.append(row.id)
        if not chosen:
            return []
        leased = (
            update(work)
            .where(work.c.id.in_(chosen))
            .values(state="leased", worker=worker, attempt=work.c.attempt + 1)
            .returning(*(work.c[name] for name in Work._fields))
        )
        rows = await self._connection.execute(leased)
        order = {number: place for place, number in enumerate(chosen)}
        return sorted((_work(row) for row in rows), key=lambda each: order[each.id])

    async def complete(self, worker: str, results: Sequence[Result], now: float) -> set[int]:
        """Record results, of those leases that this worker still has; the ids of these."""
        rows = [
            (
                each.work.id,
                each.work.attempt,
                each.state,
                each.checksum,
                each.error_code,
                each.error,
                each.not_before,
            )
            for each in results
        ]
        given = tabled(self._connection, rows, DONE)
        held = and_(
            work.c.id == given.c.id,
            work.c.attempt == given.c.attempt,
            work.c.worker == worker,
            work.c.state == "leased",
        )
        kept = {name: given.c[name] for name in DONE if name not in ("id", "attempt")}
        done = update(work).where(held).values(**kept, worker=None, finished_at=now).returning(work.c.id)
        accepted = {row.id for row in await self._connection.execute(done)}
        await self._count([each for each in results if each.work.id in accepted])
        return accepted

    async def progress(self, worker: str, received: Sequence[tuple[Work, tuple[tuple[int, int], ...]]]) -> None:
        """Keep what of these files has arrived, of those leases that this worker still has."""
        if not received:
            return
        rows = [{"number": each.id, "ranges": orjson.dumps(ranges).decode()} for each, ranges in received]
        held = update(work).where(work.c.id == bindparam("number"), work.c.worker == worker)
        await self._connection.execute(held.values(received=bindparam("ranges")), rows)

    async def _count(self, results: Sequence[Result]) -> None:
        """Add children, and let counters rise; tasks in the order of their ids, so that none waits in a circle."""
        rises: defaultdict[str, Counter[str]] = defaultdict(Counter)
        children: defaultdict[str, list[Planned]] = defaultdict(list)
        for each in results:
            rise = rises[each.work.task_id]
            rise.update(each.counts)
            if each.state in COUNTED:
                rise[COUNTED[each.state]] += 1
            if each.state in ("failed", "skipped") and each.work.kind == "copy":
                rise["bytes"] -= each.work.size
            if each.state == "pending" and each.error_code:
                rise["faults"] += 1
            children[each.work.task_id] += each.children
        for task in sorted(rises):
            rise = rises[task]
            if rise:
                values = {name: tasks.c[name] + count for name, count in rise.items()}
                await self._connection.execute(update(tasks).where(tasks.c.id == task).values(values))
            await self.add(task, children[task])

    async def release(self, worker: str, held: Sequence[Work], not_before: float = 0.0) -> None:
        """Give back what was leased and not begun, as if it had not been."""
        given = [each.id for each in held]
        back = update(work).where(work.c.id.in_(given), work.c.worker == worker, work.c.state == "leased")
        await self._connection.execute(
            back.values(state="pending", worker=None, attempt=work.c.attempt - 1, not_before=not_before)
        )

    async def enrol(self, worker: str, site: str, place: str, now: float) -> None:
        """A worker begins."""
        await self._connection.execute(
            workers.insert().values(id=worker, site=site, place=place, started_at=now, seen_at=now)
        )

    async def beat(self, worker: str, now: float) -> bool:
        """A worker is there; False when it was taken for dead, and its leases are others' by now."""
        seen = update(workers).where(workers.c.id == worker).values(seen_at=now)
        return bool((await self._connection.execute(seen)).rowcount)

    async def leave(self, gone: Collection[str], error_code: str | None = None) -> None:
        """Workers have gone: what they had leased is free again."""
        mine = and_(work.c.worker.in_(list(gone)), work.c.state == "leased")
        free = update(work).where(mine).values(state="pending", worker=None, error_code=error_code)
        await self._connection.execute(free)
        await self._connection.execute(delete(lanes).where(lanes.c.worker.in_(list(gone))))
        await self._connection.execute(delete(workers).where(workers.c.id.in_(list(gone))))

    async def dead(self, before: float) -> list[str]:
        """Workers that were not seen since."""
        rows = await self._connection.execute(select(workers.c.id).where(workers.c.seen_at < before))
        return list(rows.scalars())


def _row(each: Planned) -> tuple[Any, ...]:
    details = orjson.dumps(tuple(each.details)).decode()
    return each.key, each.kind, each.phase, each.source, each.destination, each.size, details


def _work(row: Any) -> Work:
    fields = dict(row._mapping)
    received = orjson.loads(fields["received"] or "[]")
    fields |= {"details": Details(*orjson.loads(fields["details"])), "received": tuple(map(tuple, received))}
    return Work(**fields)
