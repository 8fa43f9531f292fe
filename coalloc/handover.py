"""What is handed over to a broker: downloads that it does on its own, while nobody waits; and how they go.

A source, and the destination, is `COLLECTION:/path`, with a slash or a tilde after the colon; a source may as well be
the name of a dataset, which is a file of the broker's catalogue.
"""

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any, Literal, NamedTuple, get_args

from coalloc.brokerclient import Broker, BrokerSilent, BrokerTasks, Collection, PlannedFile, Submitted
from coalloc.config import some_access
from coalloc.errors import TransferFailed, UsageError
from coalloc.model import TaskStatus, TaskView
from coalloc.resolve import DATASET

__all__ = ["Handover", "Sync", "cancel", "dry_run", "submit", "tasks", "watch"]

Sync = Literal["exists", "size", "mtime", "checksum"]
"""What has to be the same for a file not to be transferred again, in the order of the broker's levels."""
PLACE = re.compile(r"([^:/]+):([/~].*)")
UNDER_WAY: tuple[TaskStatus, ...] = ("ACTIVE", "INACTIVE")
EVERY: tuple[TaskStatus, ...] = (*UNDER_WAY, "SUCCEEDED", "FAILED")
FIRST, LONGEST = 0.5, 5.0
"""Seconds until a broker that went away is asked again; they double."""
PATIENCE = 600.0
"""Seconds after which a broker that went away is given up."""


class Handover(NamedTuple):
    """What is to be transferred by a broker.

    With a final slash `destination` is a folder that each source gets into under its own name; else it is the name of
    the only source there. With `delete`, what is only at the destination is deleted in the end; a `dry_run` only finds
    out what would be done. `deadline` is in seconds since the epoch.
    """

    sources: tuple[str, ...]
    destination: str
    recursive: bool = False
    sync: Sync | None = None
    delete: bool = False
    dry_run: bool = False
    label: str | None = None
    deadline: float | None = None


class Place(NamedTuple):
    """A path of a collection."""

    collection: Collection
    path: str


async def submit(wish: Handover, broker: str | None = None) -> Submitted:
    """Hand a download over.

    :raises UsageError: for words that name nothing, and where no broker is known
    :raises NothingToFetchFrom: for a dataset that there is not, or a broker that does not answer
    """
    access = some_access(broker)
    board = BrokerTasks(access)
    known = await board.collections()
    destination = _place(wish.destination, known)
    if destination is None:
        raise _nowhere(wish.destination, known, "write the destination as COLLECTION:/path")
    sources = [_place(word, known) or _catalogued(word, known) for word in wish.sources]
    if datasets := [word for word in wish.sources if not _place(word, known)]:
        await Broker(access).resolve(datasets)  # what there is not is told here, and not by a task that fails
    return await board.submit(_submission(wish, sources, destination))


def _place(word: str, known: Sequence[Collection]) -> Place | None:
    """The path of a collection that a word means, if it means one that is known."""
    if not (match := PLACE.fullmatch(word)):
        return None
    for each in known:
        if match[1] in (each.name, each.id):
            return Place(each, match[2])
    return None


def _catalogued(word: str, known: Sequence[Collection]) -> Place:
    """Where the catalogue has a dataset."""
    if not DATASET.fullmatch(word):
        raise _nowhere(word, known, "write COLLECTION:/path, or the name of a dataset")
    for each in known:
        if each.kind == "catalogue":
            return Place(each, "/" + word.replace(":", "/", 1))
    raise UsageError(
        f"{word} would be a dataset, and this broker shows its catalogue to you as no collection",
        "ask its admin for a collection of kind catalogue, or write COLLECTION:/path",
    )


def _nowhere(word: str, known: Sequence[Collection], remedy: str) -> UsageError:
    names = ", ".join(each.name for each in known) or "none"
    return UsageError(f"{word} is in no collection that you may use; there is: {names}", remedy)


def _submission(wish: Handover, sources: Sequence[Place], destination: Place) -> dict[str, Any]:
    """As the broker's interface has it. :raises UsageError: when that is no one task"""
    from uuid import uuid4  # most commands have no use for it

    if len({place.collection for place in sources}) > 1:
        raise UsageError("the sources are in several collections, and a task has one", "submit them apart")
    into = destination.path.endswith("/")
    if len(sources) > 1 and not into:
        raise UsageError(
            f"{wish.destination} is the name of one file, and there are {len(sources)} sources", "end it with a slash"
        )
    targets = [destination.path + (_name(place.path) if into else "") for place in sources]
    if twice := {target for target in targets if targets.count(target) > 1}:
        raise UsageError(f"several sources would be {min(twice)}", "submit them apart")
    wanted = {"recursive": wish.recursive, "delete_destination_extra": wish.delete, "dry_run": wish.dry_run}
    options: dict[str, Any] = {name: True for name, said in wanted.items() if said}
    return {
        "submission_id": str(uuid4()),
        "source": sources[0].collection.id,
        "destination": destination.collection.id,
        "items": [
            {"source": place.path, "destination": target, "recursive": wish.recursive}
            for place, target in zip(sources, targets, strict=True)
        ],
        "options": options if wish.sync is None else {**options, "sync_level": get_args(Sync).index(wish.sync)},
        "label": wish.label,
        "deadline": wish.deadline,
    }


def _name(path: str) -> str:
    """The last part of a path; none where it is a whole collection."""
    return path.rstrip("/").rpartition("/")[2].replace("~", "")


async def dry_run(number: str, show: Callable[[PlannedFile], None], broker: str | None = None) -> None:
    """Show all that a dry run would copy, link and delete.

    :raises BrokerRefuses: when there is no such dry run of the user's
    """
    async for page in BrokerTasks(some_access(broker)).planned(number):
        for each in page:
            show(each)


async def tasks(every: bool = False, most: int = 100, broker: str | None = None) -> list[TaskView]:
    """The user's tasks that are under way, or every one; the newest first."""
    return await BrokerTasks(some_access(broker)).listed(EVERY if every else UNDER_WAY, most)


async def cancel(number: str, broker: str | None = None) -> TaskView:
    """End a task; as it is then. The beginning of its id is enough."""
    board = BrokerTasks(some_access(broker))
    return await board.cancel(await board.full(number))


async def watch(number: str, show: Callable[[TaskView], None], broker: str | None = None) -> TaskView:
    """Show a task as it goes until it is over, across restarts of the broker. Cancelling leaves the task alone.

    The beginning of its id is enough.

    :raises TransferFailed: when it failed
    :raises NothingToFetchFrom: when the broker does not answer, or not any more for `PATIENCE`
    """
    board, seen, pause, heard = BrokerTasks(some_access(broker)), "", FIRST, time.monotonic()
    last: TaskView | None = None
    number = await board.full(number)
    while True:
        try:
            async with aclosing(board.follow(number, seen)) as states:
                async for state, task in states:
                    heard, pause, seen, last = time.monotonic(), FIRST, state, task
                    show(task)
                    if task.over:
                        return _judged(task)
            heard = time.monotonic()
        except BrokerSilent as error:
            if last is None or time.monotonic() - heard > PATIENCE:
                raise
            show(last._replace(waits=f"{error.message}; it is asked again", rate=0.0, eta_seconds=None))
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST)


def _judged(task: TaskView) -> TaskView:
    if task.status == "SUCCEEDED":
        return task
    files = f"; {task.failed} of {task.files} files failed" if task.failed and task.files > 1 else ""
    error = TransferFailed(
        f"task {task.id} failed: {task.error}{files}",
        "submit it again when that is mended; with --sync size, what has arrived stays as it is",
    )
    error.report = task
    raise error
