"""Tasks: users submit, read, change and cancel them; admins also pause them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from broker.errors import Conflict, Invalid, NoTask
from broker.models.callers import Caller
from broker.models.tasks import Event, NewTask, Task, WorkKind, moves_bytes
from broker.models.work import PlannedWork
from broker.storage.database import Database, retried
from broker.storage.dialects import read_clock
from broker.storage.task_deadlines import DeadlineStore
from broker.storage.tasks import CountedTasks, FinishedWork, TaskFilter
from broker.storage.tasks import TaskStore as Stored
from broker.storage.tokens import TokenStore

__all__ = ["TaskReceipt", "Tasks", "added"]

Order = Sequence[tuple[str, bool]]
UNTOLD = ("deadline_chance", "deadline_holds_at", "deadline_grade")
"""What is known about a deadline, until it is changed."""
TRANSFERRED: tuple[WorkKind, ...] = ("copy", "link")


class TaskReceipt(NamedTuple):
    """A task's id, and whether it is new; False if it was submitted before."""

    task: str
    new: bool


async def added(connection: AsyncConnection, new: NewTask) -> TaskReceipt:
    """Add a task in a transaction of the caller, unless its owner submitted it before.

    :raises Conflict: when the existing task is of another kind
    """
    kind: WorkKind = "look" if new.kind == "TRANSFER" else "delete"
    planned = [PlannedWork.of(kind, item) for item in new.items]
    return TaskReceipt(*await Stored(connection).add(new, planned, await read_clock(connection)))


