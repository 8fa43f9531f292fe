"""Looks at the deadlines of active tasks: how likely they are kept, from the rate of each task.

Each task is looked at by one process, so that a change is told once.
"""

import asyncio
import time
from uuid import uuid4

import structlog

from broker.errors import BrokerError, Conflict
from broker.models.callers import Caller
from broker.models.guarantees import WatchedDeadline
from broker.services.planning.guarantees import Guarantees
from broker.services.planning.task_deadlines import SURE, TaskDeadlines
from broker.storage.database import Database, retried
from broker.storage.dialects import read_clock
from broker.storage.task_deadlines import DeadlineStore
from coalloc.guarantees.deadline import AT_RISK, Grade, PathRate, finish, graded
from coalloc.guarantees.finish import FinishErrors
from coalloc.guarantees.finish_admission import FinishView
from coalloc.guarantees.windows import RateWindows

__all__ = ["DeadlineLooks"]

LOOK = 5.0
"""Seconds between two looks."""
CLAIM = 30.0
"""Seconds without a look after which another process looks at a task."""
MOST = 200
"""Most tasks that one process looks at, those with the nearest deadlines."""
ERRORS = FinishErrors()
log = structlog.get_logger("broker.deadlines")


class DeadlineLooks:
    """The looks of this process."""

    def __init__(self, database: Database, deadlines: TaskDeadlines, guarantees: Guarantees) -> None:
        self._database = database
        self._deadlines = deadlines
        self._guarantees = guarantees
        self._name = str(uuid4())
        self._windows: dict[str, RateWindows] = {}
        self._grades: dict[str, Grade] = {}
        self._noted: dict[str, tuple[float, float, Grade, bool, int]] = {}
        self._tried: set[tuple[str, float]] = set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            try:
                await self.look()
            except BrokerError as error:
                log.warning("cannot look at deadlines now; trying again", error=error.message)
            except Exception:  # otherwise an error would stop the loop silently
                log.exception("cannot look at deadlines now; trying again")

    async def look(self) -> None:
        """Look at all deadlines of this process once."""
        async with self._database.read() as connection:  # no write transaction unless there are such tasks
            there = await DeadlineStore(connection).any()
        now, tasks = await self._claim() if there else (0.0, [])
        known = {task.id for task in tasks}
        self._windows = {number: each for number, each in self._windows.items() if number in known}
        self._grades = {number: each for number, each in self._grades.items() if number in known}
        self._noted = {number: each for number, each in self._noted.items() if number in known}
        self._tried = {each for each in self._tried if each[0] in known}
        for task in tasks:
            try:
                await self._look_at(task, now)
            except Conflict as error:
                log.info("a promise was closed meanwhile", task=task.id, reason=error.message)

    @retried
    async def _claim(self) -> tuple[float, list[WatchedDeadline]]:
        async with self._database.write() as connection:
            stored = DeadlineStore(connection)
            await stored.claim(self._name, CLAIM, MOST)
            return await read_clock(connection), await stored.claimed(self._name)

    async def _look_at(self, task: WatchedDeadline, now: float) -> None:
        if task.bytes_transferred:
            windows = self._windows.setdefault(task.id, RateWindows())
            windows.add(task.bytes_transferred, time.monotonic())
        if task.listed and task.decided_bytes is None and (task.id, task.deadline) not in self._tried:
            self._tried.add((task.id, task.deadline))
            if await self._promised(task):
                return
        view = self._measured(task, now) or await self._deadlines.outlook(task)
        if view is None or (not task.sized and view.chance >= AT_RISK):  # further files may make it late
            return
        grade = graded(view.chance, task.grade or "at risk", SURE)
        settled = self._grades.get(task.id) == grade
        self._grades[task.id] = grade
        noted = (task.deadline, round(view.chance, 3), grade, settled, task.left)
        if self._noted.get(task.id) == noted:  # otherwise each look at a waiting task would be a write transaction
            return
        await self._deadlines.tell(task.id, view, task.deadline, settled)
        if task.promise is not None:
            await self._guarantees.renew(task.promise, task.left, view.chance)
        self._noted[task.id] = noted

    async def _promised(self, task: WatchedDeadline) -> bool:
        caller = Caller(subject=task.owner, role=task.role)
        ends = (task.source, task.destination)
        return await self._deadlines.promise(caller, task.id, ends, task.left, task.files, task.deadline)

    def _measured(self, task: WatchedDeadline, now: float) -> FinishView | None:
        """Return the outlook from the rate of the task itself; None if it was not measured yet."""
        windows = self._windows.get(task.id)
        found = windows and windows.forecast(task.deadline - now)
        if not found:
            return None
        forecast = finish(task.left, [PathRate(*found)])
        return FinishView(forecast.chance(task.deadline - now, ERRORS), now + forecast.within(SURE, ERRORS))
