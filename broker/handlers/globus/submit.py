"""Submission of tasks by Globus clients; a repeated submission creates no second task."""

import time
from typing import Annotated
from uuid import uuid4

from fastapi import Body, Request, Response, status

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Reader, Sent, Transferrer
from broker.factory import Factory
from broker.handlers.globus.documents import result
from broker.handlers.globus.routers import Document, globus_router
from broker.handlers.globus.submitted_documents import DeleteDocument, TransferDocument
from broker.handlers.globus.task_documents import submitted
from broker.models.oauth import Bearer
from broker.models.tasks import NewTask

__all__ = ["router"]

router = globus_router()


@router.get("/submission_id")
async def submission_id(caller: Reader) -> Document:
    """Return a new submission id. Repeated submissions with the same id create one task."""
    return {"DATA_TYPE": "submission_id", "value": str(uuid4())}


@router.post("/transfer", status_code=status.HTTP_202_ACCEPTED, responses={200: {"description": "sent before"}})
async def transfer(
    document: Annotated[TransferDocument, Body()],
    caller: Transferrer,
    bearer: Sent,
    services: Services,
    request: Request,
    response: Response,
) -> Document:
    """Copy files and directories from one collection to another."""
    return await _submit(document.task(caller, time.time()), bearer, services, request, response)


@router.post("/delete", status_code=status.HTTP_202_ACCEPTED, responses={200: {"description": "sent before"}})
async def delete(
    document: Annotated[DeleteDocument, Body()],
    caller: Transferrer,
    bearer: Sent,
    services: Services,
    request: Request,
    response: Response,
) -> Document:
    """Delete files and directories of a collection."""
    return await _submit(document.task(caller, time.time()), bearer, services, request, response)


async def _submit(task: NewTask, bearer: Bearer, services: Factory, request: Request, response: Response) -> Document:
    number, new = await services.submissions.take(bearer.caller, task, bearer.number)
    what = task.kind.lower()
    message = f"The {what} has been accepted and a task has been created and queued for execution"
    if not new:
        response.status_code = status.HTTP_200_OK
        message = f"This {what} was submitted before: it has a task already"
    document = result(f"{what}_result", "Accepted" if new else "Duplicate", message, request.url.path)
    return document | {"submission_id": str(task.submission_id), **submitted(number)}
