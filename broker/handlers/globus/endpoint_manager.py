"""Tasks of all users, for admins: Globus's endpoint manager, without its pause rules (`pausing`)."""

from typing import Annotated, Literal, cast
from uuid import UUID, uuid4

from fastapi import Body, Query, Request
from pydantic import Field

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Admin
from broker.errors import Invalid, NoTask, NotFound
from broker.factory import Factory
from broker.handlers.globus import documents, tasks
from broker.handlers.globus.filters import between
from broker.handlers.globus.routers import Document, Fields, Limit, Marker, Offset, QueryText, TaskId, globus_router
from broker.handlers.globus.submitted_documents import ClientDocument, Message
from broker.models.tasks import Status
from broker.storage.tasks import TaskFilter

__all__ = ["router", "subject"]

router = globus_router("/endpoint_manager")
PAGE = 100


class TaskSelection(ClientDocument):
    """A selection of tasks."""

    task_id_list: Annotated[list[UUID], Field(max_length=1000)]


class TaskMessage(TaskSelection):
    """A selection of tasks, with a message to their owners."""

    message: Message


async def subject(services: Factory, number: UUID) -> str:
    """Return the subject with this identity.

    :raises NotFound: when the identity is unknown
    """
    for each in await services.identities.by_id([number]):
        return each.subject
    raise NotFound(f"{number} is not the id of a known user", "take the id from a task's owner_id")


@router.get("/task_list")
async def task_list(
    caller: Admin,
    services: Services,
    filter_status: QueryText = "",
    filter_task_id: QueryText = "",
    filter_owner_id: UUID | None = None,
    filter_endpoint: UUID | None = None,
    filter_endpoint_use: Literal["source", "destination"] | None = None,
    filter_is_paused: bool | None = None,
    filter_completion_time: QueryText = "",
    filter_min_faults: Annotated[int, Query(ge=0, lt=2**31)] = 0,
    last_key: QueryText = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = PAGE,
    fields: Fields = "",
) -> Document:
    """List the tasks of all users, the newest first."""
    task_filter = TaskFilter(
        owner=await subject(services, filter_owner_id) if filter_owner_id else None,
        statuses=cast("list[Status]", filter_status.split(",")) if filter_status else None,
        ids=filter_task_id.split(",") if filter_task_id else None,
        collection=str(filter_endpoint) if filter_endpoint else None,
        side=filter_endpoint_use,
        paused=filter_is_paused,
        completed=between(filter_completion_time.split(",")) if filter_completion_time else (None, None),
        faults=filter_min_faults,
        before=_key(last_key),
    )
    if not f"{filter_status}{filter_task_id}".isprintable():
        raise Invalid("the filter has an unprintable character", "leave it out")
    page = (await services.tasks.page(task_filter, [("request_time", True)], limit + 1, 0)).tasks
    more = len(page) > limit
    last = page[limit - 1] if more else None
    return {
        "DATA_TYPE": "task_list",
        "has_next_page": more,
        "last_key": f"{last.requested_at!r},{last.id}" if last else None,
        "DATA": await tasks.shown(services, page[:limit], fields),
    }


def _key(text: str) -> tuple[float, str] | None:
    if not text:
        return None
    at, _, number = text.partition(",")
    try:
        return float(at), str(UUID(number))
    except ValueError:
        raise Invalid(f"{text[:80]!r} is not a key of a page", "send the value from the previous page") from None


@router.get("/task/{task_id}")
async def task(task_id: TaskId, caller: Admin, services: Services, fields: Fields = "") -> Document:
    """Return one task of any user."""
    return await tasks.task(task_id, caller, services, fields)


@router.get("/task/{task_id}/event_list")
async def event_list(
    task_id: TaskId,
    caller: Admin,
    services: Services,
    limit: Limit = 10,
    offset: Offset = 0,
    filter_is_error: bool | None = None,
) -> Document:
    """List the events of a task, the newest first."""
    return await tasks.event_list(task_id, caller, services, limit, offset, "", filter_is_error)


@router.get("/task/{task_id}/successful_transfers")
async def successful_transfers(task_id: TaskId, caller: Admin, services: Services, marker: Marker = 0) -> Document:
    """List the files that a task transferred."""
    return await tasks.done(services, caller, task_id, "succeeded", marker)


@router.get("/task/{task_id}/skipped_errors")
async def skipped_errors(task_id: TaskId, caller: Admin, services: Services, marker: Marker = 0) -> Document:
    """List the files that a task skipped because of errors."""
    return await tasks.done(services, caller, task_id, "skipped", marker)


@router.get("/task/{task_id}/pause_info")
async def pause_info(task_id: TaskId, caller: Admin, services: Services) -> Document:
    """Return why a task is paused: an admin's message, and the pause rules of its collections."""
    return await tasks.pause_info(task_id, caller, services)


@router.post("/admin_cancel")
async def cancel(document: Annotated[TaskMessage, Body()], caller: Admin, services: Services) -> Document:
    """Cancel tasks, with a message to their owners."""
    await _known(services, document)
    for number in document.task_id_list:
        await services.tasks.cancel(caller, str(number), document.message, admin=True)
    return {"DATA_TYPE": "admin_cancel", "id": str(uuid4()), "done": True}


@router.get("/admin_cancel/{admin_cancel_id}")
async def canceled(admin_cancel_id: UUID, caller: Admin) -> Document:
    """Return that the tasks are canceled: `admin_cancel` cancels them before it responds."""
    return {"DATA_TYPE": "admin_cancel", "id": str(admin_cancel_id), "done": True}


@router.post("/admin_pause")
async def pause(
    document: Annotated[TaskMessage, Body()], caller: Admin, services: Services, request: Request
) -> Document:
    """Pause tasks, with a message to their owners."""
    await _known(services, document)
    for number in document.task_id_list:
        await services.tasks.pause(caller, str(number), document.message)
    return documents.result("result", "PauseAccepted", "The tasks are paused", request.url.path)


@router.post("/admin_resume")
async def resume(
    document: Annotated[TaskSelection, Body()], caller: Admin, services: Services, request: Request
) -> Document:
    """Resume tasks."""
    await _known(services, document)
    for number in document.task_id_list:
        await services.tasks.pause(caller, str(number), None)
    return documents.result("result", "ResumeAccepted", "The tasks go on", request.url.path)


async def _known(services: Factory, chosen: TaskSelection) -> None:
    """Check that all selected tasks exist. :raises NoTask: when one of them does not"""
    numbers = {str(number) for number in chosen.task_id_list}
    page = await services.tasks.page(TaskFilter(ids=numbers), [], len(numbers), 0)
    if missing := numbers - {task.id for task in page.tasks}:
        raise NoTask(f"there is no task {min(missing)}", "choose one from the list of tasks")
