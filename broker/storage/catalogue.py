"""Datasets and their replicas in the database, with statements for thousands of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Double,
    Integer,
    String,
    Subquery,
    Text,
    and_,
    bindparam,
    case,
    delete,
    false,
    not_,
    or_,
    select,
    text,
    true,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.catalogue import CatalogueReplica, Dataset
from broker.models.names import Parts, split
from broker.schema.catalogue import checksums, datasets, endpoints, replicas
from broker.storage.dialects import ALWAYS, Columns, insert, tabled
from broker.storage.registrations import REGISTRATION, ReplicaRegistration

__all__ = ["CatalogueStore", "LocatedDataset", "Registrar", "StoredDataset"]

HANDED_OUT = ("AVAILABLE", "SUSPICIOUS")
NAMES: Columns = {"number": Integer(), "scope": String(), "name": String()}


class StoredDataset(NamedTuple):
    """A dataset in the catalogue."""

    id: int
    size: int | None
    checksums: Mapping[str, str]
    created_at: float


class Registrar(NamedTuple):
    """The registrar of replicas: the subject, whether it is an admin, and whether it owns collections."""

    subject: str | None = None
    admin: bool = False
    owner: bool = False


UNKNOWN = Registrar()


class LocatedDataset(NamedTuple):
    """A dataset and its replicas.

    :param replicas: endpoint number and path below the endpoint's directory of each; path None is the dataset's name
    :param suspicious: endpoint numbers of the replicas that were reported as bad
    :param registrations: registrations of the replicas, by endpoint number
    """

    did: str
    size: int | None
    checksums: Mapping[str, str]
    replicas: list[tuple[int, str | None]]
    suspicious: set[int]
    registrations: dict[int, ReplicaRegistration]


class CatalogueStore:
    """Datasets and replicas in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def endpoints(self, names: Iterable[str]) -> set[str]:
        """Return the names of existing endpoints, and lock these against removal until the transaction ends."""
        query = select(endpoints.c.name).where(endpoints.c.name.in_(set(names))).order_by(endpoints.c.id)
        if self._connection.dialect.name != "sqlite":
            query = query.with_for_update(read=True, key_share=True)
        return {name for (name,) in await self._connection.execute(query)}

    async def known(self, dids: Iterable[str], lock: bool = False) -> dict[str, StoredDataset]:
        """Return the existing datasets by name.

        :param lock: whether to lock them against changes until the transaction ends
        """
        names = list(dict.fromkeys(dids))
        given = self._given(names)
        columns = (given.c.number, datasets.c.id, datasets.c.size, datasets.c.created_at)
        query = select(*columns).join(datasets, _same(given))
        if lock and self._connection.dialect.name != "sqlite":
            query = query.order_by(datasets.c.id).with_for_update(of=datasets)
        rows = (await self._connection.execute(query)).all()
        digests = await self._digests(names)
        return {names[i]: StoredDataset(number, size, digests.get(i, {}), created) for i, number, size, created in rows}

    async def located(self, dids: Sequence[str]) -> dict[str, LocatedDataset]:
        """Return the existing datasets by name, with their available and suspicious replicas."""
        given = self._given(dids)
        on = and_(replicas.c.dataset_id == datasets.c.id, replicas.c.state.in_(HANDED_OUT))
        rows = await self._connection.execute(
            select(
                given.c.number,
                datasets.c.size,
                replicas.c.endpoint_id,
                replicas.c.path,
                replicas.c.state,
                *REGISTRATION,
            )
            .select_from(given)
            .join(datasets, _same(given))
            .outerjoin(replicas, on)
        )
        digests = await self._digests(dids)
        found: dict[str, LocatedDataset] = {}
        for number, size, endpoint, path, state, *registered in rows:
            did = dids[number]
            if did not in found:
                found[did] = LocatedDataset(did, size, digests.get(number, {}), [], set(), {})
            if endpoint is not None:
                found[did].replicas.append((endpoint, path))
                found[did].registrations[endpoint] = ReplicaRegistration(*registered)
                if state == "SUSPICIOUS":
                    found[did].suspicious.add(endpoint)
        return found

    async def _digests(self, dids: Sequence[str]) -> dict[int, dict[str, str]]:
        given = self._given(dids)
        rows = await self._connection.execute(
            select(given.c.number, checksums.c.algorithm, checksums.c.value)
            .select_from(given)
            .join(datasets, _same(given))
            .join(checksums, checksums.c.dataset_id == datasets.c.id)
        )
        found: dict[int, dict[str, str]] = {}
        for number, algorithm, value in rows:
            found.setdefault(number, {})[algorithm] = value
        return found

    def _given(self, dids: Iterable[str]) -> Subquery:
        return tabled(self._connection, [(i, *split(did)) for i, did in enumerate(dids)], NAMES)

    async def add(self, dids: Iterable[str], now: float) -> None:
        """Add datasets by name; existing ones are unchanged."""
        rows = sorted(split(did) for did in dids)  # one order for all writers, to avoid deadlocks
        given = tabled(self._connection, rows, {"scope": String(), "name": String()})
        fresh = select(given.c.scope, given.c.name, bindparam(None, now)).where(ALWAYS)
        statement = insert(self._connection, datasets).from_select(["scope", "name", "created_at"], fresh)
        await self._connection.execute(statement.on_conflict_do_nothing(index_elements=["scope", "name"]))

    async def set_sizes(self, sizes: Mapping[int, int]) -> None:
        """Set the sizes of datasets without a size, by the datasets' numbers."""
        if sizes:
            size_unknown = and_(datasets.c.id == bindparam("number"), datasets.c.size.is_(None))
            statement = update(datasets).where(size_unknown).values(size=bindparam("new_size"))
            await self._connection.execute(statement, [{"number": i, "new_size": size} for i, size in sizes.items()])

    async def add_checksums(self, digests: Iterable[tuple[str, str, str]]) -> None:
        """Add checksums (dataset, algorithm, value) that are not stored yet."""
        rows = [(*split(did), algorithm, value) for did, algorithm, value in digests]
        columns: Columns = {"scope": String(), "name": String(), "algorithm": String(), "value": String()}
        given = tabled(self._connection, rows, columns)
        fresh = select(datasets.c.id, given.c.algorithm, given.c.value).join(datasets, _same(given)).where(ALWAYS)
        statement = insert(self._connection, checksums).from_select(["dataset_id", "algorithm", "value"], fresh)
        await self._connection.execute(statement.on_conflict_do_nothing())

    async def put_replicas(
        self, stated: Iterable[CatalogueReplica], now: float, by: Registrar = UNKNOWN, mentioned: bool = False
    ) -> int:
        """Add or update replicas of existing datasets at existing endpoints; return the number of changed replicas.

        :param by: registrar; stored if the replica has none for its current place, or one of lower rank
        :param mentioned: whether the replicas have no stated state: stored replicas then keep their state
        """
        given = self._stated(stated)
        if given is None:
            return 0
        fields = ["path", "state", "verified_at", "reason"]
        changing = fields[:1] if mentioned else fields
        registered = (bindparam(None, by.subject, Text), bindparam(None, by.admin, Boolean), endpoints.c.moves)
        fresh = (
            select(
                datasets.c.id, endpoints.c.id, *(given.c[name] for name in fields), bindparam(None, now), *registered
            )
            .select_from(given)
            .join(datasets, _same(given))
            .join(endpoints, endpoints.c.name == given.c.endpoint)
            .where(ALWAYS)
        )
        names = ["dataset_id", "endpoint_id", *fields, "changed_at", *(each.name for each in REGISTRATION)]
        new = insert(self._connection, replicas).from_select(names, fresh)
        fresher = new.excluded
        anew = _counts_anew(fresher, by)
        changed = or_(*(replicas.c[name].is_distinct_from(fresher[name]) for name in changing))
        counted = and_(anew, or_(*(each.is_distinct_from(fresher[each.name]) for each in REGISTRATION)))
        values = {name: fresher[name] for name in changing}
        values["changed_at"] = case((changed, fresher.changed_at), else_=replicas.c.changed_at)
        values |= {each.name: case((anew, fresher[each.name]), else_=each) for each in REGISTRATION}
        done = await self._connection.execute(
            new.on_conflict_do_update(
                index_elements=["dataset_id", "endpoint_id"], set_=values, where=or_(changed, counted)
            ),
            execution_options={"preserve_rowcount": True},
        )
        return int(done.rowcount)

    def _stated(self, replicas: Iterable[CatalogueReplica]) -> Subquery | None:
        """Return replicas as a subquery without duplicates; None if there are none."""
        rows = {
            (replica.dataset, replica.endpoint): (
                *split(replica.dataset),
                replica.endpoint,
                None if replica.path == split(replica.dataset).name else replica.path,
                replica.state,
                replica.verified_at,
                replica.reason,
            )
            for replica in sorted(replicas, key=lambda replica: (replica.dataset, replica.endpoint))
        }
        columns: Columns = {
            "scope": String(),
            "name": String(),
            "endpoint": String(),
            "path": Text(),
            "state": String(),
            "verified_at": Double(),
            "reason": Text(),
        }
        return tabled(self._connection, list(rows.values()), columns) if rows else None

    async def replicas(self, did: str) -> list[CatalogueReplica]:
        """Return all replicas of a dataset in any state, by endpoint."""
        parts = split(did)
        return await self._replicas(and_(datasets.c.scope == parts.scope, datasets.c.name == parts.name), None)

    async def all_replicas(self, dids: Sequence[str]) -> dict[str, list[CatalogueReplica]]:
        """Return all replicas of datasets in any state, by dataset."""
        given = self._given(dids)
        here = select(datasets.c.id).select_from(given).join(datasets, _same(given))
        found: dict[str, list[CatalogueReplica]] = {}
        for replica in await self._replicas(replicas.c.dataset_id.in_(here), None):
            found.setdefault(replica.dataset, []).append(replica)
        return found

    async def wanting(self, states: Sequence[str], after: str, endpoint: str, limit: int) -> list[CatalogueReplica]:
        """Return replicas in some states other than AVAILABLE, by dataset and endpoint, after the given replica."""
        scope, name = split(after)
        here = and_(datasets.c.scope == scope, datasets.c.name == name, endpoints.c.name > endpoint)
        later = or_(datasets.c.scope > scope, and_(datasets.c.scope == scope, datasets.c.name > name), here)
        return await self._replicas(and_(replicas.c.state.in_(states), text("state <> 'AVAILABLE'"), later), limit)

    async def _replicas(self, where: ColumnElement[bool], limit: int | None) -> list[CatalogueReplica]:
        rows = await self._connection.execute(
            select(datasets.c.scope, datasets.c.name, endpoints.c.name.label("endpoint"), replicas)
            .select_from(replicas)
            .join(datasets)
            .join(endpoints)
            .where(where)
            .order_by(datasets.c.scope, datasets.c.name, endpoints.c.name)
            .limit(limit)
        )
        return [
            CatalogueReplica.model_construct(
                dataset=str(Parts(row.scope, row.name)),
                endpoint=row.endpoint,
                path=row.path,
                state=row.state,
                verified_at=row.verified_at,
                reason=row.reason,
            )
            for row in rows
        ]

    async def remove_replica(self, did: str, endpoint: str) -> bool:
        """Delete a replica; return whether it existed."""
        parts = split(did)
        dataset = select(datasets.c.id).where(datasets.c.scope == parts.scope, datasets.c.name == parts.name)
        place = select(endpoints.c.id).where(endpoints.c.name == endpoint)
        done = await self._connection.execute(
            delete(replicas).where(
                replicas.c.dataset_id == dataset.scalar_subquery(), replicas.c.endpoint_id == place.scalar_subquery()
            )
        )
        return bool(done.rowcount)

    async def remove(self, did: str) -> bool:
        """Delete a dataset with its checksums and replicas; return whether it existed."""
        parts = split(did)
        done = await self._connection.execute(
            delete(datasets).where(datasets.c.scope == parts.scope, datasets.c.name == parts.name)
        )
        return bool(done.rowcount)

    async def listed(self, beginning: str, after: str, limit: int) -> list[Dataset]:
        """Return datasets by prefix of their names, sorted by scope and name, after the dataset `after`."""
        begin, parts = split(beginning), split(after)
        later = or_(datasets.c.scope > parts.scope, and_(datasets.c.scope == parts.scope, datasets.c.name > parts.name))
        # a range, not LIKE: both databases can use the index, and no character is a wildcard
        named = and_(datasets.c.name >= begin.name, datasets.c.name < begin.name + "\U0010ffff")
        here = and_(datasets.c.scope == begin.scope, named) if begin.scope else named
        page = (
            select(datasets.c.id, datasets.c.scope, datasets.c.name, datasets.c.size)
            .where(later, here)
            .order_by(datasets.c.scope, datasets.c.name)
            .limit(limit)
            .subquery()
        )
        rows = await self._connection.execute(
            select(page, checksums.c.algorithm, checksums.c.value)
            .outerjoin(checksums, checksums.c.dataset_id == page.c.id)
            .order_by(page.c.scope, page.c.name)
        )
        found: dict[int, Dataset] = {}
        for row in rows:
            if row.id not in found:
                name = str(Parts(row.scope, row.name))
                found[row.id] = Dataset.model_construct(name=name, size=row.size, checksums={})
            if row.algorithm is not None:
                found[row.id].checksums[row.algorithm] = row.value
        return list(found.values())


def _counts_anew(stated: Any, by: Registrar) -> ColumnElement[bool]:
    """Return the SQL condition that the new registration of a replica replaces the stored one.

    It does if the replica moved, has no registrar, or has one of lower rank: admins replace any registrar, owners of
    collections replace any that is no admin.
    """
    known = replicas.c
    moved = or_(known.path.is_distinct_from(stated.path), known.registered_moves != stated.registered_moves)
    weightier = true() if by.admin else not_(known.registered_as_admin) if by.owner else false()
    return or_(moved, known.registered_by.is_(None), weightier)


def _same(given: Subquery) -> ColumnElement[bool]:
    return and_(datasets.c.scope == given.c.scope, datasets.c.name == given.c.name)
