"""Reports that replicas are bad: what they do to a replica, and how the word of one subject is set aside.

A report puts a replica out of service while there is another one; the last one is only suspected, and still handed out,
behind the others. What a curator has said of a replica no single report changes. All of that follows from the reports
that are kept, so setting a subject aside undoes what it did, and taking it back does it again.
"""

import time
from collections.abc import Sequence
from urllib.parse import unquote

from broker.errors import NotFound
from broker.models.access import Aside, Caller, Role
from broker.models.catalogue import BadReplica, Replica
from broker.services.enclosing import told
from broker.services.forecasting import Forecasting
from broker.services.places import Places
from broker.storage.access import Records
from broker.storage.catalogue import Catalogue as Stored
from broker.storage.database import Database, retried
from broker.storage.doubts import Doubts as Kept
from broker.storage.doubts import Standing

__all__ = ["Doubts", "changed_states"]

PART = 500
"""Datasets that are looked at in one transaction."""
ENOUGH = 2
"""Subjects that have to report a replica of which a curator has said that it is available."""


def changed_states(standings: Sequence[Standing]) -> dict[tuple[int, int], str]:
    """The states that replicas of one dataset should have but do not, by their numbers.

    >>> one = Standing(1, 1, "AVAILABLE", False, True, True, [("ann", "broken")])
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


def _state(each: Standing, others: bool) -> str:
    """What a replica's state should be.

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
    """What users say of replicas, and whose word counts."""

    def __init__(self, database: Database, places: Places, forecasting: Forecasting) -> None:
        self._database = database
        self._places = places
        self._forecasting = forecasting

    @retried
    async def report(self, by: str, bad: BadReplica, role: Role = "curator") -> Replica:
        """Keep a report; the replica as it is then. :raises NotFound: when it is not there for who reports"""
        now = time.time()
        caller = Caller.model_construct(subject=by, role=role, site="")
        async with self._database.write() as connection:
            stored, kept = Stored(connection), Kept(connection)
            known = await stored.known([bad.dataset], lock=True)  # else two could each leave the other as the last
            there = await told(connection, await self._places.map(), await stored.replicas(bad.dataset), caller)
            replica = await self._meant(there, bad)
            if numbers := await kept.numbers(replica):
                await kept.add(numbers, by, now, bad.reason)
            await self._settle(kept, [known[bad.dataset].id], now)
            found = [each for each in await stored.replicas(bad.dataset) if each.endpoint == replica.endpoint]
            thing = f"{replica.dataset} at {replica.endpoint}: {bad.reason}"
            await Records(connection).note(now, by, "mark bad", thing)
        return found[0]

    async def _meant(self, replicas: Sequence[Replica], bad: BadReplica) -> Replica:
        endpoints = (await self._places.map()).by_name
        for replica in replicas:
            placed = endpoints.get(replica.endpoint)  # None: made by another process a moment ago
            url = placed.endpoint.url(replica.path or bad.dataset.rpartition(":")[2]) if placed else ""
            if replica.endpoint == bad.endpoint or (bad.url and unquote(bad.url) == unquote(url)):
                return replica
        where = bad.endpoint or bad.url
        raise NotFound(f"there is no replica of {bad.dataset} at {where}", f"see GET /broker/v1/datasets/{bad.dataset}")

    @staticmethod
    async def _settle(kept: Kept, datasets: Sequence[int], now: float) -> None:
        """Have replicas in the states that follow from what is kept."""
        together: dict[int, list[Standing]] = {}
        for each in await kept.standings(datasets):
            together.setdefault(each.dataset_id, []).append(each)
        for standings in together.values():
            changed = changed_states(standings)
            for each in standings:
                if state := changed.get(each.key):
                    reason = "{}: {}".format(*each.doubters[-1])[:500] if each.doubters else ""
                    await kept.put_state(each.key, state, reason, now)

    async def asides(self) -> list[Aside]:
        """Subjects whose reports are set aside."""
        async with self._database.read() as connection:
            return await Kept(connection).asides()

    @retried
    async def set_aside(self, by: str, subject: str) -> None:
        """Let all that a subject has reported, and will report, count for nothing but its own transfers."""
        now = time.time()
        async with self._database.write() as connection:
            if await Kept(connection).set_aside(subject, now, by):
                await Records(connection).note(now, by, "set reports aside", subject)
        await self._settle_all(subject)
        self._forecasting.news()

    async def _settle_all(self, subject: str) -> None:
        """What a subject has reported, in parts: there may be very much of it."""
        async with self._database.read() as connection:
            datasets = await Kept(connection).doubted_by(subject)
        for begin in range(0, len(datasets), PART):
            await self._settle_some(datasets[begin : begin + PART])

    @retried
    async def _settle_some(self, datasets: Sequence[int]) -> None:
        async with self._database.write() as connection:
            await self._settle(Kept(connection), datasets, time.time())

    @retried
    async def take_back(self, by: str, subject: str) -> None:
        """Let a subject's reports count again. :raises NotFound: when they do"""
        now = time.time()
        async with self._database.write() as connection:
            kept = Kept(connection)
            if not await kept.take_back(subject):
                raise NotFound(f"no reports of {subject} are set aside", "see GET /broker/v1/asides")
            await Records(connection).note(now, by, "take reports back", subject)
        await self._settle_all(subject)
        self._forecasting.news()
