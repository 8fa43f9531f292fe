"""Subjects whose reports are set aside: kept, but ignored."""

from typing import Annotated

from fastapi import Query, status

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Admin
from broker.handlers.routers import own_router
from broker.models.access import Aside, Subject
from broker.models.base import Wire

__all__ = ["router"]

router = own_router("access")


class Asides(Wire):
    """All subjects whose reports are set aside."""

    asides: list[Aside]


class NewAside(Wire):
    """A subject whose reports are to be set aside."""

    subject: Subject


@router.get("/asides")
async def asides(caller: Admin, services: Services) -> Asides:
    """List the subjects whose reports are set aside, by name."""
    return Asides.model_construct(asides=await services.bad_replica_reports.asides())


@router.put("/asides")
async def set_aside(new: NewAside, caller: Admin, services: Services) -> Asides:
    """Set all reports of a subject aside, so that they do not influence forecasts or the states of replicas."""
    await services.bad_replica_reports.set_aside(caller.subject, new.subject)
    return Asides.model_construct(asides=await services.bad_replica_reports.asides())


@router.delete("/asides", status_code=status.HTTP_204_NO_CONTENT)
async def take_back(subject: Annotated[Subject, Query()], caller: Admin, services: Services) -> None:
    """Let the reports of a subject count again."""
    await services.bad_replica_reports.take_back(caller.subject, subject)
