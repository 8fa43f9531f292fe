"""Legs of depots: reports, and the forwarding tables that are based on them.

A depot reports as the subject that an admin named for it. So no user can lead the sessions of others over a depot.
"""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from broker.errors import Forbidden, Invalid
from broker.models.callers import Caller
from broker.models.catalogue import PORTS
from broker.models.depots import ForwardingEntry, ForwardingInstructions, ReportedLeg, WantedTickets
from broker.services.auth.quotas import Quotas
from broker.services.network.depots import named_depot, ticket_for
from broker.services.network.forwarding import LegForecast, forecast, path_from
from broker.services.network.places import Places
from broker.storage.database import Database, retried
from broker.storage.depots import DepotStore, StoredDepot
from broker.storage.legs import LegStore, StoredLeg
from broker.storage.tokens import TokenStore
from coalloc.depot.protocol.addresses import DestinationPattern, HostPort
from coalloc.history.route_values import VALID_SECONDS

__all__ = ["DepotLegs"]

MINUTES = 10
"""Time for which a table and its tickets are valid; depots get new ones every minute."""
MOST_ENTRIES = 256
MOST_SESSIONS = 100_000
"""Maximum number of sessions with one ticket, as all sessions of a depot use it."""
MOST_LISTED = 64
MOST_MEASURED = 8
"""Maximum number of legs that a depot is asked to measure at once."""
CONNECTED_SECONDS, TRIED_SECONDS = 3600.0, 600.0
"""Age at which a leg is measured again, if it was connected last, or only tried."""


class _Known(NamedTuple):
    """The depots by name, and the places of endpoints."""

    depots: Mapping[str, StoredDepot]
    servers: frozenset[HostPort]

    def place(self, name: str) -> HostPort:
        return self.depots[name].depot.place

    @property
    def by_place(self) -> Mapping[HostPort, str]:
        return {self.place(name): name for name in self.depots}

    @property
    def places(self) -> frozenset[HostPort]:
        return self.servers | self.by_place.keys()


class _Legs(NamedTuple):
    """Forecasts of legs between depots, and by host of those from depots to a server."""

    between: dict[tuple[str, str], LegForecast]
    to_server: dict[str, dict[str, LegForecast]]


class DepotLegs:
    """The legs of the registered depots."""

    def __init__(self, database: Database, places: Places, quotas: Quotas) -> None:
        self._database = database
        self._places = places
        self._quotas = quotas

    async def take(self, caller: Caller, name: str, legs: Sequence[ReportedLeg]) -> int:
        """Store the reports of a depot, and forget old ones; return the number of stored ones.

        Those about hops that are neither depots nor endpoints are left out.

        :raises NotFound: for an unknown depot
        :raises Forbidden: if the caller is not the depot's subject, and no admin
        :raises TooManyRequests: when the caller has used up its quota
        """
        known = await self._known()
        depot = _own(caller, name, known)
        self._quotas.take(caller.subject, caller.role, max(1, len(legs)))
        places = known.places - {known.place(name)}
        valid = [each for each in legs if _place(each.host, each.port) in places]
        await self._keep(depot.id, valid)
        return len(valid)

    @retried
    async def _keep(self, depot_id: int, legs: Sequence[ReportedLeg]) -> None:
        now = time.time()
        async with self._database.write() as connection:
            store = LegStore(connection)
            if legs:
                await store.add(depot_id, now, legs)
            await store.forget(depot_id, now - VALID_SECONDS)

    async def forwarding(self, caller: Caller, name: str) -> ForwardingInstructions:
        """Return the forwarding table of a depot, with tickets, and some legs without a recent report.

        :raises NotFound: for an unknown depot
        :raises Forbidden: if the caller is not the depot's subject, and no admin
        """
        known = await self._known()
        depot, now = _own(caller, name, known), time.time()
        async with self._database.read() as connection:
            store = LegStore(connection)
            stored = await store.newest(now - VALID_SECONDS)
            recent = await store.recent(depot.id, now - TRIED_SECONDS, now - CONNECTED_SECONDS)
        if caller.subject != depot.depot.subject:
            await self._note(caller.subject, name)
        chosen = await asyncio.to_thread(_next_depots, name, stored, known)
        own = known.place(name)
        unknown = sorted(known.places - {_place(*each) for each in recent} - {own})
        return ForwardingInstructions(
            seconds=60 * MINUTES,
            table=_table(caller.subject, chosen, known),
            measure=list(map(str, random.sample(unknown, min(len(unknown), MOST_MEASURED)))),
            depots=list(map(str, sorted(known.by_place.keys() - {own})[:MOST_LISTED])),
        )

    @retried
    async def _note(self, subject: str, name: str) -> None:
        """Record that a caller other than the depot got its tickets."""
        async with self._database.write() as connection:
            await TokenStore(connection).note(time.time(), subject, "get forwarding table", name)

    async def _known(self) -> _Known:
        async with self._database.read() as connection:
            depots = await DepotStore(connection).all()
        endpoints = [each.endpoint for each in (await self._places.map()).by_id.values()]
        places = (_place(each.host, each.port or PORTS[each.scheme]) for each in endpoints)
        return _Known(depots, frozenset(each for each in places if each))


