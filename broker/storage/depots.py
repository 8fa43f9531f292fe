"""Depots in the database."""

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.errors import NotFound
from broker.models.depots import NewDepot, RegisteredDepot
from broker.schema.catalogue import depots, sites
from broker.storage.dialects import insert

__all__ = ["DepotStore", "StoredDepot"]


class StoredDepot(NamedTuple):
    """A depot, its secret (None if it takes no tickets), and its number."""

    depot: RegisteredDepot
    secret: str | None
    id: int


class DepotStore:
    """Depots in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def all(self) -> Mapping[str, StoredDepot]:
        """Return all depots by name, in the order of their names."""
        found = select(depots, sites.c.name.label("site")).join(sites).order_by(depots.c.name)
        return {
            row.name: StoredDepot(
                RegisteredDepot(
                    name=row.name,
                    site=row.site,
                    host=row.host,
                    port=row.port,
                    tickets=row.secret is not None,
                    subject=row.subject,
                ),
                row.secret,
                row.id,
            )
            for row in await self._connection.execute(found)
        }

    async def put(self, depot: NewDepot) -> None:
        """Create or change a depot; without a new secret, it keeps the old one.

        :raises NotFound: when its site does not exist
        """
        site = (await self._connection.execute(select(sites.c.id).where(sites.c.name == depot.site))).scalar()
        if site is None:
            raise NotFound(f"there is no site {depot.site}", f"create it first: PUT /broker/v1/sites/{depot.site}")
        values = depot.model_dump(exclude={"site"}) | {"site_id": site}
        new = insert(self._connection, depots).values(values)
        kept = {"name"} if depot.secret else {"name", "secret"}
        changes = {column: new.excluded[column] for column in values if column not in kept}
        await self._connection.execute(new.on_conflict_do_update(index_elements=["name"], set_=changes))

    async def remove(self, name: str) -> None:
        """Remove a depot. :raises NotFound:"""
        done = await self._connection.execute(delete(depots).where(depots.c.name == name))
        if not done.rowcount:
            raise NotFound(f"there is no depot {name}", "choose one listed by GET /broker/v1/depots")
