"""Client for the broker's tasks of this user: submit, list, follow and cancel them."""

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, get_args
from urllib.parse import quote

from coalloc.broker_connection import NONSENSE, BrokerConnection, BrokerSilent
from coalloc.config import BrokerAccess
from coalloc.errors import UsageError
from coalloc.model.tasks import TaskStatus, TaskView
from coalloc.util.documents import document, number, whole

__all__ = ["BrokerTasks", "CollectionEntry", "PlannedFile", "SubmittedTask"]

TRIES = 3
"""Attempts to submit a task while the broker does not answer; the submission's id prevents duplicates."""
PAGE = 1000
UNKNOWN = "00000000-0000-0000-0000-000000000000"
"""Example of an id, used for its length."""


class CollectionEntry(NamedTuple):
    """A collection that the user may use; `kind` is gridftp, local or catalogue."""

    id: str
    name: str
    kind: str


class SubmittedTask(NamedTuple):
    """A task's id, and whether the task is new."""

    id: str
    new: bool


class PlannedFile(NamedTuple):
    """A step of a dry run: `copy`, `link` or `delete`; a deletion names only its destination."""

    kind: str
    source: str | None
    destination: str
    size: int


class BrokerTasks:
    """The user's tasks on one broker."""

    def __init__(self, access: BrokerAccess) -> None:
        self._broker = BrokerConnection(access, "try again")

    async def collections(self) -> list[CollectionEntry]:
        """Return the collections that the user may use, sorted by name."""
        answer = await self._broker.ask("GET", "/collections")
        try:
            found = document(answer)["collections"]
            return [CollectionEntry(str(each["id"]), str(each["name"]), str(each["kind"])) for each in found]
        except NONSENSE as error:
            raise self._broker.nonsense(error) from None

    async def submit(self, submission: Mapping[str, Any]) -> SubmittedTask:
        """Submit a task in the format of the broker's interface; retries without an answer create no second task."""
        for left in reversed(range(TRIES)):
            try:
                answer = await self._broker.ask("POST", "/tasks", json=submission)
                break
            except BrokerSilent:
                if not left:
                    raise
        try:
            content = document(answer)
            return SubmittedTask(str(content["id"]), bool(content["new"]))
        except NONSENSE as error:
            raise self._broker.nonsense(error) from None

    async def listed(self, statuses: Sequence[TaskStatus], most: int) -> list[TaskView]:
        """Return the user's tasks with these statuses, the newest first."""
        params: dict[str, Any] = {"status": list(statuses), "limit": min(most, PAGE)}
        found: list[TaskView] = []
        while len(found) < most:
            answer = await self._broker.ask("GET", "/tasks", params=params)
            try:
                page = document(answer)
                new, before = [_view(each) for each in page["tasks"]], page["next"]
            except NONSENSE as error:
                raise self._broker.nonsense(error) from None
            found += new
            if before is None or not new:
                break
            params["before"] = before
        return found[:most]

    async def one(self, number: str) -> TaskView:
        """Return one task. :raises BrokerRefuses: when the user has no such task"""
        return self._viewed(await self._broker.ask("GET", _path(number)))

    async def full(self, beginning: str) -> str:
        """Return the full id of a task from its beginning. :raises UsageError: when none or several match"""
        if len(beginning) >= len(UNKNOWN):
            return beginning
        found = [task.id for task in await self.listed(get_args(TaskStatus), PAGE) if task.id.startswith(beginning)]
        if len(found) == 1:
            return found[0]
        many = "several of your tasks have ids that begin" if found else "none of your tasks has an id that begins"
        raise UsageError(f"{many} with {beginning}", "list the ids with coget tasks --all, or give the whole id")

    async def planned(self, number: str) -> AsyncGenerator[list[PlannedFile], None]:
        """Yield the pages of a dry run's plan. :raises BrokerRefuses: when the user has no such dry run"""
        params: dict[str, Any] = {"limit": PAGE}
        while True:
            answer = await self._broker.ask("GET", _path(number, "/planned"), params=params)
            try:
                page = document(answer)
                found, after = [_planned(each) for each in page["files"]], page["next"]
            except NONSENSE as error:
                raise self._broker.nonsense(error) from None
            yield found
            if after is None or not found:
                return
            params["after"] = whole(after)

    async def cancel(self, number: str) -> TaskView:
        """Cancel a task and return its new state. :raises BrokerRefuses: when the user has no such task"""
        return self._viewed(await self._broker.ask("POST", _path(number, "/cancel")))

    async def follow(self, number: str, seen: str = "") -> AsyncGenerator[tuple[str, TaskView], None]:
        """Yield each new state of a task with the state's id, starting after the state with the id `seen`.

        The stream ends with the task or earlier; to continue after an early end, call this again.
        """
        async with aclosing(self._broker.events(_path(number, "/progress"), seen)) as events:
            async for event in events:
                try:
                    view = _view(event.data)
                except NONSENSE as error:
                    raise self._broker.nonsense(error) from None
                yield event.id, view

    def _viewed(self, answer: str) -> TaskView:
        try:
            return _view(document(answer))
        except NONSENSE as error:
            raise self._broker.nonsense(error) from None


