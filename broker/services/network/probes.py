"""Requests of users to measure links between endpoints."""

import time
from collections.abc import Iterable
from itertools import permutations

from broker.config.settings import Probing
from broker.errors import Conflict, Forbidden, Invalid
from broker.models.callers import Caller
from broker.models.catalogue import Endpoint
from broker.models.history import Pair
from broker.services.network.places import Places
from broker.storage.database import Database, retried
from broker.storage.probes import EndpointLink
from broker.storage.probes import ProbeStore as Stored
from broker.storage.tokens import TokenStore

__all__ = ["Probes", "possible_links"]

NEEDED = "choose two ftp or gsiftp servers with different addresses and a write priority"


class Probes:
    """The requested measurements.

    :param probing: limits of measurements; None if this broker does not measure
    """

    def __init__(self, database: Database, places: Places, probing: Probing | None) -> None:
        self._database = database
        self._places = places
        self._probing = probing

    async def want(self, caller: Caller, source: str, sink: str) -> None:
        """Request the measurement of the link from one endpoint to another; a repeated request has no effect.

        :raises Forbidden: unless the caller is a curator
        :raises Conflict: when this broker does not measure
        :raises NotFound: when an endpoint does not exist
        :raises Invalid: when the link cannot be measured
        """
        if not caller.may("curator"):
            raise Forbidden(f"{caller.subject} has the role {caller.role}, but this needs curator", "ask a curator")
        if self._probing is None:
            raise Conflict("this broker measures no links", "ask its admin to configure [probing]")
        ends = [await self._places.endpoint(name) for name in (source, sink)]
        if not any(link.source == source for link in possible_links(ends)):
            raise Invalid(f"cannot measure the link from {source} to {sink}", NEEDED)
        await self._keep(caller.subject, source, sink)

    @retried
    async def _keep(self, subject: str, source: str, sink: str) -> None:
        now = time.time()
        async with self._database.write() as connection:
            if await Stored(connection).request(source, sink, subject, now):
                await TokenStore(connection).note(now, subject, "want probe", f"{source} to {sink}")


def possible_links(endpoints: Iterable[Endpoint]) -> list[EndpointLink]:
    """Return the links that can be measured: between (Grid)FTP endpoints that both accept files."""
    able = [each for each in endpoints if each.write_priority and each.scheme in ("ftp", "gsiftp")]
    return [
        EndpointLink(a.name, b.name, Pair(a.source, b.site)) for a, b in permutations(able, 2) if a.source != b.source
    ]
