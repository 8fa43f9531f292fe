"""Depots, and tickets for them."""

from typing import Annotated

from fastapi import Path, status

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Admin, Reader, Transferrer
from broker.errors import Invalid
from broker.handlers.routers import own_router
from broker.models.base import Wire
from broker.models.depots import IssuedDepotTicket, NewDepot, RegisteredDepot, WantedTickets
from broker.models.names import Named

__all__ = ["router"]

router = own_router("depots")
Name = Annotated[Named, Path()]


class RegisteredDepots(Wire):
    """All depots."""

    depots: list[RegisteredDepot]


class DepotTickets(Wire):
    """A ticket for each depot of a route, in its order."""

    tickets: list[IssuedDepotTicket]


@router.get("/depots")
async def depots(caller: Reader, services: Services) -> RegisteredDepots:
    """List all depots, by name."""
    return RegisteredDepots(depots=await services.depots.all())


@router.get("/depots/{name}")
async def depot(name: Name, caller: Reader, services: Services) -> RegisteredDepot:
    """Return one depot."""
    return await services.depots.depot(name)


@router.put("/depots/{name}")
async def put_depot(name: Name, depot: NewDepot, caller: Admin, services: Services) -> RegisteredDepot:
    """Create or change a depot. Its secret is kept, and not shown to anybody."""
    if depot.name != name:
        raise Invalid(f"the address has the name {name}, but the body has {depot.name}", "send the same name in both")
    return await services.depots.put(caller.subject, depot)


@router.delete("/depots/{name}", status_code=status.HTTP_204_NO_CONTENT)
async def remove_depot(name: Name, caller: Admin, services: Services) -> None:
    """Delete a depot. Its tickets stay valid until they expire."""
    await services.depots.remove(caller.subject, name)


@router.post("/depot-tickets")
async def issue_tickets(wanted: WantedTickets, caller: Transferrer, services: Services) -> DepotTickets:
    """Issue a ticket for each depot of a route, to the hosts of registered endpoints; for admins, to any host."""
    return DepotTickets(tickets=await services.depots.issue(caller, wanted))
