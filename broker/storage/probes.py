"""The last uses of links between endpoints, requests to measure links, and claims.

A process claims a link before it measures the link. A claim is a key in the history, with a subject of its own, so that
it is deleted like other keys; claims of the last day count against the budget.
"""

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import delete, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.history import Pair
from broker.schema.history import observation_keys, pairs
from broker.schema.reports import probes_wanted
from broker.storage.dialects import insert

__all__ = ["CLAIMS", "EndpointLink", "ProbeStore"]

CLAIMS = "broker.probes"
"""The subject of claims, which is reserved for the broker."""
DAY = 86_400.0


class EndpointLink(NamedTuple):
    """A link from one endpoint to another, by name, and the pair that its transfers are stored under."""

    source: str
    sink: str
    pair: Pair

    @property
    def key(self) -> str:
        """The text that identifies the link."""
        return f"{self.source}/{self.sink}"


class ProbeStore:
    """Claims and requests to measure links."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._sqlite = connection.dialect.name == "sqlite"

    async def alone(self) -> None:
        """Block all other transactions that claim links until this one ends."""
        if not self._sqlite:
            await self._connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('coget probes'))"))

    async def spent(self, now: float) -> int:
        """Return the number of claims in the last day."""
        mine = (observation_keys.c.subject == CLAIMS, observation_keys.c.ended > now - DAY)
        count = await self._connection.execute(select(func.count()).select_from(observation_keys).where(*mine))
        return int(count.scalar_one())

    async def used(self, links: Collection[EndpointLink], since: float) -> dict[EndpointLink, float]:
        """Return the time when each link was last used, or claimed since `since`; links without either are left out."""
        by_source = {link.pair.source for link in links}
        rows = await self._connection.execute(
            select(pairs.c.source, pairs.c.sink, pairs.c.newest_end).where(
                pairs.c.direction == "read", pairs.c.source.in_(sorted(by_source)), pairs.c.observations > 0
            )
        )
        ended = {Pair(row.source, row.sink): float(row.newest_end) for row in rows}
        claimed = await self._claimed(since)
        newest = {link: max(ended.get(link.pair, 0.0), claimed.get(link.key, 0.0)) for link in links}
        return {link: at for link, at in newest.items() if at}

    async def _claimed(self, since: float) -> dict[str, float]:
        mine = (observation_keys.c.subject == CLAIMS, observation_keys.c.ended > since)
        rows = await self._connection.execute(select(observation_keys.c.key, observation_keys.c.ended).where(*mine))
        found: dict[str, float] = {}
        for key, ended in rows:
            name = key.rpartition("/")[0]
            found[name] = max(ended, found.get(name, 0.0))
        return found

    async def request(self, source: str, sink: str, subject: str, now: float) -> bool:
        """Store a user's request to measure a link; return whether it is new."""
        values = {"source": source, "sink": sink, "subject": subject, "asked_at": now}
        added = insert(self._connection, probes_wanted).values(values).on_conflict_do_nothing()
        return (await self._connection.execute(added.returning(probes_wanted.c.source))).scalar() is not None

    async def requested(self) -> dict[tuple[str, str], float]:
        """Return the requested links by their endpoints, with the times of the requests, the earliest first."""
        of = probes_wanted.c
        listed = select(of.source, of.sink, of.asked_at).order_by(of.asked_at, of.source, of.sink)
        return {(source, sink): at for source, sink, at in await self._connection.execute(listed)}

    async def claim(self, link: EndpointLink, now: float) -> None:
        """Claim a link for measurement, and delete the requests for it."""
        of = probes_wanted.c
        await self._connection.execute(delete(probes_wanted).where(of.source == link.source, of.sink == link.sink))
        values = {"subject": CLAIMS, "key": f"{link.key}/{now:.3f}", "ended": now}
        await self._connection.execute(insert(self._connection, observation_keys).values(values))
