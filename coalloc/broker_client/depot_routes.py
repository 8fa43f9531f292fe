"""The routes over depots that a user names, with this user's tickets, and those of a broker."""

from collections.abc import Mapping, Sequence

from coalloc.broker_client.depots import DepotDirectory
from coalloc.config import DEPOTS_FORM, access, depot_tickets, own_depots, own_policy
from coalloc.depot.completion import Completion
from coalloc.depot.data_routes import DataRoutes
from coalloc.depot.dialer import DepotRoutes
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.route import DepotRoute, DepotTicket, tickets_of
from coalloc.errors import UsageError
from coalloc.util.addresses import AddressPolicy

__all__ = ["data_routes", "depot_routes"]

ROUTE_FORM = (
    "write --via DEPOT,DEPOT, --via DEPOT,*, --via auto or --via none; HOST=ROUTE for one server, without a port"
)


def depot_routes(texts: Sequence[str]) -> DepotRoutes:
    """Return routes over depots, with this user's tickets.

    :raises UsageError: for an invalid route or ticket
    """
    return _parsed(texts, _own_tickets())


def data_routes(
    texts: Sequence[str], broker: str | None = None, registry: Completion | None = None
) -> DataRoutes | None:
    """Return routes for data that one server sends to another; None if all are direct.

    If this user has no ticket for a depot, the broker is asked for one.

    :param texts: DEPOT, HOST=DEPOT, none or HOST=none; HOST is the receiving server
    :param broker: the broker that knows depots, and gives tickets; None for the user's usual one
    :param registry: completes routes in place of a broker; where it has no ticket, this user's tickets are used
    :raises UsageError: for an invalid route or ticket
    """
    own = _own_tickets()
    completion = registry and _before(registry, own)
    if registry is None and (known := access(broker)):
        completion = DepotDirectory(known, own_policy()).complete
    try:
        over = DataRoutes(_parsed(texts, {} if registry else own), completion)
    except ValueError as error:
        raise UsageError(
            f"invalid route: {error}", "write --via DEPOT or --via none; HOST=DEPOT for one receiving server"
        ) from None
    return over if over.some else None


def _own_tickets() -> dict[HostPort, DepotTicket]:
    try:
        return tickets_of(depot_tickets())
    except ValueError as error:
        raise UsageError(f"invalid `depots` in tokens.toml: {error}", DEPOTS_FORM) from None


def _parsed(texts: Sequence[str], tickets: Mapping[HostPort, DepotTicket]) -> DepotRoutes:
    try:
        return DepotRoutes.parse(texts, tickets, own_depots())
    except ValueError as error:
        raise UsageError(f"invalid route: {error}", ROUTE_FORM) from None


def _before(registry: Completion, own: Mapping[HostPort, DepotTicket]) -> Completion:
    """Return a completion that takes tickets from a registry, or else these."""

    async def complete(route: DepotRoute, host: str) -> tuple[DepotRoute, AddressPolicy]:
        completed, policy = await registry(route, host)
        return completed if completed.tickets else completed._replace(tickets=own), policy

    return complete
