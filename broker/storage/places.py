"""Sites and endpoints in the database, which are few enough to be read as a whole."""

from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, Delete, and_, case, delete, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.errors import Conflict, NotFound
from broker.models.catalogue import PORTS, Endpoint, Site
from broker.schema.catalogue import endpoints, sites
from broker.storage.dialects import insert

__all__ = ["PlaceStore", "Placed"]


Opened = Literal["", "admin", "upgrade"]
"""The approval of an endpoint's private address: none, by an admin, or by the upgrade that introduced approvals."""


class Placed(NamedTuple):
    """An endpoint with its number.

    :param coordinates: its own, otherwise its site's latitude and longitude in degrees
    :param opened: approval of a private or loopback address; empty: none
    :param moves: number of changes of its address or directory
    """

    id: int
    endpoint: Endpoint
    coordinates: tuple[float, float] | None
    opened: Opened = ""
    moves: int = 0


class PlaceStore:
    """Sites and endpoints in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def sites(self) -> list[Site]:
        """Return all sites, by name."""
        rows = await self._connection.execute(
            select(sites.c.name, sites.c.latitude, sites.c.longitude).order_by(sites.c.name)
        )
        return [Site.model_construct(**row._mapping) for row in rows]

    async def put_site(self, site: Site) -> None:
        """Create or change a site."""
        new = insert(self._connection, sites).values(site.model_dump())
        await self._connection.execute(
            new.on_conflict_do_update(
                index_elements=["name"], set_={"latitude": new.excluded.latitude, "longitude": new.excluded.longitude}
            )
        )

    async def remove_site(self, name: str) -> None:
        """Remove a site.

        :raises NotFound: when it does not exist
        :raises Conflict: when it has endpoints or depots
        """
        await self._remove(delete(sites).where(sites.c.name == name), f"site {name}", "it has endpoints or depots")

    async def endpoints(self) -> list[Placed]:
        """Return all endpoints, by name."""
        joined = (
            select(
                endpoints, sites.c.name.label("site"), sites.c.latitude.label("north"), sites.c.longitude.label("east")
            )
            .join(sites)
            .order_by(endpoints.c.name)
        )
        placed = []
        for row in await self._connection.execute(joined):
            fields = dict(row._mapping)
            number, north, east = fields.pop("id"), fields.pop("north"), fields.pop("east")
            del fields["site_id"]
            opened, moves = fields.pop("opened"), fields.pop("moves")
            hosts = tuple(fields.pop("data_hosts").split())
            endpoint = Endpoint.model_construct(**fields, data_hosts=hosts)
            north, east = (north, east) if endpoint.latitude is None else (endpoint.latitude, endpoint.longitude)
            there = None if north is None or east is None else (north, east)
            placed.append(Placed(number, endpoint, there, opened, moves))
        return placed

    async def put_endpoint(self, endpoint: Endpoint, opened: bool = False) -> None:
        """Create or change an endpoint.

        :param opened: whether an admin approves a private address; otherwise a change of scheme, host or port ends the
            approval
        :raises NotFound: when its site does not exist
        """
        found = await self._connection.execute(select(sites.c.id).where(sites.c.name == endpoint.site))
        site = found.scalar()
        if site is None:
            raise NotFound(
                f"there is no site {endpoint.site}", f"create it first: PUT /broker/v1/sites/{endpoint.site}"
            )
        columns = {**endpoint.model_dump(exclude={"site"}), "data_hosts": " ".join(endpoint.data_hosts)}
        values = {**columns, "site_id": site, "opened": "admin" if opened else ""}
        new = insert(self._connection, endpoints).values(values)
        changes = {name: new.excluded[name] for name in values if name != "name"}
        same = and_(
            *(known == new_one for known, new_one in zip(_where(endpoints.c), _where(new.excluded), strict=True))
        )
        changes["moves"] = case((same, endpoints.c.moves), else_=endpoints.c.moves + 1)
        if not opened:
            there = (endpoints.c[name].is_not_distinct_from(new.excluded[name]) for name in ("scheme", "host", "port"))
            changes["opened"] = case((and_(*there), endpoints.c.opened), else_="")
        await self._connection.execute(new.on_conflict_do_update(index_elements=["name"], set_=changes))

    async def remove_endpoint(self, name: str) -> None:
        """Remove an endpoint.

        :raises NotFound: when it does not exist
        :raises Conflict: when it has replicas or collections
        """
        gone = delete(endpoints).where(endpoints.c.name == name)
        await self._remove(gone, f"endpoint {name}", "it has replicas or collections")

    async def _remove(self, statement: Delete, thing: str, why: str) -> None:
        try:
            done = await self._connection.execute(statement)
        except IntegrityError:
            raise Conflict(f"cannot remove {thing}: {why}", "remove these first") from None
        if not done.rowcount:
            raise NotFound(
                f"there is no {thing}", "choose one listed by GET /broker/v1/" + thing.partition(" ")[0] + "s"
            )


def _where(endpoint: Any) -> tuple[ColumnElement[Any], ...]:
    """Return the columns of an endpoint's address and directory; port NULL becomes the scheme's default port."""
    port = func.coalesce(endpoint.port, case(PORTS, value=endpoint.scheme))
    return endpoint.scheme, endpoint.host, port, endpoint.prefix
