"""Tasks: submission, lists, progress, and cancellation."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Header, Query, Response, status
from fastapi.sse import EventSourceResponse, format_sse_event

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Reader, Sent, Still, Transferrer
from broker.errors import Forbidden
from broker.factory import Factory
from broker.handlers.routers import RETRY, UNHINDERED, Limit, own_router
from broker.models.base import Moment, Wire
from broker.models.subjects import LONGEST
from broker.models.submissions import LINE, Accepted, FileRecord, Submission, TaskError, TaskEvent, TaskRecord
from broker.models.tasks import Status, Task, TaskKind
from broker.services.tasks.watching import version
from broker.storage.tasks import FinishedWork, TaskFilter

__all__ = ["router"]

router = own_router("tasks")
NEWEST = [("request_time", True)]
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "events, each with the task as its data", "content": {"text/event-stream": {}}},
    204: {"description": "the task is over, and Last-Event-ID is its last state"},
}


class TaskPage(Wire):
    """A page of tasks; `next` is the `before` of the following page."""

    tasks: list[TaskRecord]
    next: str | None


class Events(Wire):
    """A page of events; `next` is the `offset` of the following page."""

    events: list[TaskEvent]
    next: int | None


class Files(Wire):
    """A page of files; `next` is the `after` of the following page."""

    files: list[FileRecord]
    next: int | None


async def _shown(services: Factory, tasks: Iterable[Task]) -> list[TaskRecord]:
    """Return the records of tasks, with the names of their collections."""
    every, now = list(tasks), time.time()
    ends = {number for task in every for number in (task.source, task.destination) if number}
    collections = await services.collections.named(ends)
    return [TaskRecord.of(each, collections, now) for each in every]


@router.post("/tasks", status_code=status.HTTP_202_ACCEPTED)
async def submit(submission: Submission, caller: Transferrer, bearer: Sent, services: Services) -> Accepted:
    """Submit a transfer or a deletion. Repeated submissions with the same id create one task."""
    task, new = await services.submissions.submit(caller, submission, bearer.number)
    return Accepted(id=task, new=new)


@router.get("/tasks")
async def tasks(
    caller: Reader,
    services: Services,
    owner: Annotated[
        str | None, Query(max_length=LONGEST, pattern=LINE, description="for admins: the owner; * for all owners")
    ] = None,
    kind: Annotated[TaskKind | None, Query()] = None,
    status: Annotated[list[Status] | None, Query(max_length=4)] = None,
    label: Annotated[str | None, Query(max_length=128, pattern=LINE, description="* matches any characters")] = None,
    collection: Annotated[UUID | None, Query(description="the id of one of its collections")] = None,
    since: Annotated[Moment | None, Query(description="requested at or after")] = None,
    until: Annotated[Moment | None, Query(description="requested before")] = None,
    before: Annotated[UUID | None, Query(description="value from the previous page")] = None,
    limit: Limit = 100,
) -> TaskPage:
    """List the caller's tasks, the newest first; admins can name another owner."""
    listed_owner = owner or caller.subject
    if listed_owner != caller.subject and not caller.may("admin"):
        raise Forbidden(f"{caller.subject} may not see other users' tasks", "leave out owner")
    last = await services.tasks.one(caller, str(before)) if before else None
    task_filter = TaskFilter(
        owner=None if listed_owner == "*" else listed_owner,
        kinds=kind and [kind],
        statuses=status,
        labels=[(f"~{label}", True)] if label else [],
        requested=(since, until),
        collection=None if collection is None else str(collection),
        before=last and (last.requested_at, last.id),
    )
    page = (await services.tasks.page(task_filter, NEWEST, limit, 0)).tasks
    after = page[-1].id if len(page) == limit else None
    return TaskPage.model_construct(tasks=await _shown(services, page), next=after)


@router.get("/tasks/{number}")
async def task(number: UUID, caller: Reader, services: Services) -> TaskRecord:
    """Return one task."""
    return (await _shown(services, [await services.tasks.one(caller, str(number))]))[0]


