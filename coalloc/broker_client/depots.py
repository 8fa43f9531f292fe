"""The depots that a broker knows, and its tickets for them."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from coalloc.broker_connection import NONSENSE, BrokerConnection
from coalloc.config import BrokerAccess
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.route import DepotRoute, DepotTicket
from coalloc.util.addresses import ANYWHERE, AddressPolicy
from coalloc.util.documents import document, number

__all__ = ["DepotDirectory"]

MOST_DEPOTS = 1000
MOST_HOSTS = 64
"""Maximum number of hosts in one query."""
LARGEST = 1 << 20


class DepotDirectory:
    """The depots of one broker.

    :param policy: policy for addresses that this user names
    """

    def __init__(self, access: BrokerAccess, policy: AddressPolicy = ANYWHERE) -> None:
        self._broker = BrokerConnection(access, "try again, or put tickets for the depots into tokens.toml")
        self._policy = policy
        self._site = access.site or ""
        self._known: Mapping[str, tuple[str, HostPort]] | None = None
        """Name and address of each depot, by the name in lower case."""

    async def complete(self, route: DepotRoute, host: str) -> tuple[DepotRoute, AddressPolicy]:
        """Return a route with the addresses of the depots that it names, tickets for a host, and the depots' policy.

        If the broker does not know all of its depots, the route stays as it is.

        :raises CoallocError: when the broker does not answer, or gives no tickets
        """
        known = await self._depots()
        names = [_name(depot, known) for depot in route.depots]
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
        return [place for _, place in (await self._depots()).values()]

    async def expected(self, hosts: Sequence[str]) -> dict[str, dict[str, float]]:
        """Return the expected seconds of a small file by host and route, from transfers of users at the same site.

        :raises CoallocError: when the broker does not answer
        """
        names = {_host(host): host for host in hosts if host and host.isascii() and "%" not in host}
        found: dict[str, dict[str, float]] = {}
        for begin in range(0, len(names), MOST_HOSTS):
            wanted = [*islice(names, begin, begin + MOST_HOSTS)]
            answer = await self._ask("GET", "/depot-routes", params={"host": wanted, "sink": self._site})
            try:
                for each in answer["routes"]:
                    seconds = number(each["seconds"])
                    if each["host"] in names:
                        found.setdefault(names[each["host"]], {})[str(DepotRoute.parse(each["route"]))] = seconds
            except NONSENSE as error:
                raise self._broker.nonsense(error) from None
        return found

    async def _depots(self) -> Mapping[str, tuple[str, HostPort]]:
        if self._known is None:
            answer = await self._ask("GET", "/depots")
            try:
                listed = answer["depots"][:MOST_DEPOTS]
                self._known = {str(each["name"]).lower(): (str(each["name"]), _place(each)) for each in listed}
            except NONSENSE as error:
                raise self._broker.nonsense(error) from None
        return self._known

    async def _ask(self, method: str, path: str, **what: Any) -> Any:
        text = await self._broker.ask(method, path, largest=LARGEST, **what)
        try:
            return document(text)
        except NONSENSE as error:
            raise self._broker.nonsense(error) from None


def _name(depot: HostPort, known: Mapping[str, tuple[str, HostPort]]) -> str | None:
    """Return the name of a depot that the user has named by this name or by its address; None if it is unknown.

    A name with a dot is always a host's, so that a broker cannot lead the user to a depot with the name of a host.
    """
    if depot.host in known and "." not in depot.host:
        return known[depot.host][0]
    return next((name for name, place in known.values() if place == depot), None)


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
