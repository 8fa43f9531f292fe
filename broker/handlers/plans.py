"""Plans for fetching a dataset, or for moving files through a network."""

from typing import Annotated

from fastapi import Response
from pydantic import Discriminator, Tag

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Guarded, Reader
from broker.handlers.routers import own_router
from broker.models.plans import DatasetPlan, FlowsPlanned, FlowsRequest, PlanRequest

__all__ = ["router"]


class SeparateRoute(Guarded):
    """A route whose large requests are computed in a subprocess, after their turn for parsing."""

    elsewhere = True


router = own_router("plans", route_class=SeparateRoute)


def _kind(body: object) -> str:
    named = body if isinstance(body, dict) else {}
    return "flows" if isinstance(body, FlowsRequest) or {"hosts", "files"} & named.keys() else "dataset"


AnyPlanRequest = Annotated[
    Annotated[PlanRequest, Tag("dataset")] | Annotated[FlowsRequest, Tag("flows")],
    Discriminator(_kind),
]


@router.post("/plans", response_model=DatasetPlan | FlowsPlanned)
async def plan(request: AnyPlanRequest, caller: Reader, services: Services) -> DatasetPlan | Response:
    """Plan which source delivers which share of a dataset, or which host sends which files to which other host.

    A plan includes times and reasons. Planning transfers no data, and contacts no server.
    """
    if isinstance(request, FlowsRequest):
        return Response(await services.flows.make(request, caller), media_type="application/json")
    return await services.plans.make(request, caller.site if request.sink is None else request.sink, caller)
