"""Decisions are kept, with what would have been best: judged once, when they are reported."""

import math
import time
from collections.abc import Sequence

from broker.errors import Invalid, NotFound
from broker.models.access import Caller, Role
from broker.models.decisions import Decided, Kept, Made, Part, Regret, Taken
from broker.models.history import Pair
from broker.services.history import AHEAD
from broker.services.places import Places
from broker.services.regret import Able, hindsight
from broker.storage.database import Database, retried
from broker.storage.decisions import Decisions as Stored
from broker.storage.history import History
from predictors.observation import Observation

__all__ = ["NEAR", "Decisions"]

NEAR = 3600.0
"""Seconds between a decision and another transfer over a way that tell what an unused candidate would have done."""
SHORTEST = 1e-6
"""Seconds in which something can be seen to flow."""


class Decisions:
    """The decisions of all users. A caller sees their own, an admin all."""

    def __init__(self, database: Database, places: Places) -> None:
        self._database = database
        self._places = places

    async def keep(self, subject: str, made: Sequence[Made], role: Role = "reader") -> Taken:
        """Keep all that this subject has not reported before.

        :param role: of the subject: a collection that it may not see is filed as one that is not known
        :raises Invalid: when one is of the future, or names what is no server
        """
        latest = time.time() + AHEAD
        for each in made:
            if each.decided.at > latest:
                raise Invalid(f"decision {each.decided.id} is of the future", "give seconds since the epoch")
        caller = Caller.model_construct(subject=subject, role=role, site="")
        named = [each._replace(decided=await self._renamed(each.decided, caller)) for each in made]
        accepted = await self._add(subject, named)
        return Taken(accepted=accepted, known=len(made) - accepted)

    async def _renamed(self, decided: Decided, caller: Caller) -> Decided:
        """With its sources as history calls them."""
        names = await self._places.sources({each.source for each in decided.sources}, caller)
        parts = [each.model_copy(update={"source": names[each.source]}) for each in decided.sources]
        return decided.model_copy(update={"sources": parts})

    @retried
    async def _add(self, subject: str, made: Sequence[Made]) -> int:
        async with self._database.write() as connection:
            stored = Stored(connection)
            known = await stored.known(subject, [each.decided.id for each in made])
            news = [each for each in made if each.decided.id not in known]
            history = History(connection)
            return await stored.add(subject, [(each, await _judged(each.decided, history)) for each in news])

    async def one(self, caller: Caller, number: int) -> Kept:
        """:raises NotFound: when there is none, or it is none of the caller's business"""
        async with self._database.read() as connection:
            kept = await Stored(connection).one(number, None if caller.may("admin") else caller.subject)
        if kept is None:
            raise NotFound(f"there is no transfer {number}", "see the list of decisions")
        return kept


async def _judged(decided: Decided, history: History) -> Regret:
    """What would have been best."""
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
    best = min(known.best, decided.fetch_seconds)  # what was done was possible
    return Regret(best, known.planned, known.single, known.shares, known.waits, able.count(None))


def _able(part: Part) -> Able | None:
    """What a candidate that was used was able to; one that failed could give what it gave."""
    failed = part.outcome in ("failed", "corrupt")
    most = 0.0 if part.outcome == "corrupt" else float(part.bytes) if failed else math.inf
    if part.start_seconds is None or not part.bytes or part.flow_seconds < SHORTEST:
        return Able(0.0, 1.0, 0.0, part.planned_bytes) if failed else None
    return Able(part.start_seconds, part.bytes / part.flow_seconds, most, part.planned_bytes)


def _as_then(part: Part, seen: Observation, ready: float) -> Able | None:
    """What one that was not used would have done, after another transfer over the same way at about that time."""
    busy = seen.busy_seconds or seen.end - seen.start
    setup = seen.setup_seconds or 0.0
    flow = busy - setup * seen.ranges
    if not seen.bytes or flow <= 0:
        return None
    return Able(ready + setup, seen.bytes / flow, planned=part.planned_bytes)
