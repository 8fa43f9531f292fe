"""Depots that are registered with the broker, and tickets for them.

Users get tickets only for hosts of registered endpoints, so that no depot relays to anywhere.
"""

import secrets
import time
from collections.abc import Mapping, Sequence

from broker.errors import Forbidden, Invalid, NotFound
from broker.models.callers import Caller
from broker.models.depots import IssuedDepotTicket, NewDepot, RegisteredDepot, WantedTickets
from broker.services.network.places import Places
from broker.storage.database import Database, retried
from broker.storage.depots import DepotStore, StoredDepot
from broker.storage.tokens import TokenStore
from coalloc.depot.protocol.addresses import DestinationPattern
from coalloc.depot.tickets import Ticket, key_of, sign

__all__ = ["Depots", "named_depot", "ticket_for"]


class Depots:
    """The registered depots."""

    def __init__(self, database: Database, places: Places) -> None:
        self._database = database
        self._places = places

    async def all(self) -> list[RegisteredDepot]:
        """Return all depots, by name."""
        return [each.depot for each in (await self._stored()).values()]

    async def depot(self, name: str) -> RegisteredDepot:
        """Return one depot. :raises NotFound:"""
        return named_depot(name, await self._stored()).depot

    @retried
    async def put(self, by: str, depot: NewDepot) -> RegisteredDepot:
        """Create or change a depot. :raises NotFound: when its site does not exist"""
        async with self._database.write() as connection:
            await DepotStore(connection).put(depot)
            await TokenStore(connection).note(time.time(), by, "put depot", depot.name)
        return await self.depot(depot.name)

    @retried
    async def remove(self, by: str, name: str) -> None:
        """Remove a depot. :raises NotFound:"""
        async with self._database.write() as connection:
            await DepotStore(connection).remove(name)
            await TokenStore(connection).note(time.time(), by, "remove depot", name)

    @retried
    async def issue(self, caller: Caller, wanted: WantedTickets) -> list[IssuedDepotTicket]:
        """Return a ticket for each depot of a route: to the next depot, and from the last one to the servers.

        :raises NotFound: for an unknown depot
        :raises Forbidden: for a host that no endpoint has, unless the caller is an admin
        :raises Invalid: when a ticket would be too long
        """
        known = await self._stored()
        route = [named_depot(name, known) for name in wanted.route]
        if not caller.may("admin"):
            await self._check_hosts(caller, wanted.hosts)
        servers = [DestinationPattern.parse(host) for host in wanted.hosts]
        tickets = []
        for stored, following in zip(route, [*route[1:], None], strict=True):
            to = servers if following is None else [_place(following.depot)]
            tickets.append(ticket_for(stored, caller.subject, to, wanted))
        async with self._database.write() as connection:
            thing = f"{', '.join(wanted.route)}: {', '.join(wanted.hosts)}"
            await TokenStore(connection).note(time.time(), caller.subject, "issue depot tickets", thing)
        return tickets

    async def _stored(self) -> Mapping[str, StoredDepot]:
        async with self._database.read() as connection:
            return await DepotStore(connection).all()

    async def _check_hosts(self, caller: Caller, hosts: Sequence[str]) -> None:
        endpoints = [placed.endpoint for placed in (await self._places.map()).by_id.values()]
        served = {host for each in endpoints for host in (each.host, *each.data_hosts)}
        for host in hosts:
            if host not in served:
                raise Forbidden(
                    f"{caller.subject} may not reach {host} over depots: no endpoint has this host",
                    "ask a curator to register an endpoint there",
                )


def named_depot(name: str, known: Mapping[str, StoredDepot]) -> StoredDepot:
    """Return one of the known depots. :raises NotFound:"""
    if name not in known:
        raise NotFound(f"there is no depot {name}", "choose one listed by GET /broker/v1/depots")
    return known[name]


def _place(depot: RegisteredDepot) -> DestinationPattern:
    return DestinationPattern.parse(str(depot.place))


def ticket_for(
    stored: StoredDepot, user: str, to: Sequence[DestinationPattern], wanted: WantedTickets
) -> IssuedDepotTicket:
    """Return a ticket of a user for a depot.

    :raises Invalid: when it would be too long
    """
    depot = stored.depot
    if stored.secret is None:
        return IssuedDepotTicket(depot=depot.name, host=depot.host, port=depot.port)
    expires, secret = int(time.time()) + 60 * wanted.minutes, stored.secret.encode()
    ticket = Ticket(
        secrets.token_urlsafe(9),
        user,
        depot.name,
        tuple(to),
        expires,
        wanted.bytes,
        wanted.sessions,
        wanted.client or "",
    )
    try:
        text = sign(ticket, secret)
    except ValueError as error:
        raise Invalid(f"no ticket for {depot.name}: {error}", "ask for fewer hosts at once") from None
    key = key_of(text, secret).hex()
    return IssuedDepotTicket(
        depot=depot.name, host=depot.host, port=depot.port, ticket=text, key=key, expires_at=float(expires)
    )
