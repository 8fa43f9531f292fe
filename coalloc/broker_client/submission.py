"""Tasks for a broker: transfers that it runs in the background, and their progress.

Sources and the destination have the form `COLLECTION:/path` or `COLLECTION:~/path`. A source may also be the name of a
dataset, which is a file of the broker's catalogue.
"""

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any, Literal, NamedTuple, get_args

from coalloc.broker_client import Broker, BrokerSilent, BrokerTasks, CollectionEntry, PlannedFile, SubmittedTask
from coalloc.config import some_access
from coalloc.errors import TransferFailed, UsageError
from coalloc.model.replicas import DATASET
from coalloc.model.tasks import TaskStatus, TaskView

__all__ = ["Sync", "TaskFailed", "TaskRequest", "cancel", "dry_run", "submit", "tasks", "watch"]

Sync = Literal["exists", "size", "mtime", "checksum"]
"""Properties that have to be the same for a file to be skipped, in the order of the broker's levels."""
PLACE = re.compile(r"([^:/]+):([/~].*)")
UNDER_WAY: tuple[TaskStatus, ...] = ("ACTIVE", "INACTIVE")
EVERY: tuple[TaskStatus, ...] = (*UNDER_WAY, "SUCCEEDED", "FAILED")
FIRST, LONGEST = 0.5, 5.0
"""Seconds until a silent broker is asked again; doubled each time up to the second value."""
PATIENCE = 600.0
"""Seconds after which a silent broker is given up."""


