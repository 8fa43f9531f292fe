"""The depots that a broker knows, and its tickets for them."""

from collections.abc import Mapping, Sequence
from typing import Any

from coalloc.broker_client.connection import NONSENSE, BrokerConnection
from coalloc.broker_client.documents import document
from coalloc.config import BrokerAccess
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.route import DepotRoute, DepotTicket
from coalloc.util.addresses import ANYWHERE, AddressPolicy

__all__ = ["DepotDirectory"]

MOST_DEPOTS = 1000
LARGEST = 1 << 20


class DepotDirectory:
    """The depots of one broker.

    :param policy: policy for addresses that this user names
    """

    def __init__(self, access: BrokerAccess, policy: AddressPolicy = ANYWHERE) -> None:
        self._broker = BrokerConnection(access, "try again, or put tickets for the depots into tokens.toml")
        self._policy = policy
        self._names: Mapping[str, HostPort] | None = None

    async def complete(self, route: DepotRoute, host: str) -> tuple[DepotRoute, AddressPolicy]:
        """Return a route with the addresses of the depots that it names, tickets for a host, and the depots' policy.

        If the broker does not know all of its depots, the route stays as it is.

        :raises CoallocError: when the broker does not answer, or gives no tickets
        """
        if self._names is None:
            self._names = await self._depots()
        names = [self._name(depot) for depot in route.depots]
        if None in names:
            return route, self._policy
        answer = await self._ask("POST", "/depot-tickets", json={"route": names, "hosts": [_host(host)]})
        try:
            places, tickets = _tickets(answer["tickets"], len(names))
        except NONSENSE as error:
            raise self._broker.nonsense(error) from None
        return route._replace(depots=places, tickets=tickets), self._policy.named_by(self._broker.address)

    async def listed(self) -> Sequence[HostPort]:
        """Return all depots. :raises CoallocError: when the broker does not answer"""
        if self._names is None:
            self._names = await self._depots()
        return list(self._names.values())

    def _name(self, depot: HostPort) -> str | None:
        """Return the name of a depot, which the user has named by it or by its address; None if it is unknown."""
        assert self._names is not None, "it was read before"
        by_place = {place: name for name, place in self._names.items()}
        return depot.host if depot.host in self._names else by_place.get(depot)

    async def _depots(self) -> Mapping[str, HostPort]:
        answer = await self._ask("GET", "/depots")
        try:
            listed = answer["depots"][:MOST_DEPOTS]
            return {str(each["name"]).lower(): _place(each) for each in listed}
        except NONSENSE as error:
            raise self._broker.nonsense(error) from None

    async def _ask(self, method: str, path: str, **what: Any) -> Any:
        text = await self._broker.ask(method, path, largest=LARGEST, **what)
        try:
            return document(text)
        except NONSENSE as error:
            raise self._broker.nonsense(error) from None


def _tickets(
    given: Sequence[Mapping[str, Any]], count: int
) -> tuple[tuple[HostPort, ...], dict[HostPort, DepotTicket]]:
    if len(given) != count:
        raise ValueError("it is incomplete")
    places = tuple(map(_place, given))
    tickets = {
        place: DepotTicket(str(each["ticket"]), bytes.fromhex(each["key"]))
        for place, each in zip(places, given, strict=True)
        if each["ticket"] is not None
    }
    return places, tickets


def _place(depot: Mapping[str, Any]) -> HostPort:
    return HostPort.of(str(depot["host"]).strip("[]"), depot["port"])


def _host(host: str) -> str:
    """Return a host in the broker's form, with brackets around IPv6 addresses."""
    return f"[{host}]" if ":" in host else host.rstrip(".").lower()
