"""Timers, for the clients of Globus Timers, at the paths of that service."""

import time
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Body, status

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Guarded, Sent, TimerReader, TimerUser
from broker.errors import Invalid
from broker.factory import Factory
from broker.handlers.globus.routers import ERRORS, Document
from broker.handlers.globus.submitted_timers import NewTimerDocument, TimerChange, TimerResumption
from broker.handlers.globus.tasks import shown
from broker.handlers.globus.timer_documents import timer as documented
from broker.models.callers import Caller
from broker.models.timers import Timer

__all__ = ["router"]

router = APIRouter(tags=["globus"], responses=ERRORS, route_class=Guarded)


@router.post("/v2/timer", status_code=status.HTTP_201_CREATED)
async def create(
    document: Annotated[NewTimerDocument, Body()], caller: TimerUser, bearer: Sent, services: Services
) -> Document:
    """Create a timer that submits transfers."""
    timer = await services.timers.create(bearer, document.new(caller, time.time()))
    return {"timer": documented(timer, running=False)}


@router.post("/jobs/")
async def create_job(caller: TimerUser) -> None:
    """Refuse a timer of the older form, which calls any address."""
    raise Invalid("timers that call an address are not offered by this broker", "use TimersClient.create_timer")


@router.get("/jobs/")
async def jobs(caller: TimerReader, services: Services) -> Document:
    """List the caller's timers, without their runs and the items of their transfers."""
    running = await services.timers.unfinished(caller)
    return {"jobs": [documented(each, each.id in running) for each in await services.timers.all(caller)]}


@router.get("/jobs/{job_id}")
async def job(job_id: UUID, caller: TimerReader, services: Services) -> Document:
    """Return a timer with its latest runs."""
    return await _shown(services, caller, await services.timers.one(caller, job_id))


@router.patch("/jobs/{job_id}")
async def change(
    job_id: UUID, document: Annotated[TimerChange, Body()], caller: TimerUser, services: Services
) -> Document:
    """Rename a timer."""
    return await _shown(services, caller, await services.timers.rename(caller, job_id, document.name))


@router.delete("/jobs/{job_id}")
async def delete(job_id: UUID, caller: TimerReader, services: Services) -> Document:
    """Delete a timer; tasks that it submitted continue."""
    removed = documented(await services.timers.remove(caller, job_id), running=False)
    return removed | {"status": "deleted", "activity": None, "next_run": None}


@router.post("/jobs/{job_id}/pause")
async def pause(job_id: UUID, caller: TimerReader, services: Services) -> Document:
    """Pause a timer."""
    await services.timers.pause(caller, job_id)
    return {"message": f"Successfully paused job {job_id}."}


@router.post("/jobs/{job_id}/resume")
async def resume(
    job_id: UUID, caller: TimerUser, bearer: Sent, services: Services, document: TimerResumption | None = None
) -> Document:
    """Resume a timer; a run that was missed takes place at once."""
    await services.timers.resume(bearer, job_id, None if document is None else document.update_credentials)
    return {"message": f"Successfully resumed job {job_id}."}


async def _shown(services: Factory, caller: Caller, timer: Timer) -> Document:
    """Return a timer's document with its latest runs and their tasks."""
    runs = await services.timers.runs(timer)
    numbers = [run.task_id for run in runs if run.task_id is not None]
    tasks = await shown(services, await services.tasks.some(caller, numbers))
    running = timer.id in await services.timers.unfinished(caller)
    return documented(timer, running, runs, {task["task_id"]: task for task in tasks})