def _path(number: str, what: str = "") -> str:
    return f"/tasks/{quote(number, safe='')}{what}"


def _view(task: Mapping[str, Any]) -> TaskView:
    """Parse a task of a broker's answer. :raises ValueError: :raises KeyError: :raises TypeError: if malformed"""
    if task["status"] not in get_args(TaskStatus):
        raise ValueError(f"a status of {task['status']!r}"[:80])
    counts = ("files", "files_transferred", "files_skipped", "faults", "bytes", "bytes_transferred")
    count, work = {name: whole(task[name]) for name in counts}, {name: whole(n) for name, n in task["work"].items()}
    deletes = task["kind"] == "DELETE"
    moments = ("requested_at", "completed_at", "rate", "seconds_left")
    requested, ended, rate, left = (_number(task[name]) for name in moments)
    ends = [str(each["name"] or each["id"]) for each in (task["source"], task["destination"]) if each]
    waits, remedy = _standstill(task)
    return TaskView(
        id=str(task["id"]),
        label=None if task["label"] is None else str(task["label"]),
        kind="delete" if deletes else "transfer",
        status=task["status"],
        ends=tuple(ends),
        requested=requested or 0.0,
        begun=task["started_at"] is not None,
        seconds=max(0.0, (ended or time.time()) - (requested or 0.0)),
        done_bytes=count["bytes_transferred"],
        size=max(count["bytes"], count["bytes_transferred"]),
        rate=rate or 0.0,
        eta_seconds=left,
        files=work["total"] if deletes else count["files"],
        files_done=work["succeeded"] if deletes else count["files_transferred"],
        files_skipped=count["files_skipped"],
        left_out=work["skipped"],
        failed=work["failed"],
        faults=count["faults"],
        waits=waits,
        error=task["error"] and f"{task['error']['code']}: {task['error']['message']}",
        document=task,
        files_unverified=whole(task.get("files_unverified", 0)),
        folders_not_cleared=whole(task.get("folders_not_cleared", 0)),  # older brokers do not send it
        remedy=remedy,
    )


def _standstill(task: Mapping[str, Any]) -> tuple[str, str]:
    """Return why a task does not move, and what to do; older brokers send only the reason."""
    if found := task.get("standstill"):
        return str(found["message"]), str(found["remedy"])
    return str(task["paused"] or task["waits"]), ""


def _planned(step: Mapping[str, Any]) -> PlannedFile:
    """Parse a step of a dry run. :raises ValueError: :raises KeyError: :raises TypeError: for malformed input"""
    kind, source = str(step["kind"]), str(step["source"])
    if kind == "delete":
        return PlannedFile(kind, None, source, 0)
    return PlannedFile(kind, source, str(step["destination"]), whole(step["size"]))


def _number(value: Any) -> float | None:
    return None if value is None else number(value)
