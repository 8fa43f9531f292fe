"""Depots, and tickets for them."""

from typing import Annotated

from fastapi import Path, Query, status
from pydantic import Field

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Admin, Reader, Transferrer
from broker.errors import Invalid
from broker.handlers.routers import own_router
from broker.models.base import Wire
from broker.models.catalogue import Host
from broker.models.depots import (
    ExpectedRoute,
    ForwardingInstructions,
    IssuedDepotTicket,
    NewDepot,
    RegisteredDepot,
    ReportedLeg,
    ReportedRoute,
    WantedTickets,
)
from broker.models.names import Named, SinkName

__all__ = ["router"]

router = own_router("depots")
Name = Annotated[Named, Path()]


class RegisteredDepots(Wire):
    """All depots."""

    depots: list[RegisteredDepot]


class DepotTickets(Wire):
    """A ticket for each depot of a route, in its order."""

    tickets: list[IssuedDepotTicket]


class RouteReport(Wire):
    """Uses of routes in transfers.

    - `sink`: site of the client; by default the caller's
    """

    sink: SinkName = ""
    routes: Annotated[list[ReportedRoute], Field(max_length=1000)]


class LegsReport(Wire):
    """The legs that a depot has used since its last report."""

    legs: Annotated[list[ReportedLeg], Field(max_length=256)]


class StoredRoutes(Wire):
    """The number of measurements that were stored."""

    stored: int


class ExpectedRoutes(Wire):
    """The expected times over routes, the shortest of each server first."""

    routes: list[ExpectedRoute]


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


@router.post("/depots/{name}/legs")
async def report_legs(name: Name, report: LegsReport, caller: Transferrer, services: Services) -> StoredRoutes:
    """Report legs of a depot, as its subject. Those to neither a depot nor an endpoint are ignored."""
    return StoredRoutes(stored=await services.depot_legs.take(caller, name, report.legs))


@router.get("/depots/{name}/forwarding")
async def forwarding(name: Name, caller: Transferrer, services: Services) -> ForwardingInstructions:
    """Return the forwarding table of a depot, for its subject: the next depots, with tickets; and legs to measure."""
    return await services.depot_legs.forwarding(caller, name)


@router.post("/depot-tickets")
async def issue_tickets(wanted: WantedTickets, caller: Transferrer, services: Services) -> DepotTickets:
    """Issue a ticket for each depot of a route, to the hosts of registered endpoints; for admins, to any host."""
    return DepotTickets(tickets=await services.depots.issue(caller, wanted))


@router.post("/depot-routes")
async def report_routes(report: RouteReport, caller: Transferrer, services: Services) -> StoredRoutes:
    """Report measured routes, direct and over depots. Those that are older than a week are ignored."""
    return StoredRoutes(stored=await services.routes.take(caller, report.sink, report.routes))


@router.get("/depot-routes")
async def expected_routes(
    host: Annotated[list[Host], Query(min_length=1, max_length=64)],
    caller: Reader,
    services: Services,
    sink: Annotated[SinkName, Query(description="site of the client; by default the caller's")] = "",
) -> ExpectedRoutes:
    """Return the expected times of small files from servers, from measurements of the caller and of its site."""
    return ExpectedRoutes(routes=await services.routes.expected(caller, sink, host))
