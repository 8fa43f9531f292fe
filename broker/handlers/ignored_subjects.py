"""Ignored subjects: their reports are kept, but have no effect."""

from typing import Annotated

from fastapi import Query, status

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Admin
from broker.handlers.routers import own_router
from broker.models.base import Wire
from broker.models.callers import IgnoredSubject, Subject

__all__ = ["router"]

router = own_router("access")


class IgnoredSubjects(Wire):
    """All ignored subjects."""

    subjects: list[IgnoredSubject]


class NewIgnoredSubject(Wire):
    """A subject whose reports are to be ignored."""

    subject: Subject


@router.get("/ignored-subjects")
async def ignored_subjects(caller: Admin, services: Services) -> IgnoredSubjects:
    """List the subjects whose reports are ignored, by name."""
    return IgnoredSubjects.model_construct(subjects=await services.bad_replica_reports.ignored_subjects())


@router.put("/ignored-subjects")
async def ignore(new: NewIgnoredSubject, caller: Admin, services: Services) -> IgnoredSubjects:
    """Ignore all reports of a subject, so that they do not influence forecasts or the states of replicas."""
    await services.bad_replica_reports.ignore(caller.subject, new.subject)
    return IgnoredSubjects.model_construct(subjects=await services.bad_replica_reports.ignored_subjects())


@router.delete("/ignored-subjects", status_code=status.HTTP_204_NO_CONTENT)
async def stop_ignoring(subject: Annotated[Subject, Query()], caller: Admin, services: Services) -> None:
    """Use the reports of a subject again."""
    await services.bad_replica_reports.stop_ignoring(caller.subject, subject)
