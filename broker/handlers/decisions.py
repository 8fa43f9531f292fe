"""Decisions: the replicas chosen for a transfer, and the result."""

from typing import Annotated

from fastapi import Body
from pydantic import Discriminator, Field, Tag

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Transferrer
from broker.handlers.routers import own_router
from broker.models.base import one_or_list
from broker.models.decisions import DecisionsAccepted, Made, ReportedDecision

__all__ = ["router"]

router = own_router("history")
MOST = 100
Some = Annotated[
    Annotated[ReportedDecision, Tag("one")]
    | Annotated[list[ReportedDecision], Field(max_length=MOST, fail_fast=True), Tag("list")],
    Discriminator(one_or_list),
]


@router.post("/decisions")
async def report(
    decided: Annotated[Some, Body()],
    caller: Transferrer,
    services: Services,
) -> DecisionsAccepted:
    """Report how one or several files were fetched. They are stored before the response; repeats have no effect."""
    some = decided if isinstance(decided, list) else [decided]
    return await services.decisions.keep(caller.subject, [Made(each) for each in some], caller.role)
