"""A user's tasks, for Globus clients."""

import time
from collections.abc import Iterable
from typing import Annotated, cast

from fastapi import Body, Query, Request

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Reader, Transferrer
from broker.factory import Factory
from broker.handlers.globus import documents, task_documents
from broker.handlers.globus.filters import between, chosen, clauses, ordered
from broker.handlers.globus.routers import (
    Document,
    Fields,
    Limit,
    Marker,
    Offset,
    Order,
    QueryText,
    TaskId,
    globus_router,
)
from broker.handlers.globus.rule_documents import pause_rules
from broker.handlers.globus.submitted_documents import ClientDocument, label, later
from broker.models.callers import Caller
from broker.models.tasks import Status, Task, TaskKind
from broker.storage.tasks import ORDERED, TaskFilter

__all__ = ["router", "shown"]

router = globus_router()
FILTERS = ("type", "status", "label", "request_time", "completion_time", "task_id")
PAGE = 1000


class TaskChange(ClientDocument):
    """The changeable parts of a task; null leaves a part unchanged."""

    label: str | None = None
    deadline: Annotated[str, Query(max_length=100)] | None = None


def task_filter(text: str, owner: str) -> TaskFilter:
    """Parse a filter for tasks of one owner. :raises Invalid: when the text is not a filter"""
    filters = clauses(text, FILTERS)
    labels = [(value.removeprefix("!"), not value.startswith("!")) for value in filters.get("label", ())]
    return TaskFilter(
        owner=owner,
        kinds=cast("list[TaskKind] | None", filters.get("type")),
        statuses=cast("list[Status] | None", filters.get("status")),
        ids=filters.get("task_id"),
        labels=labels,
        requested=between(filters.get("request_time", [])),
        completed=between(filters.get("completion_time", [])),
    )


async def shown(services: Factory, tasks: Iterable[Task], fields: str = "") -> list[Document]:
    """Return the documents of tasks, with the names of their collections."""
    every, now = list(tasks), time.time()
    numbers = {number for task in every for number in (task.source, task.destination) if number}
    collections = await services.collections.named(numbers)
    people = await services.identities.people(task.owner for task in every)
    return [chosen(task_documents.task(each, people, collections, now), fields) for each in every]


@router.get("/task_list")
async def task_list(
    caller: Reader,
    services: Services,
    limit: Limit = 10,
    offset: Offset = 0,
    orderby: Order = "request_time DESC",
    filter: QueryText = "",
    fields: Fields = "",
) -> Document:
    """List the caller's tasks, the newest first unless another order is given."""
    order = ordered(orderby, ORDERED) or [("request_time", True)]
    page = await services.tasks.page(task_filter(filter, caller.subject), order, limit, offset)
    found = await shown(services, page.tasks, fields)
    return documents.some("task_list", found, limit=limit, offset=offset, total=page.total)


@router.get("/task/{task_id}")
async def task(task_id: TaskId, caller: Reader, services: Services, fields: Fields = "") -> Document:
    """Return one task."""
    return (await shown(services, [await services.tasks.one(caller, str(task_id))], fields))[0]


@router.put("/task/{task_id}")
async def change(
    task_id: TaskId, document: Annotated[TaskChange, Body()], caller: Transferrer, services: Services, request: Request
) -> Document:
    """Change the label or the deadline of an active task."""
    deadline = None if document.deadline is None else later(document.deadline, time.time())
    await services.tasks.change(caller, str(task_id), label(document.label), deadline)
    return documents.result("result", "Updated", "Updated task", request.url.path)


@router.post("/task/{task_id}/cancel")
async def cancel(task_id: TaskId, caller: Transferrer, services: Services, request: Request) -> Document:
    """Cancel a task; transferred files are kept."""
    if await services.tasks.cancel(caller, str(task_id)):
        return documents.result("result", "Canceled", "The task has been cancelled successfully.", request.url.path)
    return documents.result(
        "result", "TaskComplete", "The task completed before the cancel request was processed.", request.url.path
    )


@router.get("/task/{task_id}/event_list")
async def event_list(
    task_id: TaskId,
    caller: Reader,
    services: Services,
    limit: Limit = 10,
    offset: Offset = 0,
    filter: QueryText = "",
    filter_is_error: bool | None = None,
) -> Document:
    """List the events of a task, the newest first."""
    values = clauses(filter, ("is_error",)).get("is_error")
    errors = filter_is_error if values is None else values[0] in ("1", "true")
    events, total = await services.tasks.events(caller, str(task_id), errors, limit, offset)
    found = map(task_documents.event, events)
    return documents.some("event_list", found, limit=limit, offset=offset, total=total)


@router.get("/task/{task_id}/successful_transfers")
async def successful_transfers(task_id: TaskId, caller: Reader, services: Services, marker: Marker = 0) -> Document:
    """List the files that a task transferred."""
    return await done(services, caller, task_id, "succeeded", marker)


@router.get("/task/{task_id}/skipped_errors")
async def skipped_errors(task_id: TaskId, caller: Reader, services: Services, marker: Marker = 0) -> Document:
    """List the files that a task skipped because of errors."""
    return await done(services, caller, task_id, "skipped", marker)


async def done(services: Factory, caller: Caller, task_id: TaskId, state: str, marker: int) -> Document:
    """Return a page of a task's files in a state ("succeeded" or "skipped") after a marker."""
    kind, document = (
        ("successful_transfers", task_documents.transferred)
        if state == "succeeded"
        else ("skipped_errors", task_documents.skipped)
    )
    page = await services.tasks.done(caller, str(task_id), state, marker, PAGE)
    after = page[-1].id if len(page) == PAGE else None
    return documents.some(kind, map(document, page), marker=marker, next_marker=after)


@router.get("/task/{task_id}/pause_info")
async def pause_info(task_id: TaskId, caller: Reader, services: Services) -> Document:
    """Return why a task is paused: an admin's message, and the pause rules of its collections."""
    task = await services.tasks.one(caller, str(task_id))
    over = task.status in ("SUCCEEDED", "FAILED")
    numbers = [number for number in (task.source, task.destination) if number and not over]
    collections = {each.id: each for each in (await services.collections.named(numbers)).values()}
    rules = await services.pause_rules.effective(collections, task.owner)
    message = None if over else task.paused
    return {
        "DATA_TYPE": "pause_info_limited",
        "pause_rules": await pause_rules(services, rules, collections, editable=False),
        "source_pause_message": message,
        "source_pause_message_share": None,
        "destination_pause_message": message if task.destination else None,
        "destination_pause_message_share": None,
    }