class TaskFailed(TransferFailed):
    """The failure of a broker's task, which has tried again for as long as it may."""

    _passes = False

    def __init__(self, task: TaskView, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.task = task


class TaskRequest(NamedTuple):
    """A transfer for a broker.

    A `destination` that ends with a slash is a directory, in which each source keeps its name; else it is the new name
    of the only source. `delete` deletes files that exist only at the destination, after the copy; `dry_run` lists the
    necessary actions only. `deadline` is in seconds since the epoch.
    """

    sources: tuple[str, ...]
    destination: str
    recursive: bool = False
    sync: Sync | None = None
    delete: bool = False
    dry_run: bool = False
    label: str | None = None
    deadline: float | None = None


class CollectionPath(NamedTuple):
    """A path of a collection."""

    collection: CollectionEntry
    path: str


async def submit(request: TaskRequest, broker: str | None = None) -> SubmittedTask:
    """Submit a transfer to a broker.

    :raises UsageError: if a source or the destination is in no known collection, or no broker is known
    :raises NothingToFetchFrom: for a dataset that does not exist, or a broker that does not answer
    """
    access = some_access(broker)
    board = BrokerTasks(access)
    known = await board.collections()
    destination = _place(request.destination, known)
    if destination is None:
        raise _nowhere(request.destination, known, "write the destination as COLLECTION:/path")
    sources = [_place(word, known) or _catalogued(word, known) for word in request.sources]
    if datasets := [word for word in request.sources if not _place(word, known)]:
        await Broker(access).resolve(datasets)  # report missing datasets now, and not by a failing task
    return await board.submit(_submission(request, sources, destination))


def _place(word: str, known: Sequence[CollectionEntry]) -> CollectionPath | None:
    """Return the path of a known collection that `word` names; None if it names none."""
    if not (match := PLACE.fullmatch(word)):
        return None
    for each in known:
        if match[1] in (each.name, each.id):
            return CollectionPath(each, match[2])
    return None


def _catalogued(word: str, known: Sequence[CollectionEntry]) -> CollectionPath:
    """Return the place of a dataset in the catalogue."""
    if not DATASET.fullmatch(word):
        raise _nowhere(word, known, "write COLLECTION:/path, or the name of a dataset")
    for each in known:
        if each.kind == "catalogue":
            return CollectionPath(each, "/" + word.replace(":", "/", 1))
    raise UsageError(
        f"{word} looks like a dataset, but you may use no collection of kind catalogue on this broker",
        "ask its admin for a collection of kind catalogue, or write COLLECTION:/path",
    )


def _nowhere(word: str, known: Sequence[CollectionEntry], remedy: str) -> UsageError:
    names = ", ".join(each.name for each in known) or "none"
    return UsageError(f"{word} is not in a collection that you may use; yours: {names}", remedy)


def _submission(request: TaskRequest, sources: Sequence[CollectionPath], destination: CollectionPath) -> dict[str, Any]:
    """Return the request body for the broker.

    :raises UsageError: when one task cannot contain all sources
    """
    from uuid import uuid4  # imported here because most commands do not need it

    if len({place.collection for place in sources}) > 1:
        raise UsageError(
            "the sources are in several collections, but a task has one source collection", "submit them separately"
        )
    into = destination.path.endswith("/")
    if len(sources) > 1 and not into:
        raise UsageError(
            f"{request.destination} names one file, but there are {len(sources)} sources",
            "end it with a slash",
        )
    targets = [destination.path + (_name(place.path) if into else "") for place in sources]
    if twice := {target for target in targets if targets.count(target) > 1}:
        raise UsageError(
            f"several sources would be written to {min(twice)}", "submit each with a destination of its own"
        )
    flags = {"recursive": request.recursive, "delete_destination_extra": request.delete, "dry_run": request.dry_run}
    options: dict[str, Any] = {name: True for name, is_set in flags.items() if is_set}
    return {
        "submission_id": str(uuid4()),
        "source": sources[0].collection.id,
        "destination": destination.collection.id,
        "items": [
            {"source": place.path, "destination": target, "recursive": request.recursive}
            for place, target in zip(sources, targets, strict=True)
        ],
        "options": options if request.sync is None else {**options, "sync_level": get_args(Sync).index(request.sync)},
        "label": request.label,
        "deadline": request.deadline,
    }


def _name(path: str) -> str:
    """Return the last part of a path; empty for a whole collection and for the home directory, `~`."""
    name = path.removeprefix("~").rstrip("/").rpartition("/")[2]
    return "" if name == "~" else name


async def dry_run(number: str, show: Callable[[PlannedFile], None], broker: str | None = None) -> None:
    """Show all files that a dry run would copy, link and delete.

    :raises BrokerRefuses: when the user has no such dry run
    """
    async for page in BrokerTasks(some_access(broker)).planned(number):
        for each in page:
            show(each)


async def tasks(every: bool = False, most: int = 100, broker: str | None = None) -> list[TaskView]:
    """Return the user's unfinished tasks, or all with `every`; the newest first."""
    return await BrokerTasks(some_access(broker)).listed(EVERY if every else UNDER_WAY, most)


async def cancel(number: str, broker: str | None = None) -> TaskView:
    """Cancel a task and return its new state. The beginning of its id is enough."""
    board = BrokerTasks(some_access(broker))
    return await board.cancel(await board.full(number))


async def watch(number: str, show: Callable[[TaskView], None], broker: str | None = None) -> TaskView:
    """Show the progress of a task until it is over, across restarts of the broker. Cancelling leaves the task alone.

    The beginning of its id is enough.

    :raises TaskFailed: when it failed
    :raises NothingToFetchFrom: when the broker does not answer at first, or later for `PATIENCE`
    """
    board, seen, pause, last_answer = BrokerTasks(some_access(broker)), "", FIRST, time.monotonic()
    last: TaskView | None = None
    number = await board.full(number)
    while True:
        try:
            async with aclosing(board.follow(number, seen)) as states:
                async for state, task in states:
                    last_answer, pause, seen, last = time.monotonic(), FIRST, state, task
                    show(task)
                    if task.over:
                        return _judged(task)
            last_answer = time.monotonic()
        except BrokerSilent as error:
            if last is None or time.monotonic() - last_answer > PATIENCE:
                raise
            show(last._replace(waits=f"{error.message}; asking again", rate=0.0, eta_seconds=None))
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST)


def _judged(task: TaskView) -> TaskView:
    if task.status == "SUCCEEDED":
        return task
    files = f"; {task.failed} of {task.files} files failed" if task.failed and task.files > 1 else ""
    raise TaskFailed(
        task,
        f"task {task.id} failed: {task.error}{files}",
        "fix the cause and submit it again; with --sync size, files that have arrived are not copied again",
    )
