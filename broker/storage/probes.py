"""Which ways between servers nobody has used lately, and who measures them: claims that only one process gets.

A claim is a key of the history's, under a subject of its own: so it is forgotten as all else is, and counts what was
spent since yesterday.
"""

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import delete, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.history import Pair
from broker.schema.history import observation_keys, pairs
from broker.schema.reports import probes_wanted
from broker.storage.upsert import insert

__all__ = ["CLAIMS", "Probes", "Way"]

CLAIMS = "broker.probes"
"""As whom claims are kept; no caller is called so, for its observations are the broker's own."""
DAY = 86_400.0


class Way(NamedTuple):
    """From an endpoint to another one, by their names, and what transfers over it are filed under."""

    source: str
    sink: str
    pair: Pair

    @property
    def key(self) -> str:
        """What tells it from others."""
        return f"{self.source}/{self.sink}"


class Probes:
    """The claims."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._sqlite = connection.dialect.name == "sqlite"

    async def alone(self) -> None:
        """Until the end of this transaction nobody else claims anything."""
        if not self._sqlite:
            await self._connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('coget probes'))"))

    async def spent(self, now: float) -> int:
        """Claims of a day."""
        mine = (observation_keys.c.subject == CLAIMS, observation_keys.c.ended > now - DAY)
        count = await self._connection.execute(select(func.count()).select_from(observation_keys).where(*mine))
        return int(count.scalar_one())

    async def used(self, ways: Collection[Way], since: float) -> dict[Way, float]:
        """When each was last used, or claimed after a moment; those that never were are left out."""
        by_source = {way.pair.source for way in ways}
        rows = await self._connection.execute(
            select(pairs.c.source, pairs.c.sink, pairs.c.newest_end).where(
                pairs.c.direction == "read", pairs.c.source.in_(sorted(by_source)), pairs.c.observations > 0
            )
        )
        ended = {Pair(row.source, row.sink): float(row.newest_end) for row in rows}
        claimed = await self._claimed(since)
        newest = {way: max(ended.get(way.pair, 0.0), claimed.get(way.key, 0.0)) for way in ways}
        return {way: at for way, at in newest.items() if at}

    async def _claimed(self, since: float) -> dict[str, float]:
        mine = (observation_keys.c.subject == CLAIMS, observation_keys.c.ended > since)
        rows = await self._connection.execute(select(observation_keys.c.key, observation_keys.c.ended).where(*mine))
        found: dict[str, float] = {}
        for key, ended in rows:
            name = key.rpartition("/")[0]
            found[name] = max(ended, found.get(name, 0.0))
        return found

    async def want(self, source: str, sink: str, subject: str, now: float) -> bool:
        """That somebody wants this way measured; whether that is new."""
        values = {"source": source, "sink": sink, "subject": subject, "asked_at": now}
        added = insert(self._connection, probes_wanted).values(values).on_conflict_do_nothing()
        return (await self._connection.execute(added.returning(probes_wanted.c.source))).scalar() is not None

    async def wanted(self) -> dict[tuple[str, str], float]:
        """From which endpoint to which, and since when; what was asked for first comes first."""
        of = probes_wanted.c
        listed = select(of.source, of.sink, of.asked_at).order_by(of.asked_at, of.source, of.sink)
        return {(source, sink): at for source, sink, at in await self._connection.execute(listed)}

    async def claim(self, way: Way, now: float) -> None:
        """Measure this one; nobody has to want that any more."""
        of = probes_wanted.c
        await self._connection.execute(delete(probes_wanted).where(of.source == way.source, of.sink == way.sink))
        values = {"subject": CLAIMS, "key": f"{way.key}/{now:.3f}", "ended": now}
        await self._connection.execute(insert(self._connection, observation_keys).values(values))
