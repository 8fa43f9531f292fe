"""Runs of timers: every broker process submits the transfers that are due.

A run is one transaction: the process locks the timer, adds the task, and sets the time of the next run. So a process
that dies submits the task and counts the run, or does neither; and of several processes, only one does it.
"""

import asyncio

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.errors import BrokerError, Conflict, Unavailable
from broker.models.callers import Caller
from broker.models.tasks import NewTask
from broker.models.timers import Timer, TimerRun
from broker.services.tasks.submissions import DAY, Submissions
from broker.services.tasks.tasks import Tasks, added
from broker.storage.database import Database, retried
from broker.storage.dialects import read_clock
from broker.storage.oauth import ClientStore
from broker.storage.timers import TimerStore
from broker.storage.tokens import TokenStore

__all__ = ["TimerRuns"]

TICK = 1.0
"""Seconds between queries for due timers."""
ENDED = "the token, login or client that created the timer was revoked, or has expired"
log = structlog.get_logger("broker.timers")


class TimerRuns:
    """The runs of all timers."""

    def __init__(self, database: Database, submissions: Submissions, tasks: Tasks) -> None:
        self._database = database
        self._submissions = submissions
        self._tasks = tasks

    async def keep_running(self) -> None:
        """Submit what is due, until cancelled."""
        while True:
            try:
                await self.run_due()
            except Unavailable as error:
                log.warning("the database cannot be used now", error=error.message)
            except Exception:  # otherwise an error would stop the loop silently
                log.exception("failed to run timers; trying again")
            await asyncio.sleep(TICK)

    async def run_due(self) -> None:
        """Carry out the runs that are due now. :raises Unavailable:"""
        async with self._database.read() as connection:
            due, now = await TimerStore(connection).due(), await read_clock(connection)
        for number in due:
            try:
                async with self._database.read() as connection:
                    timer = await TimerStore(connection).waiting(number)
                if timer is not None:
                    await self._run(timer, now)
            except Unavailable:
                raise
            except Exception:  # otherwise one timer would stop the others
                log.exception("failed to run a timer; trying again", timer=number)

    async def _run(self, timer: Timer, now: float) -> None:
        """Carry out the run of a due timer, unless it is too late for it or its clock was wrong."""
        assert timer.next_run is not None
        if timer.next_run > now:
            planned = timer.schedule.after(now)
            if timer.schedule.misled(timer.last_ran_at, now) and planned != timer.next_run:
                await self._wait(timer, planned)
        elif timer.schedule.over(now):
            await self._wait(timer, None)
        else:
            await self._submit(timer, *await self._checked(timer, now))

    async def _checked(self, timer: Timer, now: float) -> tuple[NewTask | None, BrokerError | None]:
        """Return the task of a run if its owner has all permissions for it now, otherwise the refusal."""
        caller = Caller.model_construct(subject=timer.owner, role=timer.role, site="")
        try:
            return await self._submissions.checked(caller, timer.task(now + DAY), timer.token_id), None
        except Unavailable:
            raise
        except BrokerError as error:
            return None, error

    @retried
    async def _wait(self, timer: Timer, next_run: float | None) -> None:
        """Change the time of a timer's next run, unless the timer has changed."""
        async with self._database.write() as connection:
            store = TimerStore(connection)
            if await store.claim(timer):
                await store.change(timer.id, next_run=next_run)

    async def _submit(self, timer: Timer, task: NewTask | None, refusal: BrokerError | None) -> None:
        if await self._committed(timer, task, refusal) and task is not None:
            self._tasks.announce(task)

    @retried
    async def _committed(self, timer: Timer, task: NewTask | None, refusal: BrokerError | None) -> bool:
        """Record a run with its task or its refusal; return False if the timer has changed or may not run."""
        async with self._database.write() as connection:
            store = TimerStore(connection)
            if not await store.claim(timer):
                return False
            now = await read_clock(connection)
            if await _withdrawn(connection, timer, now):
                await store.change(timer.id, stopped="credentials", reason=ENDED)
                log.warning("a timer stops", timer=str(timer.id), reason=ENDED)
                return False
            submitted = None
            try:
                submitted = None if task is None else (await added(connection, task)).task
            except Conflict as error:  # the owner has used this submission id for a deletion
                refusal = error
            await _note(store, timer, now, submitted, refusal)
            return True


async def _withdrawn(connection: AsyncConnection, timer: Timer, now: float) -> bool:
    """Return whether the token, login or client of a timer no longer gives it any rights."""
    if timer.limit_at is not None and timer.limit_at <= now:
        return True
    if timer.client_id is not None and await ClientStore(connection).get(timer.client_id) is None:
        return True
    return timer.token_id is not None and await TokenStore(connection).withdrawn(timer.token_id, now)


async def _note(store: TimerStore, timer: Timer, now: float, task: str | None, refusal: BrokerError | None) -> None:
    """Record a run, and set the time of the next one; planned times that were missed are left out."""
    assert timer.next_run is not None
    number, run = timer.runs + 1, TimerRun(timer.runs + 1, timer.next_run, now, task)
    if refusal is not None:
        run = run._replace(error_code=refusal.code, error=f"{refusal.message}: {refusal.remedy}")
    await store.note(timer.id, run)
    last = timer.schedule.most is not None and number >= timer.schedule.most
    await store.change(
        timer.id,
        runs=number,
        errors=timer.errors + (refusal is not None),
        last_ran_at=now,
        next_run=None if last else timer.schedule.after(max(now, timer.next_run)),
    )