def _place(host: str, port: int) -> HostPort | None:
    """Return a place with a host as in the catalogue; None if depots do not accept it."""
    try:
        return HostPort.of(host.strip("[]"), port)
    except ValueError:
        return None


def _own(caller: Caller, name: str, known: _Known) -> StoredDepot:
    """Return a depot that the caller may speak for. :raises NotFound: :raises Forbidden:"""
    stored = named_depot(name, known.depots)
    if caller.may("admin") or caller.subject == stored.depot.subject:
        return stored
    raise Forbidden(
        f"{caller.subject} is not the subject of the depot {name}",
        f'ask an admin to set its subject: PUT /broker/v1/depots/{name} with "subject"',
    )


def _next_depots(name: str, stored: Sequence[StoredLeg], known: _Known) -> dict[str, str]:
    """Return the next depot by host, for the servers to which a depot should not connect directly.

    Those with the largest gain come first.
    """
    legs = _forecasts(stored, known)
    chosen: dict[str, tuple[float, str]] = {}
    for host, direct in legs.to_server.items():
        path = path_from(name, direct, legs.between)
        if path and len(path.depots) > 1:
            chosen[host] = path.seconds - sum(direct[name]), path.depots[1]
    return {host: depot for host, (_, depot) in sorted(chosen.items(), key=lambda each: (each[1], each[0]))}


def _forecasts(stored: Sequence[StoredLeg], known: _Known) -> _Legs:
    by_place = known.by_place
    between: dict[tuple[str, str], list[ReportedLeg]] = {}
    servers: dict[tuple[HostPort, str], list[ReportedLeg]] = {}
    for each in stored:
        place = _place(each.leg.host, each.leg.port)
        if place is None:
            continue
        if place in by_place:
            between.setdefault((each.depot, by_place[place]), []).append(each.leg)
        elif place in known.servers:
            servers.setdefault((place, each.depot), []).append(each.leg)
    legs = _Legs({}, {})
    for (one, other), reports in between.items():
        if leg := forecast(reports, between.get((other, one), ())):
            legs.between[one, other] = leg
    for (place, depot), reports in servers.items():
        if leg := forecast(reports):  # of several ports of a host, the best one counts, as others may be closed
            known_ones = legs.to_server.setdefault(place.host, {})
            known_ones[depot] = min(leg, known_ones.get(depot, leg), key=sum)
    return legs


def _table(subject: str, chosen: Mapping[str, str], known: _Known) -> list[ForwardingEntry]:
    entries = []
    for name, depot in islice(chosen.items(), MOST_ENTRIES):
        host = f"[{name}]" if ":" in name else name
        wanted = WantedTickets(route=(depot,), hosts=(host,), minutes=MINUTES, sessions=MOST_SESSIONS)
        try:
            issued = ticket_for(known.depots[depot], subject, [DestinationPattern.parse(host)], wanted)
        except Invalid:  # the name of the host is too long for a ticket
            continue
        entries.append(ForwardingEntry(destination=host, next=issued))
    return entries
