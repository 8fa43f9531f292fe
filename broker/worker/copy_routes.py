"""Routes over depots of a worker's copies between servers: tickets for the depots, and events of tasks."""

import time

from broker.errors import BrokerError
from broker.models.callers import Caller
from broker.models.depots import RegisteredDepot, WantedTickets
from broker.models.tasks import Event
from broker.services.network.depots import Depots
from broker.worker.recorder import Recorder
from coalloc.api import DataRoutes
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.route import DepotRoute, DepotTicket
from coalloc.errors import Unreachable
from coalloc.model.routes import DIRECTLY
from coalloc.util.addresses import ANYWHERE, AddressPolicy

__all__ = ["CopyRoutes", "DepotRegistry"]

WORKER = Caller(subject="coget-broker", role="admin")
"""User of the workers' tickets: one connection may serve tasks of several users."""
SESSIONS, BYTES = 100_000, 10**15
"""Limits of a ticket, which all copies to one server use for up to half an hour."""
MOST_NOTED = 1000
"""Maximum number of tasks whose last event is remembered."""


class DepotRegistry:
    """The tickets for depots that are registered with this broker."""

    def __init__(self, depots: Depots) -> None:
        self._depots = depots

    async def complete(self, route: DepotRoute, host: str) -> tuple[DepotRoute, AddressPolicy]:
        """Return a route of one depot with the depot's address and a ticket for a host, if the depot is registered.

        :raises Unreachable: when the database is unavailable, or there is no ticket for this host
        """
        try:
            depot = _registered(route.depots[0], await self._depots.all())
            if depot is None:
                return route, ANYWHERE
            to = f"[{host}]" if ":" in host else host.rstrip(".").lower()
            wanted = WantedTickets(route=(depot.name,), hosts=(to,), sessions=SESSIONS, bytes=BYTES)
            (issued,) = await self._depots.issue(WORKER, wanted)
        except (BrokerError, ValueError) as error:
            raise Unreachable(str(error), "choose one listed by GET /broker/v1/depots") from None
        place = HostPort.of(issued.host.strip("[]"), issued.port)
        known = {place: DepotTicket(issued.ticket, bytes.fromhex(issued.key))} if issued.ticket and issued.key else {}
        return route._replace(depots=(place,), tickets=known), ANYWHERE


def _registered(named: HostPort, depots: list[RegisteredDepot]) -> RegisteredDepot | None:
    """Return the depot of a name without a dot, or at an address; None if none is registered."""
    by_name = [each for each in depots if each.name.lower() == named.host and "." not in named.host]
    by_place = [each for each in depots if each.place == named]
    return next(iter(by_name or by_place), None)


class CopyRoutes:
    """The routes of a worker's copies between servers.

    :param via: None if all copies are direct
    """

    def __init__(self, via: DataRoutes | None = None) -> None:
        self.via = via
        self._noted: dict[str, str] = {}
        """Route in the last event of each task."""

    def note(self, recorder: Recorder, task: str, taken: str, why_direct: str) -> None:
        """Add an event to a task whose data take another route than before.

        :param taken: the depot, or "none" for the direct connection
        :param why_direct: why the wanted depot is not used; empty if it is, or if none is wanted
        """
        if self._noted.get(task) == taken or not (taken != DIRECTLY or why_direct):
            return
        while len(self._noted) >= MOST_NOTED:
            del self._noted[next(iter(self._noted))]
        self._noted[task] = taken
        if taken == DIRECTLY:
            event = Event(time.time(), "DEPOT_NOT_USED", False, "data go directly between the servers", why_direct)
        else:
            event = Event(time.time(), "DEPOT_USED", False, "data go over a depot", taken)
        recorder.note(task, event)
