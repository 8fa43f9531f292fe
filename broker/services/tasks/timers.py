"""Timers: users create, see, pause, resume and delete their own. `timer_runs` carries them out."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy.ext.asyncio import AsyncConnection

from broker.errors import Conflict, Invalid, NoTimer
from broker.models.callers import Caller
from broker.models.oauth import Bearer
from broker.models.timers import NewTimer, Schedule, Timer, TimerRun
from broker.services.tasks.submissions import DAY, Submissions
from broker.storage.database import Database, retried
from broker.storage.dialects import read_clock
from broker.storage.timers import TimerStore
from broker.storage.tokens import TokenStore

__all__ = ["Timers"]

MOST = 100
"""Most timers of one user that have not ended."""
FOREIGN = 30 * DAY
"""Seconds for which a timer runs with the role of a token that is not of this broker."""
KEPT = 30 * DAY
"""Seconds for which a timer that has ended is kept."""
YEAR = 365 * DAY
SHOWN = 10
"""Runs that are shown of a timer."""


class Timers:
    """The timers of all users. Users see and change only their own, also admins."""

    def __init__(self, database: Database, submissions: Submissions) -> None:
        self._database = database
        self._submissions = submissions

    async def create(self, bearer: Bearer, new: NewTimer) -> Timer:
        """Create a timer for the owner of a token, whose transfer is permitted now.

        :raises NoCollection: :raises NotGranted: :raises Invalid: when the transfer or the times are not valid
        :raises Conflict: when the user has too many timers
        """
        timer = await self._timer(bearer, new)
        await self._submissions.checked(bearer.caller, timer.task(timer.submitted_at + DAY), bearer.number)
        await self._add(timer)
        return timer

    async def _timer(self, bearer: Bearer, new: NewTimer) -> Timer:
        async with self._database.read() as connection:
            now = await read_clock(connection)
            limit = await _limit(connection, bearer, now)
        start = max(now, new.start or now) if new.interval is None else new.start or now
        if start > now + YEAR:
            raise Invalid("the timer starts in more than a year", "choose an earlier start")
        if new.until is not None and new.until <= max(start, now):
            raise Invalid("the end of the timer is not after its start, or has passed", "choose a later end")
        return Timer(
            id=uuid4(),
            owner=bearer.caller.subject,
            role=bearer.caller.role,
            token_id=bearer.number,
            client_id=bearer.client,
            limit_at=limit,
            name=new.name,
            transfer=new.transfer,
            schedule=Schedule(start, new.interval, new.until, new.most),
            next_run=start,
            submitted_at=now,
        )

    @retried
    async def _add(self, timer: Timer) -> None:
        async with self._database.write() as connection:
            store = TimerStore(connection)
            await store.forget(timer.submitted_at - KEPT)
            if await store.count(timer.owner) >= MOST:
                raise Conflict(f"{timer.owner} has {MOST} timers that have not ended", "delete some of them")
            await store.add(timer)

    async def all(self, caller: Caller) -> list[Timer]:
        """Return the caller's timers without items: the newest first, and those that have ended last."""
        async with self._database.read() as connection:
            return await TimerStore(connection).all(caller.subject)

    async def one(self, caller: Caller, number: UUID) -> Timer:
        """Return a timer. :raises NoTimer: when the caller has no such timer"""
        async with self._database.read() as connection:
            return await _owned(connection, caller, number)

    async def runs(self, timer: Timer) -> Sequence[TimerRun]:
        """Return the latest runs of a timer, the newest first."""
        async with self._database.read() as connection:
            return await TimerStore(connection).runs(str(timer.id), SHOWN)

    async def unfinished(self, caller: Caller) -> set[UUID]:
        """Return the caller's timers whose last task is not over."""
        async with self._database.read() as connection:
            return await TimerStore(connection).unfinished(caller.subject)

    async def rename(self, caller: Caller, number: UUID, name: str) -> Timer:
        """Change the name of a timer, and return it. :raises NoTimer:"""
        return await self._changed(caller, number, {"name": name})

    async def pause(self, caller: Caller, number: UUID) -> Timer:
        """Pause a timer until it is resumed. :raises NoTimer: :raises Conflict: when it has ended"""
        return await self._changed(caller, number, {"stopped": "user", "reason": None}, going=True)

    async def resume(self, bearer: Bearer, number: UUID, renew: bool | None) -> Timer:
        """Resume a timer; a run that was missed takes place at once.

        :param renew: whether its runs depend on this token from now on; None if the former one has ended
        :raises NoTimer: :raises Conflict: when it has ended
        """
        timer = await self.one(bearer.caller, number)
        values: dict[str, Any] = {"stopped": None, "reason": None}
        if renew or (renew is None and timer.stopped == "credentials"):
            async with self._database.read() as connection:
                limit = await _limit(connection, bearer, await read_clock(connection))
            values |= {"role": bearer.caller.role, "limit_at": limit}
            values |= {"token_id": bearer.number, "client_id": bearer.client}
        return await self._changed(bearer.caller, number, values, going=True)

    @retried
    async def _changed(self, caller: Caller, number: UUID, values: Mapping[str, Any], going: bool = False) -> Timer:
        """Change columns of a timer. :param going: whether this needs a timer that has not ended"""
        async with self._database.write() as connection:
            timer = await _owned(connection, caller, number, lock=True)
            if going and timer.next_run is None:
                raise Conflict(f"timer {number} has ended", "create a new one")
            await TimerStore(connection).change(number, **values)
            return timer._replace(**values)

    @retried
    async def remove(self, caller: Caller, number: UUID) -> Timer:
        """Delete a timer, and return it; tasks that it submitted continue. :raises NoTimer:"""
        async with self._database.write() as connection:
            timer = await _owned(connection, caller, number, lock=True)
            await TimerStore(connection).remove(number)
            return timer


async def _owned(connection: AsyncConnection, caller: Caller, number: UUID, lock: bool = False) -> Timer:
    timer = await TimerStore(connection).one(str(number), caller.subject, lock)
    if timer is None:
        raise NoTimer(f"there is no timer {number}", "choose one from the list of your timers")
    return timer


async def _limit(connection: AsyncConnection, bearer: Bearer, now: float) -> float | None:
    """Return the time at which the rights that a token gives to a timer end at the latest."""
    return now + FOREIGN if bearer.number is None else await TokenStore(connection).limit(bearer.number)
