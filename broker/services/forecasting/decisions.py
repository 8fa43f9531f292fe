"""Decisions, stored with the best possible outcome in hindsight, which is computed when they are reported."""

import math
import time
from collections.abc import Sequence

from broker.errors import Invalid, NotFound
from broker.models.callers import Caller, Role
from broker.models.decisions import DecisionsAccepted, Made, Regret, ReportedDecision, SourcePart, StoredDecision
from broker.models.history import Pair
from broker.services.forecasting.history import AHEAD
from broker.services.forecasting.regret import Able, hindsight
from broker.services.network.places import Places
from broker.storage.database import Database, retried
from broker.storage.decisions import DecisionStore as Stored
from broker.storage.history import ObservationStore
from predictors.observation import Observation

__all__ = ["NEAR", "Decisions"]

NEAR = 3600.0
"""Most seconds between a decision and another transfer that shows the rate of an unused candidate's link."""
SHORTEST = 1e-6
"""Shortest flow in seconds from which a rate is computed."""


class Decisions:
    """The decisions of all users. Users see their own, admins all."""

    def __init__(self, database: Database, places: Places) -> None:
        self._database = database
        self._places = places

    async def keep(self, subject: str, made: Sequence[Made], role: Role = "reader") -> DecisionsAccepted:
        """Store the decisions that this subject has not reported before.

        :param role: role of the subject; a collection that it may not see is treated as unknown
        :raises Invalid: when a decision is in the future, or names an unknown source
        """
        latest = time.time() + AHEAD
        for each in made:
            if each.decided.at > latest:
                raise Invalid(f"decision {each.decided.id} has a time in the future", "send seconds since the epoch")
        caller = Caller.model_construct(subject=subject, role=role, site="")
        named = [each._replace(decided=await self._renamed(each.decided, caller)) for each in made]
        accepted = await self._add(subject, named)
        return DecisionsAccepted(accepted=accepted, known=len(made) - accepted)

    async def _renamed(self, decided: ReportedDecision, caller: Caller) -> ReportedDecision:
        """Return the decision with the sources' names in the form of the history."""
        names = await self._places.sources({each.source for each in decided.sources}, caller)
        parts = [each.model_copy(update={"source": names[each.source]}) for each in decided.sources]
        return decided.model_copy(update={"sources": parts})

    @retried
    async def _add(self, subject: str, made: Sequence[Made]) -> int:
        async with self._database.write() as connection:
            stored = Stored(connection)
            known = await stored.known(subject, [each.decided.id for each in made])
            news = [each for each in made if each.decided.id not in known]
            history = ObservationStore(connection)
            return await stored.add(subject, [(each, await _judged(each.decided, history)) for each in news])

    async def one(self, caller: Caller, number: int) -> StoredDecision:
        """Return a decision. :raises NotFound: when it does not exist, or the caller may not see it"""
        async with self._database.read() as connection:
            decision = await Stored(connection).one(number, None if caller.may("admin") else caller.subject)
        if decision is None:
            raise NotFound(f"there is no transfer {number}", "choose one from the list of decisions")
        return decision


async def _judged(decided: ReportedDecision, history: ObservationStore) -> Regret:
    """Return the regret of a decision; empty if it failed, moved nothing, or is a collect job."""
    if decided.outcome != "ok" or decided.kind == "collect" or not decided.moved:
        return Regret()
    readies = [each.start_seconds for each in decided.sources if each.start_seconds is not None]
    able = [_able(each) for each in decided.sources]
    for i, each in enumerate(decided.sources):
        if each.outcome == "unused":
            near = await history.near(Pair(each.source, decided.sink), decided.at, NEAR)
            able[i] = _as_then(each, near, max(readies, default=0.0)) if near else None
    known = hindsight(decided.moved, able)
    if known is None:
        return Regret()
    best = min(known.best, decided.fetch_seconds)  # the best is never slower than the actual transfer
    return Regret(best, known.planned, known.single, known.shares, known.waits, able.count(None))


def _able(part: SourcePart) -> Able | None:
    """Return the rate and limit of a used candidate; None if unknown.

    A candidate that failed could deliver as much as it did; one with corrupt data, nothing.
    """
    failed = part.outcome in ("failed", "corrupt")
    most = 0.0 if part.outcome == "corrupt" else float(part.bytes) if failed else math.inf
    if part.start_seconds is None or not part.bytes or part.flow_seconds < SHORTEST:
        return Able(0.0, 1.0, 0.0, part.planned_bytes) if failed else None
    return Able(part.start_seconds, part.bytes / part.flow_seconds, most, part.planned_bytes)


def _as_then(part: SourcePart, seen: Observation, ready: float) -> Able | None:
    """Return the rate that an unused candidate would have had; None if unknown.

    :param seen: another transfer over the same link at about the same time
    :param ready: seconds until the slowest used source could deliver, which is assumed for this candidate
    """
    busy = seen.busy_seconds or seen.end - seen.start
    setup = seen.setup_seconds or 0.0
    flow = busy - setup * seen.ranges
    if not seen.bytes or flow <= 0:
        return None
    return Able(ready + setup, seen.bytes / flow, planned=part.planned_bytes)
