"""Plans for fetching a dataset, or for moving files through a network."""

from typing import Annotated

from fastapi import Response
from pydantic import Discriminator, Tag

from broker.dependencies.access import Guarded, Reader
from broker.dependencies.context import Services
from broker.handlers.routers import own_router
from broker.models.plans import DatasetPlan, FlowsPlanned, FlowsWanted, PlanWanted

__all__ = ["router"]


class SeparateRoute(Guarded):
    """A route whose work is done in a separate process."""

    elsewhere = True


router = own_router("plans", route_class=SeparateRoute)


def _kind(body: object) -> str:
    named = body if isinstance(body, dict) else {}
    return "flows" if isinstance(body, FlowsWanted) or {"hosts", "files"} & named.keys() else "dataset"


Wanted = Annotated[
    Annotated[PlanWanted, Tag("dataset")] | Annotated[FlowsWanted, Tag("flows")],
    Discriminator(_kind),
]


@router.post("/plans", response_model=DatasetPlan | FlowsPlanned)
async def plan(wanted: Wanted, caller: Reader, services: Services) -> DatasetPlan | Response:
    """Plan which source should deliver what of a dataset, or which host should send which files to which other host.

    A plan includes times and reasons. Planning moves nothing, and contacts no server.
    """
    if isinstance(wanted, FlowsWanted):
        return Response(await services.flows.make(wanted, caller), media_type="application/json")
    return await services.plans.make(wanted, caller.site if wanted.sink is None else wanted.sink, caller)
