"""Submission of tasks: checks of permissions and options, and the choice of the site that runs a task."""

import time
from collections.abc import Iterable
from uuid import UUID

from broker.errors import Forbidden, Invalid, NoCollection
from broker.models.callers import Caller
from broker.models.collections import Collection, is_id
from broker.models.submissions import Submission
from broker.models.tasks import Item, NewTask, Options
from broker.services.collection_paths import normal
from broker.services.collections.collections import Collections, CollectionUse
from broker.services.planning.task_deadlines import TaskDeadlines
from broker.services.tasks.tasks import TaskReceipt, Tasks

__all__ = ["DAY", "LONGEST", "Submissions", "due"]

DAY = 86_400.0
"""Default time to the deadline of a task, in seconds."""
LONGEST = 100 * 365.25 * DAY
"""Longest time to a deadline, in seconds."""


class Submissions:
    """The entry point for tasks of all APIs."""

    def __init__(self, collections: Collections, tasks: Tasks, deadlines: TaskDeadlines) -> None:
        self._collections = collections
        self._tasks = tasks
        self._deadlines = deadlines

    async def take(self, caller: Caller, task: NewTask, token: int | None = None) -> TaskReceipt:
        """Submit a task that `checked` permits, whose errors it also raises; return an earlier task of this submission.

        :param token: number of the caller's token
        """
        receipt = await self._tasks.submit(await self.checked(caller, task, token))
        if receipt.new:
            await self._deadlines.begin(caller, task, receipt.task)
        return receipt

    async def checked(self, caller: Caller, task: NewTask, token: int | None = None) -> NewTask:
        """Return a task of this caller with its queue, after checking that the caller has all necessary permissions.

        :param token: number of the caller's token
        :raises NoCollection: :raises NotGranted:
        :raises Invalid: when the task needs encryption, deletes the root of a collection, copies a directory into
            itself, or uses directories of several sites
        """
        if task.options.encrypt_data:
            raise Invalid(
                "nothing was submitted: encrypt_data is true, but this broker does not encrypt data between servers",
                "to send it unencrypted, submit it without encrypt_data (globus transfer: without --encrypt-data)",
            )
        if task.kind == "DELETE" and any(item.source == "/" for item in task.items):
            raise Invalid("cannot delete the root of a collection", "give its entries, or /* with globs")
        if task.source == task.destination:
            _refuse_circles(task.items)
        reaches = await self._collections.allow(caller, _uses(task))
        queue = _queue(reach.collection for reach in reaches.values())
        return task.model_copy(update={"queue": queue, "role": caller.role, "token_id": token})

    async def submit(self, caller: Caller, submission: Submission, token: int | None = None) -> TaskReceipt:
        """Submit a task of the broker's own API, with `take`, whose errors it also raises.

        :raises Invalid: when the deadline has passed, or is too far away
        :raises Forbidden: when a caller who is no admin sets a priority
        """
        now = time.time()
        if submission.priority and not caller.may("admin"):
            raise Forbidden(f"{caller.subject} may not set a priority", "leave it out, or ask an admin")
        source, destination = await self._named(caller, submission.source, submission.destination)
        task = NewTask(
            owner=caller.subject,
            **submission.model_dump(include={"kind", "submission_id", "label", "priority"}),
            source=source,
            destination=destination,
            deadline=now + DAY if submission.deadline is None else due(submission.deadline, now),
            deadline_asked=submission.deadline is not None,
            options=Options(**submission.options.model_dump()),
            items=tuple(_item(submission, item) for item in submission.items),
        )
        return await self.take(caller, task, token)

    async def _named(self, caller: Caller, source: str, destination: str | None) -> tuple[UUID, UUID | None]:
        """Return the ids of two collections, given by id or name. :raises NoCollection:"""
        known = {each.collection.name: each.collection.id for each in await self._collections.visible(caller)}
        ids = {str(number): number for number in known.values()}

        def number(word: str) -> UUID:
            if found := ids.get(word.lower()) if is_id(word) else known.get(word):
                return found
            raise NoCollection(f"there is no collection {word}", "choose one listed by GET /broker/v1/collections")

        return number(source), None if destination is None else number(destination)


def due(deadline: float, now: float) -> float:
    """Check and return a deadline. :raises Invalid: when it has passed, or is more than `LONGEST` away"""
    if deadline <= now:
        raise Invalid("the deadline has passed", "choose a later one, or leave it out for one day")
    if deadline > now + LONGEST:
        raise Invalid("the deadline is more than a hundred years away", "choose an earlier one")
    return deadline


def _item(submission: Submission, item: Item) -> Item:
    destination = normal(item.destination) if submission.kind == "TRANSFER" else ""
    return Item(**{**item.model_dump(), "source": normal(item.source), "destination": destination})


def _refuse_circles(items: Iterable[Item]) -> None:
    """Check that no item would be copied onto or into itself. :raises Invalid:"""
    for item in items:
        source, destination = item.source.rstrip("/"), item.destination.rstrip("/")
        if destination == source or destination.startswith(f"{source}/"):
            raise Invalid(f"{item.source} would be copied into itself", "choose another destination")


def _uses(task: NewTask) -> list[CollectionUse]:
    """Return the uses of collections by a task, all of which need permission."""
    if task.destination is None:
        return [CollectionUse(task.source, item.source, writes=True) for item in task.items]
    reads = [CollectionUse(task.source, item.source) for item in task.items]
    return reads + [CollectionUse(task.destination, item.destination, writes=True) for item in task.items]


def _queue(collections: Iterable[Collection]) -> str:
    """Return the site whose workers must run the task, because it uses their directories; empty if any worker can.

    :raises Invalid: when the collections are directories at several sites
    """
    sites = {each.site for each in collections if each.kind == "local"}
    if len(sites) > 1:
        raise Invalid(
            f"no worker reaches the directories of all these sites: {', '.join(sorted(sites))}",
            "use a GridFTP collection for one of them",
        )
    return next(iter(sites), "")
