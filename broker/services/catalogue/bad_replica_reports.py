"""Reports that replicas are bad, their effect on the states of replicas, and ignored subjects.

A report makes a replica BAD if the dataset has another available one. The last available replica only becomes
SUSPICIOUS: it is still offered, as the last choice. A single report does not change a state that a curator has set. All
states follow from the stored reports, without those of ignored subjects. So the effect of a subject's reports ends when
the subject is ignored, and returns when it is no longer ignored.
"""

import time
from collections.abc import Sequence
from urllib.parse import unquote

from broker.errors import NotFound
from broker.models.callers import Caller, IgnoredSubject, Role
from broker.models.catalogue import BadReplica, CatalogueReplica
from broker.services.catalogue.enclosing import visible_replicas
from broker.services.forecasting.forecasts import Forecasting
from broker.services.network.places import Places
from broker.storage.bad_replica_reports import BadReplicaReportStore, ReplicaStanding
from broker.storage.catalogue import CatalogueStore as Stored
from broker.storage.database import Database, retried
from broker.storage.tokens import TokenStore

__all__ = ["BadReplicaReports", "changed_states"]

PART = 500
"""Most datasets in one transaction."""
ENOUGH = 2
"""Number of subjects whose reports make a replica SUSPICIOUS although a curator has set it to AVAILABLE."""


def changed_states(standings: Sequence[ReplicaStanding]) -> dict[tuple[int, int], str]:
    """Return the new states of one dataset's replicas whose state has to change, by dataset and endpoint number.

    >>> one = ReplicaStanding(1, 1, "AVAILABLE", False, True, True, [("ann", "broken")])
    >>> changed_states([one]), changed_states([one, one._replace(endpoint_id=2, reports=[])])
    ({(1, 1): 'SUSPICIOUS'}, {(1, 1): 'BAD'})
    """
    changed: dict[tuple[int, int], str] = {}
    for each in standings:
        others = [other for other in standings if other.key != each.key]
        left = any(changed.get(other.key, other.state) == "AVAILABLE" and other.read for other in others)
        state = _state(each, left)
        if state != each.state:
            changed[each.key] = state
    return changed


def _state(each: ReplicaStanding, others: bool) -> str:
    """Return the state that a replica should have.

    :param others: whether the dataset has another replica that is available
    """
    ours = ("AVAILABLE", "SUSPICIOUS") if each.judged else ("AVAILABLE", "SUSPICIOUS", "BAD")
    if not each.reported or each.state not in ours:
        return each.state
    if len(each.reports) < (ENOUGH if each.judged else 1):
        return "AVAILABLE"
    if each.judged:
        return "SUSPICIOUS"
    return "BAD" if others or each.state == "BAD" else "SUSPICIOUS"


class BadReplicaReports:
    """The reports of users about replicas, and the subjects whose reports are ignored."""

    def __init__(self, database: Database, places: Places, forecasting: Forecasting) -> None:
        self._database = database
        self._places = places
        self._forecasting = forecasting

    @retried
    async def report(self, by: str, bad: BadReplica, role: Role = "curator") -> CatalogueReplica:
        """Store a report, and return the replica in its new state.

        :raises NotFound: when the replica does not exist, or the reporter may not see it
        """
        now = time.time()
        caller = Caller.model_construct(subject=by, role=role, site="")
        async with self._database.write() as connection:
            stored, reports = Stored(connection), BadReplicaReportStore(connection)
            known = await stored.known(
                [bad.dataset], lock=True
            )  # otherwise two reports could make the last two replicas BAD
            there = await visible_replicas(
                connection, await self._places.map(), await stored.replicas(bad.dataset), caller
            )
            replica = await self._meant(there, bad)
            if numbers := await reports.numbers(replica):
                await reports.add(numbers, by, now, bad.reason)
            await self._settle(reports, [known[bad.dataset].id], now)
            found = [each for each in await stored.replicas(bad.dataset) if each.endpoint == replica.endpoint]
            thing = f"{replica.dataset} at {replica.endpoint}: {bad.reason}"
            await TokenStore(connection).note(now, by, "mark bad", thing)
        return found[0]

    async def _meant(self, replicas: Sequence[CatalogueReplica], bad: BadReplica) -> CatalogueReplica:
        endpoints = (await self._places.map()).by_name
        for replica in replicas:
            placed = endpoints.get(replica.endpoint)  # None: new, and not yet known to this process
            url = placed.endpoint.url(replica.path or bad.dataset.rpartition(":")[2]) if placed else ""
            if replica.endpoint == bad.endpoint or (bad.url and unquote(bad.url) == unquote(url)):
                return replica
        where = bad.endpoint or bad.url
        raise NotFound(
            f"there is no replica of {bad.dataset} at {where}",
            f"choose one listed by GET /broker/v1/datasets/{bad.dataset}",
        )

    @staticmethod
    async def _settle(reports: BadReplicaReportStore, datasets: Sequence[int], now: float) -> None:
        """Set the states that follow from the stored reports, for all replicas of some datasets."""
        together: dict[int, list[ReplicaStanding]] = {}
        for each in await reports.standings(datasets):
            together.setdefault(each.dataset_id, []).append(each)
        for standings in together.values():
            changed = changed_states(standings)
            for each in standings:
                if state := changed.get(each.key):
                    reason = "{}: {}".format(*each.reports[-1])[:500] if each.reports else ""
                    await reports.put_state(each.key, state, reason, now)

    async def ignored_subjects(self) -> list[IgnoredSubject]:
        """Return the subjects whose reports are ignored."""
        async with self._database.read() as connection:
            return await BadReplicaReportStore(connection).ignored_subjects()

    @retried
    async def ignore(self, by: str, subject: str) -> None:
        """Ignore all past and future reports of a subject in forecasts and the states of replicas."""
        now = time.time()
        async with self._database.write() as connection:
            if await BadReplicaReportStore(connection).ignore(subject, now, by):
                await TokenStore(connection).note(now, by, "ignore subject", subject)
        await self._settle_all(subject)
        self._forecasting.news()

    async def _settle_all(self, subject: str) -> None:
        """Set the states of all replicas that a subject may have influenced, `PART` datasets in each transaction."""
        async with self._database.read() as connection:
            datasets = await BadReplicaReportStore(connection).datasets_reported_by(subject)
        for begin in range(0, len(datasets), PART):
            await self._settle_some(datasets[begin : begin + PART])

    @retried
    async def _settle_some(self, datasets: Sequence[int]) -> None:
        async with self._database.write() as connection:
            await self._settle(BadReplicaReportStore(connection), datasets, time.time())

    @retried
    async def stop_ignoring(self, by: str, subject: str) -> None:
        """Use a subject's reports again. :raises NotFound: when they are not ignored"""
        now = time.time()
        async with self._database.write() as connection:
            reports = BadReplicaReportStore(connection)
            if not await reports.stop_ignoring(subject):
                raise NotFound(
                    f"the reports of {subject} are not ignored", "choose one listed by GET /broker/v1/ignored-subjects"
                )
            await TokenStore(connection).note(now, by, "stop ignoring subject", subject)
        await self._settle_all(subject)
        self._forecasting.news()
