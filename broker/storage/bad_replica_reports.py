"""Reports of bad replicas, curators' judgements of them, and ignored subjects."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import String, and_, delete, literal, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.callers import IgnoredSubject
from broker.models.catalogue import CatalogueReplica
from broker.models.names import split
from broker.schema.catalogue import bad_replica_reports, datasets, endpoints, judgements, replicas
from broker.schema.history import ignored_subjects
from broker.storage.dialects import ALWAYS, insert, tabled

__all__ = ["BadReplicaReportStore", "ReplicaStanding"]


class ReplicaStanding(NamedTuple):
    """A replica's state, and the reports about it.

    :param judged: whether a curator has set its state
    :param read: whether its endpoint may be read from
    :param reported: whether there are reports, including those of ignored subjects
    :param reports: subjects and reasons of reports, the earliest first, without ignored subjects
    """

    dataset_id: int
    endpoint_id: int
    state: str
    judged: bool
    read: bool
    reported: bool
    reports: Sequence[tuple[str, str]]

    @property
    def key(self) -> tuple[int, int]:
        return self.dataset_id, self.endpoint_id


class BadReplicaReportStore:
    """Reports about replicas, in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, key: tuple[int, int], subject: str, at: float, reason: str) -> None:
        """Store a subject's report about a replica, in place of the subject's earlier report."""
        values = {"dataset_id": key[0], "endpoint_id": key[1], "subject": subject, "at": at, "reason": reason}
        new = insert(self._connection, bad_replica_reports).values(values)
        changed = {"at": new.excluded.at, "reason": new.excluded.reason}
        await self._connection.execute(
            new.on_conflict_do_update(index_elements=["dataset_id", "endpoint_id", "subject"], set_=changed)
        )

    async def standings(self, dataset_ids: Collection[int]) -> list[ReplicaStanding]:
        """Return the standings of all replicas of these datasets."""
        judged = and_(
            judgements.c.dataset_id == replicas.c.dataset_id, judgements.c.endpoint_id == replicas.c.endpoint_id
        )
        query = (
            select(
                replicas.c.dataset_id,
                replicas.c.endpoint_id,
                replicas.c.state,
                judgements.c.at,
                endpoints.c.read_priority,
            )
            .select_from(replicas)
            .join(endpoints, endpoints.c.id == replicas.c.endpoint_id)
            .outerjoin(judgements, judged)
            .where(replicas.c.dataset_id.in_(dataset_ids))
            .order_by(replicas.c.dataset_id, replicas.c.endpoint_id)
        )
        rows = (await self._connection.execute(query)).all()
        of = bad_replica_reports.c
        reported = await self._connection.execute(
            select(bad_replica_reports, ignored_subjects.c.at.label("ignored_at"))
            .outerjoin(ignored_subjects, ignored_subjects.c.subject == of.subject)
            .where(of.dataset_id.in_(dataset_ids))
            .order_by(of.at, of.subject)
        )
        reports: dict[tuple[int, int], list[tuple[str, str]]] = {}
        for row in reported:
            those = reports.setdefault((row.dataset_id, row.endpoint_id), [])
            if row.ignored_at is None:
                those.append((row.subject, row.reason))
        found = []
        for dataset, endpoint, state, at, read in rows:
            key = (dataset, endpoint)
            found.append(ReplicaStanding(*key, state, at is not None, bool(read), key in reports, reports.get(key, [])))
        return found

    async def put_state(self, key: tuple[int, int], state: str, reason: str, now: float) -> None:
        """Change the state of a replica."""
        here = and_(replicas.c.dataset_id == key[0], replicas.c.endpoint_id == key[1])
        values = {"state": state, "reason": reason, "changed_at": now}
        await self._connection.execute(update(replicas).where(here).values(values))

    async def judge(self, by: str, replicas: Sequence[CatalogueReplica], now: float) -> None:
        """Store a curator's judgement of existing replicas, and delete the earlier reports."""
        if not replicas:
            return
        fresh = self._found(replicas).add_columns(literal(by), literal(now)).where(ALWAYS)
        new = insert(self._connection, judgements).from_select(["dataset_id", "endpoint_id", "by", "at"], fresh)
        changed = {"by": new.excluded.by, "at": new.excluded.at}
        await self._connection.execute(
            new.on_conflict_do_update(index_elements=["dataset_id", "endpoint_id"], set_=changed)
        )
        await self.answer(replicas)

    async def answer(self, replicas: Sequence[CatalogueReplica]) -> None:
        """Delete the users' reports about replicas."""
        of = bad_replica_reports.c
        answered = tuple_(of.dataset_id, of.endpoint_id).in_(self._found(replicas))
        await self._connection.execute(delete(bad_replica_reports).where(answered))

    async def numbers(self, replica: CatalogueReplica) -> tuple[int, int] | None:
        """Return the numbers of a replica's dataset and endpoint; None if the replica does not exist."""
        row = (await self._connection.execute(self._found([replica]))).first()
        return None if row is None else (row.dataset_id, row.endpoint_id)

    def _found(self, stated: Sequence[CatalogueReplica]) -> Any:
        """Return a query for the numbers of these replicas' datasets and endpoints."""
        rows = [(*split(each.dataset), each.endpoint) for each in stated]
        given = tabled(self._connection, rows, {"scope": String(), "name": String(), "endpoint": String()})
        named = and_(datasets.c.scope == given.c.scope, datasets.c.name == given.c.name)
        return (
            select(replicas.c.dataset_id, replicas.c.endpoint_id)
            .select_from(given)
            .join(datasets, named)
            .join(endpoints, endpoints.c.name == given.c.endpoint)
            .join(replicas, and_(replicas.c.dataset_id == datasets.c.id, replicas.c.endpoint_id == endpoints.c.id))
        )

    async def datasets_reported_by(self, subject: str) -> list[int]:
        """Return the numbers of datasets with replicas that this subject has reported."""
        of = bad_replica_reports.c
        query = select(of.dataset_id).where(of.subject == subject).distinct().order_by(of.dataset_id)
        return list((await self._connection.execute(query)).scalars())

    # Ignored subjects

    async def ignored_subjects(self) -> list[IgnoredSubject]:
        """Return the subjects whose reports are ignored, by name."""
        rows = await self._connection.execute(select(ignored_subjects).order_by(ignored_subjects.c.subject))
        return [IgnoredSubject.model_construct(**row._mapping) for row in rows]

    async def ignore(self, subject: str, at: float, by: str) -> bool:
        """Ignore a subject's reports; return whether they were not ignored before."""
        new = insert(self._connection, ignored_subjects).values(subject=subject, at=at, by=by)
        done = await self._connection.execute(new.on_conflict_do_nothing())
        return bool(done.rowcount)

    async def stop_ignoring(self, subject: str) -> bool:
        """Use a subject's reports again; return whether they were ignored."""
        old = delete(ignored_subjects).where(ignored_subjects.c.subject == subject)
        done = await self._connection.execute(old)
        return bool(done.rowcount)
