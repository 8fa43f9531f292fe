"""Registrations of replicas: the subjects that registered or confirmed them at their current place."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Integer, String, and_, func, literal, not_, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.names import Parts, split
from broker.schema.catalogue import datasets, endpoints, replicas
from broker.storage.dialects import Columns, among, tabled

__all__ = ["REGISTRATION", "Registrations", "ReplicaRegistration", "Stated", "lies_below"]

REGISTRATION = (replicas.c.registered_by, replicas.c.registered_as_admin, replicas.c.registered_moves)
NAMES: Columns = {"number": Integer(), "scope": String(), "name": String()}


class ReplicaRegistration(NamedTuple):
    """The registration of a replica.

    :param by: subject that registered or confirmed it; None if unknown
    :param admin: whether the subject was an admin
    :param moves: number of the endpoint's moves at that time; a later move ends the registration
    """

    by: str | None = None
    admin: bool = False
    moves: int = 0


class Stated(NamedTuple):
    """A replica's dataset, endpoint number, path there (None for the dataset's name) and registration."""

    dataset: str
    endpoint: int
    path: str | None
    registration: ReplicaRegistration


class Registrations:
    """The registrations of replicas in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def of(self, dids: Sequence[str]) -> list[Stated]:
        """Return all replicas of these datasets with their registrations."""
        given = tabled(self._connection, [(i, *split(did)) for i, did in enumerate(dids)], NAMES)
        same = and_(datasets.c.scope == given.c.scope, datasets.c.name == given.c.name)
        rows = await self._connection.execute(
            select(given.c.number, replicas.c.endpoint_id, replicas.c.path, *REGISTRATION)
            .select_from(given)
            .join(datasets, same)
            .join(replicas, replicas.c.dataset_id == datasets.c.id)
        )
        return [Stated(dids[row[0]], row[1], row[2], ReplicaRegistration(*row[3:])) for row in rows]

    async def unopened(self, places: Sequence[int], after: str, endpoint: str, limit: int) -> list[Stated]:
        """Return replicas at these endpoints that no admin has registered or confirmed at their current place.

        They are sorted by dataset and endpoint, and begin after the given replica.
        """
        scope, name = split(after)
        here = and_(datasets.c.scope == scope, datasets.c.name == name, endpoints.c.name > endpoint)
        later = or_(datasets.c.scope > scope, and_(datasets.c.scope == scope, datasets.c.name > name), here)
        moved = replicas.c.registered_moves != endpoints.c.moves
        rows = await self._connection.execute(
            select(datasets.c.scope, datasets.c.name, replicas.c.endpoint_id, replicas.c.path, *REGISTRATION)
            .select_from(replicas)
            .join(datasets)
            .join(endpoints)
            .where(among(self._connection, replicas.c.endpoint_id, places), later)
            .where(or_(not_(replicas.c.registered_as_admin), moved))
            .order_by(datasets.c.scope, datasets.c.name, endpoints.c.name)
            .limit(limit)
        )
        return [Stated(str(Parts(row[0], row[1])), row[2], row[3], ReplicaRegistration(*row[4:])) for row in rows]

    async def register(self, stated: Stated) -> bool:
        """Store the registration of a replica; return False if the replica is no longer at the stated path."""
        parts = split(stated.dataset)
        dataset = select(datasets.c.id).where(datasets.c.scope == parts.scope, datasets.c.name == parts.name)
        done = await self._connection.execute(
            update(replicas)
            .where(replicas.c.dataset_id == dataset.scalar_subquery(), replicas.c.endpoint_id == stated.endpoint)
            .where(replicas.c.path.is_not_distinct_from(stated.path))
            .values({column.name: value for column, value in zip(REGISTRATION, stated.registration, strict=True)})
        )
        return bool(done.rowcount)


async def lies_below(connection: AsyncConnection, endpoint: int, path: str) -> bool:
    """Return whether an endpoint has a replica at a path or below it.

    :param path: path below the endpoint's directory, without slashes at its ends; empty: the directory itself
    """
    place = func.ltrim(func.coalesce(replicas.c.path, datasets.c.name), "/")
    below = or_(literal(not path), place == path, func.substr(place, 1, len(path) + 1) == f"{path}/")
    query = select(replicas.c.dataset_id).join(datasets).where(replicas.c.endpoint_id == endpoint, below).limit(1)
    return (await connection.execute(query)).first() is not None
