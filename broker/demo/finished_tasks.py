"""Tasks of the demonstration in the database, with events: succeeded, failed, canceled or unfinished."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.demo.decisions import DemoDownload
from broker.demo.made_up_tasks import Errand, Tuned
from broker.demo.places import Note, collection
from broker.models.catalogue import Dataset
from broker.models.lanes import CollectionPair, LaneTuning
from broker.models.names import split
from broker.models.tasks import Details, Event, NewTask, Task, Work
from broker.models.work import PlannedWork, WorkResult
from broker.storage.database import Database, retried
from broker.storage.lanes import LaneStore
from broker.storage.tasks import TaskStore
from broker.storage.work import WorkStore
from broker.storage.workers import WorkerStore

__all__ = ["Copied", "DemoResult", "carry_out", "enrol", "tune"]

WORKER = "demo"
SOURCE = str(collection("All datasets"))
PATIENCE = 7 * 86_400.0
STARTED = {"type": "GridFTP Transfer", "concurrency": 4, "parallelism": 1, "pipelining": 20}


class Copied(NamedTuple):
    """A file that a task fetched."""

    download: DemoDownload
    task: str
    work: int


class DemoResult(NamedTuple):
    """The result of an errand: copied files, and notes for the audit log."""

    copied: Sequence[Copied] = ()
    notes: Sequence[Note] = ()


@retried
async def enrol(database: Database) -> None:
    """Add the worker that ran all tasks and has since stopped."""
    async with database.write() as connection:
        await WorkerStore(connection).enrol(WORKER, "geneva", "dtn1.geneva.example, process 4711")


@retried
async def carry_out(database: Database, errand: Errand, key: UUID, end: float) -> DemoResult:
    """Create a task with the progress that it has made by the end of the history."""
    async with database.write() as connection:
        requested_at = end - errand.age
        number = await _submit(connection, errand, key, requested_at)
        if not errand.seconds:
            return DemoResult()
        began = requested_at + 2.0
        lane = await _begin(connection, number, began)
        copied = await _do(connection, errand, number, began, end)
        await LaneStore(connection).close(WORKER, [lane])
        return DemoResult(copied, await _end(connection, errand, number, began + errand.seconds))


@retried
async def tune(database: Database, tuned: Sequence[Tuned], end: float) -> None:
    """Record the changes to the numbers of lanes."""
    async with database.write() as connection:
        for each in tuned:
            pair = CollectionPair(SOURCE, str(collection(each.destination)))
            await LaneStore(connection).tune(LaneTuning(pair, end - each.age, *each[2:]))


async def _submit(connection: AsyncConnection, errand: Errand, key: UUID, now: float) -> str:
    destination = collection(errand.destination)
    new = NewTask(
        owner=errand.owner,
        kind="TRANSFER",
        submission_id=key,
        source=UUID(SOURCE),
        destination=destination,
        label=errand.label,
        deadline=now + PATIENCE,
        queue="demo",  # a queue without workers, so that no worker takes the task
        items=(),
    )
    planned = [_planned(errand, i) for i in range(len(errand.files))]
    number, _ = await TaskStore(connection).add(new, planned, now)
    return number


def _planned(errand: Errand, i: int) -> PlannedWork:
    dataset = errand.files[i]
    checksum = f"sha256:{dataset.checksums['sha256']}"
    return PlannedWork("copy", _path(dataset), _path(dataset), dataset.size or 0, Details(checksum=checksum))


def _path(dataset: Dataset) -> str:
    """Return the path of a dataset in the catalogue's collection."""
    return "/" + "/".join(split(dataset.name))


async def _begin(connection: AsyncConnection, number: str, now: float) -> int:
    """Start a task like a worker: open a lane, and add the event STARTED; return the lane's number."""
    tasks, lanes = TaskStore(connection), LaneStore(connection)
    (candidate,) = [each for each in await lanes.candidates(["demo"], now) if each.task == number]
    lane = await lanes.add(WORKER, candidate, now)
    await tasks.note([(number, Event(now, "STARTED", False, "started", orjson.dumps(STARTED).decode()))])
    return lane


async def _do(connection: AsyncConnection, errand: Errand, number: str, began: float, end: float) -> list[Copied]:
    """Record a task's copied files, one after the other, and its faults; return the copies."""
    tasks, works = TaskStore(connection), WorkStore(connection)
    held = await works.lease(number, WORKER, ["copy"], False, len(errand.files), 2**62, began)
    for trouble in errand.troubles:
        details = f"{held[trouble.file].source}: {trouble.error}"
        description = trouble.code.replace("_", " ").lower()
        await tasks.note([(number, Event(began + trouble.after, trouble.code, True, description, details))])
    done, left = held[: errand.done], held[errand.done :]
    moved, came, copied = sum(work.size for work in done), 0, []
    datasets = {_path(dataset): dataset for dataset in errand.files}
    for work in done:
        age = end - began - errand.seconds * came / moved
        copied.append(Copied(DemoDownload(errand.owner, datasets[work.source], errand.site, age), number, work.id))
        came += work.size
        seconds = errand.seconds * came / moved
        await works.complete(WORKER, [_done(work)], began + seconds)
        await tasks.note([(number, _progress(came, began, seconds))])
    await tasks.rise(number, bytes_transferred=came, faults=len(errand.troubles))
    if errand.fate == "failed":
        why = errand.troubles[0]
        failed = [WorkResult(work, "failed", error_code=why.code, error=why.error) for work in left]
        await works.complete(WORKER, failed, began + errand.seconds)
    else:
        await works.release(WORKER, {work.lease for work in left})
    return copied


def _progress(came: int, began: float, seconds: float) -> Event:
    details = {"bytes_transferred": came, "duration": round(seconds, 1), "mbps": round(came * 8e-6 / seconds, 2)}
    return Event(began + seconds, "PROGRESS", False, "progress", orjson.dumps(details).decode())


def _done(work: Work) -> WorkResult:
    counts = {"files_transferred": 1, "bytes_checksummed": work.size}
    return WorkResult(work, "succeeded", work.details.checksum, counts=counts)


async def _end(connection: AsyncConnection, errand: Errand, number: str, now: float) -> list[Note]:
    tasks = TaskStore(connection)
    if errand.fate == "paused":
        why = "the archive is full until Monday"
        await tasks.change(number, paused=why)
        await tasks.note([(number, Event(now, "PAUSED", False, "paused", why))])
        return [Note(now, "admin", "pause task", number)]
    if errand.fate == "canceled":
        reason = "canceled by its owner"
        await tasks.end(number, now, "CANCELED", reason, "canceled", canceled=errand.owner)
        await tasks.note([(number, Event(now, "CANCELED", False, "canceled", reason))])
        return []
    for task in await tasks.finish([number], now):
        await tasks.note([(number, _last(task, now))])
    return []


def _last(task: Task, now: float) -> Event:
    if task.status == "SUCCEEDED":
        return Event(now, "SUCCEEDED", False, "succeeded", f"files succeeded: {task.files_transferred}")
    return Event(now, "FAILED", True, "failed", task.error or "")
