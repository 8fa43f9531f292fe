"""Plans: how a dataset would be fetched."""

from fastapi import APIRouter

from broker.dependencies.access import Guarded, Reader
from broker.dependencies.context import Services
from broker.models.plans import Planned, PlanWanted

__all__ = ["router"]

router = APIRouter(tags=["plans"], route_class=Guarded)


@router.post("/plans")
async def plan(wanted: PlanWanted, caller: Reader, services: Services) -> Planned:
    """What each source should deliver, when it should be done, and why. Moves nothing, and asks no server."""
    return await services.plans.make(wanted, caller.site if wanted.sink is None else wanted.sink)