class Tasks:
    """The tasks of all users. Users see their own, admins all.

    :param new_work: function to call with the name of a queue that has new work; empty for all queues
    """

    def __init__(self, database: Database, new_work: Callable[[str], None]) -> None:
        self._database = database
        self._new_work = new_work

    @retried
    async def submit(self, new: NewTask) -> TaskReceipt:
        """Store a task, or return the existing one if its owner submitted it before.

        :raises Conflict: when the existing task is of another kind
        """
        async with self._database.write() as connection:
            submitted = await added(connection, new)
        self.announce(new)
        return submitted

    def announce(self, new: NewTask) -> None:
        """Wake the workers of a task that was added."""
        self._new_work(new.queue)

    async def one(self, caller: Caller, number: str) -> Task:
        """Return a task. :raises NoTask: when it does not exist, or the caller may not see it"""
        async with self._database.read() as connection:
            return await self._owned(Stored(connection), caller, number)

    async def some(self, caller: Caller, numbers: Sequence[str]) -> list[Task]:
        """Return the caller's own tasks with these ids; others are left out."""
        async with self._database.read() as connection:
            return [task for task in await Stored(connection).some(numbers) if task.owner == caller.subject]

    @staticmethod
    async def _owned(stored: Stored, caller: Caller, number: str) -> Task:
        task = await stored.one(number)
        if task is None or not (task.owner == caller.subject or caller.may("admin")):
            raise NoTask(f"there is no task {number}", "choose one from the list of your tasks")
        return task

    async def page(self, task_filter: TaskFilter, order: Order, limit: int, offset: int) -> CountedTasks:
        """Return a page of tasks, without a check of permissions.

        :param task_filter: filter; unless the caller is an admin, its `owner` must be the caller
        """
        async with self._database.read() as connection:
            return await Stored(connection).page(task_filter, order, limit, offset)

    @retried
    async def change(self, caller: Caller, number: str, label: str | None, deadline: float | None) -> Task:
        """Change the label or the deadline of a task; None leaves a value unchanged. Return the task before the change.

        :raises NoTask: :raises Conflict: when the task is finished
        """
        async with self._database.write() as connection:
            stored = Stored(connection)
            task = await self._owned(stored, caller, number)
            now, others = await read_clock(connection), task.owner != caller.subject
            values: dict[str, Any] = {"label": task.label if label is None else label}
            if deadline is not None:
                values |= {"deadline": deadline, "deadline_asked": moves_bytes(task.kind, task.options)}
                values |= dict.fromkeys(UNTOLD)
                await DeadlineStore(connection).close(number, now)
            if not await stored.change(number, **values):
                raise Conflict(f"task {number} is over", "submit a new one")
            if others:
                description = ", ".join(
                    f"{name} {value}" for name, value in (("label", label), ("deadline", deadline)) if value
                )
                await stored.note([(number, Event(now, "CHANGED", False, "changed by an admin", description))])
                await TokenStore(connection).note(now, caller.subject, "change task", number)
            return task

    @retried
    async def cancel(self, caller: Caller, number: str, message: str | None = None, admin: bool = False) -> bool:
        """Cancel a task; return False if it was finished.

        :param message: admin's message to the owner
        :param admin: whether to record a cancellation by an admin, also if the caller is the owner
        :raises NoTask:
        """
        async with self._database.write() as connection:
            stored = Stored(connection)
            task, now = await self._owned(stored, caller, number), await read_clock(connection)
            admin = admin or task.owner != caller.subject
            reason = message or f"canceled by {'an admin' if admin else 'its owner'}"
            columns: dict[str, Any] = {"canceled_by_admin": admin, "cancel_message": message if admin else None}
            if not await stored.end(number, now, "CANCELED", reason, "canceled", canceled=caller.subject, **columns):
                return False
            await stored.note([(number, Event(now, "CANCELED", False, "canceled", reason))])
            if admin:
                await TokenStore(connection).note(now, caller.subject, "cancel task", number)
        return True

    @retried
    async def pause(self, caller: Caller, number: str, message: str | None) -> bool:
        """Pause a task, or resume it if `message` is None; return False if it was finished."""
        stops = message is not None
        async with self._database.write() as connection:
            stored, now = Stored(connection), await read_clock(connection)
            await self._owned(stored, caller, number)
            if not await stored.change(number, paused=message):
                return False
            event = Event(
                now, "PAUSED" if stops else "UNPAUSED", False, "paused" if stops else "resumed", message or ""
            )
            await stored.note([(number, event)])
            await TokenStore(connection).note(now, caller.subject, "pause task" if stops else "resume task", number)
        if not stops:
            self._new_work("")
        return True

    async def events(
        self, caller: Caller, number: str, errors: bool | None, limit: int, offset: int
    ) -> tuple[list[Event], int]:
        """Return events of a task, the newest first, and their total number. :raises NoTask:"""
        async with self._database.read() as connection:
            stored = Stored(connection)
            await self._owned(stored, caller, number)
            return await stored.events(number, errors, limit, offset)

    async def done(self, caller: Caller, number: str, state: str, after: int, limit: int) -> list[FinishedWork]:
        """Return the files of a task in a state: transferred (`succeeded`), `skipped` because of an error, or `failed`.

        :param after: id of the last file of the previous page
        :param limit: most files to return
        :raises NoTask:
        """
        async with self._database.read() as connection:
            stored = Stored(connection)
            task = await self._owned(stored, caller, number)
            if state != "succeeded":
                return await stored.done(number, state, after, limit)
            return [] if task.options.dry_run else await stored.done(number, state, after, limit, TRANSFERRED)

    async def planned(self, caller: Caller, number: str, after: int, limit: int) -> list[FinishedWork]:
        """Return the files that a dry run would copy, link or delete, in the order of ids.

        :param after: id of the last item of the previous page
        :param limit: most items to return
        :raises NoTask:
        :raises Invalid: when the task is no dry run
        """
        async with self._database.read() as connection:
            stored = Stored(connection)
            task = await self._owned(stored, caller, number)
            if not task.options.dry_run:
                raise Invalid(f"task {number} is not a dry run", f"request GET /broker/v1/tasks/{number}/files")
            spared = task.destination is not None and (
                task.failed or task.skipped
            )  # a task with errors would delete nothing
            return await stored.done(
                number, "succeeded", after, limit, TRANSFERRED if spared else (*TRANSFERRED, "delete")
            )
