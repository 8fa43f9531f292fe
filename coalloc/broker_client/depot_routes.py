"""The routes over depots that a user names, with this user's tickets, and those of a broker."""

from collections.abc import Sequence

from coalloc.broker_client.depots import DepotDirectory
from coalloc.config import DEPOTS_FORM, access, depot_tickets, own_depots, own_policy
from coalloc.depot.completion import Completion
from coalloc.depot.data_routes import DataRoutes
from coalloc.depot.dialer import DepotRoutes
from coalloc.depot.route import tickets_of
from coalloc.errors import UsageError

__all__ = ["data_routes", "depot_routes"]

ROUTE_FORM = (
    "write --via DEPOT,DEPOT, --via DEPOT,*, --via auto or --via none; HOST=ROUTE for one server, without a port"
)


def depot_routes(texts: Sequence[str]) -> DepotRoutes:
    """Return routes over depots, with this user's tickets.

    :raises UsageError: for an invalid route or ticket
    """
    try:
        tickets = tickets_of(depot_tickets())
    except ValueError as error:
        raise UsageError(f"depots in tokens.toml is invalid: {error}", DEPOTS_FORM) from None
    try:
        return DepotRoutes.parse(texts, tickets, own_depots())
    except ValueError as error:
        raise UsageError(f"invalid route: {error}", ROUTE_FORM) from None


def data_routes(
    texts: Sequence[str], broker: str | None = None, completion: Completion | None = None
) -> DataRoutes | None:
    """Return routes for data that one server sends to another; None if all are direct.

    A depot without a ticket of this user is asked for at the broker.

    :param texts: DEPOT, HOST=DEPOT, none or HOST=none; HOST is the receiving server
    :param broker: the broker that knows depots, and gives tickets; None for the user's usual one
    :param completion: completes routes instead of a broker
    :raises UsageError: for an invalid route or ticket
    """
    routes = depot_routes(texts)
    if completion is None and (known := access(broker)):
        completion = DepotDirectory(known, own_policy()).complete
    try:
        over = DataRoutes(routes, completion)
    except ValueError as error:
        raise UsageError(
            f"invalid route: {error}", "write --via DEPOT or --via none; HOST=DEPOT for one receiving server"
        ) from None
    return over if over.some else None
