"""Reports that replicas are bad: their effect on replicas, and how the reports of a subject are set aside.

A report takes a replica out of service if there is another one. The last one only becomes suspicious, and is still
offered, after the others. A single report does not change a state that a curator has set. All states follow from the
stored reports: setting a subject aside undoes the effect of its reports, and taking it back restores the effect.
"""

import time
from collections.abc import Sequence
from urllib.parse import unquote

from broker.errors import NotFound
from broker.models.access import Aside, Caller, Role
from broker.models.catalogue import BadReplica, CatalogueReplica
from broker.services.catalogue.enclosing import visible_replicas
from broker.services.forecasting.forecasts import Forecasting
from broker.services.network.places import Places
from broker.storage.access import AccessStore
from broker.storage.catalogue import CatalogueStore as Stored
from broker.storage.database import Database, retried
from broker.storage.doubts import DoubtStore, ReplicaStanding

__all__ = ["Doubts", "changed_states"]

PART = 500
"""Datasets that one transaction examines."""
ENOUGH = 2
"""Subjects that have to report a replica before it becomes suspicious, if a curator has declared it available."""


def changed_states(standings: Sequence[ReplicaStanding]) -> dict[tuple[int, int], str]:
    """Return the new states of those replicas of one dataset that have to change, by dataset and endpoint number.

    >>> one = ReplicaStanding(1, 1, "AVAILABLE", False, True, True, [("ann", "broken")])
    >>> changed_states([one]), changed_states([one, one._replace(endpoint_id=2, doubters=[])])
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
    if len(each.doubters) < (ENOUGH if each.judged else 1):
        return "AVAILABLE"
    if each.judged:
        return "SUSPICIOUS"
    return "BAD" if others or each.state == "BAD" else "SUSPICIOUS"


class Doubts:
    """The reports of users about replicas, and the subjects whose reports are set aside."""

    def __init__(self, database: Database, places: Places, forecasting: Forecasting) -> None:
        self._database = database
        self._places = places
        self._forecasting = forecasting

    @retried
    async def report(self, by: str, bad: BadReplica, role: Role = "curator") -> CatalogueReplica:
        """Store a report, and return the replica in its new state.

        :raises NotFound: when there is no such replica that the reporter may see
        """
        now = time.time()
        caller = Caller.model_construct(subject=by, role=role, site="")
        async with self._database.write() as connection:
            stored, doubts = Stored(connection), DoubtStore(connection)
            known = await stored.known([bad.dataset], lock=True)  # else two reports could both take the last replica
            there = await visible_replicas(
                connection, await self._places.map(), await stored.replicas(bad.dataset), caller
            )
            replica = await self._meant(there, bad)
            if numbers := await doubts.numbers(replica):
                await doubts.add(numbers, by, now, bad.reason)
            await self._settle(doubts, [known[bad.dataset].id], now)
            found = [each for each in await stored.replicas(bad.dataset) if each.endpoint == replica.endpoint]
            thing = f"{replica.dataset} at {replica.endpoint}: {bad.reason}"
            await AccessStore(connection).note(now, by, "mark bad", thing)
        return found[0]

    async def _meant(self, replicas: Sequence[CatalogueReplica], bad: BadReplica) -> CatalogueReplica:
        endpoints = (await self._places.map()).by_name
        for replica in replicas:
            placed = endpoints.get(replica.endpoint)  # None: made by another process a moment ago
            url = placed.endpoint.url(replica.path or bad.dataset.rpartition(":")[2]) if placed else ""
            if replica.endpoint == bad.endpoint or (bad.url and unquote(bad.url) == unquote(url)):
                return replica
        where = bad.endpoint or bad.url
        raise NotFound(f"there is no replica of {bad.dataset} at {where}", f"see GET /broker/v1/datasets/{bad.dataset}")

    @staticmethod
    async def _settle(doubts: DoubtStore, datasets: Sequence[int], now: float) -> None:
        """Set the states of replicas that follow from the stored reports."""
        together: dict[int, list[ReplicaStanding]] = {}
        for each in await doubts.standings(datasets):
            together.setdefault(each.dataset_id, []).append(each)
        for standings in together.values():
            changed = changed_states(standings)
            for each in standings:
                if state := changed.get(each.key):
                    reason = "{}: {}".format(*each.doubters[-1])[:500] if each.doubters else ""
                    await doubts.put_state(each.key, state, reason, now)

    async def asides(self) -> list[Aside]:
        """Return the subjects whose reports are set aside."""
        async with self._database.read() as connection:
            return await DoubtStore(connection).asides()

    @retried
    async def set_aside(self, by: str, subject: str) -> None:
        """Set aside all past and future reports of a subject: states of replicas and forecasts do not use them."""
        now = time.time()
        async with self._database.write() as connection:
            if await DoubtStore(connection).set_aside(subject, now, by):
                await AccessStore(connection).note(now, by, "set reports aside", subject)
        await self._settle_all(subject)
        self._forecasting.news()

    async def _settle_all(self, subject: str) -> None:
        """Settle all datasets of which a subject has reported replicas, in parts, as there may be very many."""
        async with self._database.read() as connection:
            datasets = await DoubtStore(connection).doubted_by(subject)
        for begin in range(0, len(datasets), PART):
            await self._settle_some(datasets[begin : begin + PART])

    @retried
    async def _settle_some(self, datasets: Sequence[int]) -> None:
        async with self._database.write() as connection:
            await self._settle(DoubtStore(connection), datasets, time.time())

    @retried
    async def take_back(self, by: str, subject: str) -> None:
        """Let a subject's reports count again. :raises NotFound: when they are not set aside"""
        now = time.time()
        async with self._database.write() as connection:
            doubts = DoubtStore(connection)
            if not await doubts.take_back(subject):
                raise NotFound(f"no reports of {subject} are set aside", "see GET /broker/v1/asides")
            await AccessStore(connection).note(now, by, "take reports back", subject)
        await self._settle_all(subject)
        self._forecasting.news()