@router.post("/tasks/{number}/cancel")
async def cancel(number: UUID, caller: Transferrer, services: Services) -> TaskRecord:
    """Cancel a task; transferred files are kept. A finished task does not change."""
    await services.tasks.cancel(caller, str(number))
    return await task(number, caller, services)


@router.get("/tasks/{number}/events")
async def events(
    number: UUID,
    caller: Reader,
    services: Services,
    errors: Annotated[bool | None, Query(description="true: only errors; false: no errors")] = None,
    offset: Annotated[int, Query(ge=0, lt=2**31)] = 0,
    limit: Limit = 100,
) -> Events:
    """List the events of a task, the newest first."""
    page, total = await services.tasks.events(caller, str(number), errors, limit, offset)
    after = offset + len(page) if offset + len(page) < total else None
    return Events.model_construct(events=[TaskEvent.of(each) for each in page], next=after)


@router.get("/tasks/{number}/files")
async def files(
    number: UUID,
    caller: Reader,
    services: Services,
    state: Annotated[Literal["succeeded", "skipped", "failed"], Query()] = "succeeded",
    after: Annotated[int, Query(ge=0, lt=2**63, description="value from the previous page")] = 0,
    limit: Limit = 100,
) -> Files:
    """List the transferred, skipped and failed files of a task, and its failed directories."""
    page = await services.tasks.done(caller, str(number), state, after, limit)
    following = page[-1].id if len(page) == limit else None
    return Files.model_construct(files=[_file(each) for each in page], next=following)


@router.get("/tasks/{number}/planned")
async def planned(
    number: UUID,
    caller: Reader,
    services: Services,
    after: Annotated[int, Query(ge=0, lt=2**63, description="value from the previous page")] = 0,
    limit: Limit = 100,
) -> Files:
    """List each `copy`, `link` and `delete` that a dry run has found so far; a deletion has its path in `source`."""
    page = await services.tasks.planned(caller, str(number), after, limit)
    following = page[-1].id if len(page) == limit else None
    return Files.model_construct(files=[_file(each) for each in page], next=following)


def _file(done: FinishedWork) -> FileRecord:
    error = TaskError(code=done.error_code, message=done.error or "") if done.error_code else None
    same = {name: getattr(done, name) for name in FinishedWork._fields if name in FileRecord.model_fields}
    return FileRecord.model_construct(**{**same, "error": error})


@router.get("/tasks/{number}/progress", response_class=Response, responses=STREAM)
async def progress(
    number: UUID,
    caller: Reader,
    services: Services,
    still: Still,
    last_event_id: Annotated[str, Header(max_length=100)] = "",
) -> Response:
    """Stream a task's progress as server-sent events: `progress` at once and at each change, `end` after the last one.

    The stream also ends after ten minutes, or when the broker stops: then reconnect with Last-Event-ID.
    """
    known = await services.tasks.one(caller, str(number))
    collections = await services.collections.named([each for each in (known.source, known.destination) if each])
    now = TaskRecord.of(known, collections, time.time())
    if now.completed_at is not None and version(now) == last_event_id:
        return Response(status_code=status.HTTP_204_NO_CONTENT)  # stops browsers from reconnecting
    watch = services.watching.watch(caller, known, collections, last_event_id)
    return EventSourceResponse(_events(watch, still), headers=UNHINDERED)


async def _events(
    watch: AsyncGenerator[TaskRecord | None, None], still: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    """Yield an event for each record, and a comment for each None, while the listener's token is valid."""
    async with aclosing(watch):
        async for record in watch:
            if not await still():
                return
            if record is None:
                yield format_sse_event(comment="still there")
                continue
            kind = "progress" if record.completed_at is None else "end"
            yield format_sse_event(data_str=record.model_dump_json(), event=kind, id=version(record), retry=RETRY)
