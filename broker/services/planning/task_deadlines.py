"""Deadlines of tasks that their owners have chosen: promises, probabilities, and events when these change.

A task with such a deadline runs in any case. If its deadline can be promised, shares of its link are reserved.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from math import ceil, inf

import structlog

from broker.errors import BrokerError
from broker.models.callers import Caller
from broker.models.guarantees import WatchedDeadline
from broker.models.tasks import DeadlineCode, Event, NewTask, moves_bytes
from broker.services.collections.collections import Collections, CollectionUse
from broker.services.collections.pause_rules import PauseRules
from broker.services.collections.trees import Trees
from broker.services.network.places import GLOBUS, Places
from broker.services.planning.guarantees import MOST_BYTES, Guarantees, within
from broker.services.planning.promised_links import KnownLinks, Promising
from broker.storage.database import Database, retried
from broker.storage.dialects import read_clock
from broker.storage.task_deadlines import DeadlineStore
from broker.storage.tasks import TaskStore
from coalloc.errors import CoallocError
from coalloc.guarantees.deadline import Grade, PathRate, graded
from coalloc.guarantees.finish_admission import FinishView
from coalloc.util import human

__all__ = ["SURE", "TaskDeadlines"]

SURE = 0.95
"""Probability with which deadlines of tasks are promised."""
SECONDS, MOST_ITEMS = 3.0, 16
"""Seconds for which a submission waits for the sizes of its files, and most items that it asks for."""
EVENTS: Mapping[Grade, tuple[DeadlineCode, str]] = {
    "fine": ("DEADLINE_HOLDS", "the deadline will probably be kept"),
    "at risk": ("DEADLINE_AT_RISK", "the deadline may not be kept"),
    "lost": ("DEADLINE_LOST", "the deadline cannot be kept"),
}
"""Code and description of the event that tells about each grade."""
log = structlog.get_logger("broker.deadlines")


class TaskDeadlines:
    """The deadlines of tasks."""

    def __init__(
        self,
        database: Database,
        places: Places,
        guarantees: Guarantees,
        collections: Collections,
        pause_rules: PauseRules,
        trees: Trees,
    ) -> None:
        self._database = database
        self._places = places
        self._guarantees = guarantees
        self._collections = collections
        self._pause_rules = pause_rules
        self._trees = trees

    async def begin(self, caller: Caller, task: NewTask, number: str) -> None:
        """Promise the deadline of a new task, or tell that it may not be kept, if its files' sizes can be learnt now.

        Otherwise `jobs.task_deadlines` does so while the task runs.
        """
        if not task.deadline_asked or not moves_bytes(task.kind, task.options):
            return
        try:
            async with asyncio.timeout(SECONDS):
                size = await self._size(caller, task)
            if size is not None:
                ends = (str(task.source), str(task.destination))
                await self.promise(caller, number, ends, size, len(task.items), task.deadline)
        except (BrokerError, CoallocError, TimeoutError) as error:
            log.info("cannot decide the deadline of a new task now; trying again", task=number, reason=str(error))
        except Exception:  # the task is submitted in any case
            log.exception("cannot look at the deadline of a new task", task=number)

    async def _size(self, caller: Caller, task: NewTask) -> int | None:
        """Return the bytes of a task whose items are all files; None if some are not, or if there are many."""
        if len(task.items) > MOST_ITEMS:
            return None
        uses = [CollectionUse(task.source, item.source) for item in task.items]
        reach = (await self._collections.allow(caller, uses))[task.source]
        await self._pause_rules.check(caller, reach.collection, "ls")
        tree = await self._trees.of(reach.collection, reach)
        found = [await tree.stat(item.source) for item in task.items]
        sizes = [each.size for each in found if each.kind == "file" and each.size is not None]
        known = len(sizes) == len(found) and min(sizes) >= 0 and sum(sizes) < MOST_BYTES
        return sum(sizes) if known else None

    async def promise(
        self, caller: Caller, number: str, ends: tuple[str, str], size: int, files: int, by: float
    ) -> bool:
        """Promise a task's deadline if it can be kept, and tell if it may not be kept; return whether it was decided.

        :param caller: owner of the task
        :param ends: ids of its source and its destination
        """
        try:
            links = await self._links(caller, ends, size, files)
            decided = await self._guarantees.promise(
                Promising(caller.subject, links, max(1, size), by, SURE, task=number)
            )
        except BrokerError as error:
            log.info("no promise was made for a task's deadline", task=number, reason=error.message)
            return False
        made, sure_by = decided.guarantee, decided.earliest
        holds_at = made.t95 if made.outcome != "refused" else sure_by
        await self.tell(number, FinishView(made.chance, inf if holds_at is None else holds_at), by)
        return True

    async def outlook(self, task: WatchedDeadline) -> FinishView | None:
        """Return the outlook of a task whose rate was not measured yet; None if nothing is known about its link."""
        caller = Caller(subject=task.owner, role=task.role)
        try:
            links = await self._links(caller, (task.source, task.destination), task.left, task.files)
        except BrokerError:
            return None
        wanted = Promising(task.owner, links, task.left, task.deadline, SURE)
        return await self._guarantees.outlook(wanted, task.promise)

    async def _links(self, caller: Caller, ends: tuple[str, str], size: int, files: int) -> KnownLinks:
        """Return the link of a task, at the rate of files of the mean size. :raises Conflict: when it is unknown"""
        source, destination = ends
        servers = await self._places.sources([f"{GLOBUS}{end}" for end in ends], caller)
        site = (await self._places.sinks([destination], caller))[destination]
        address, server = servers[f"{GLOBUS}{source}"], servers[f"{GLOBUS}{destination}"]
        links = await self._guarantees.known([address], site, server, size, caller)
        collections = await self._collections.named(set(ends))
        limits = [each.rate for each in collections.values() if each.rate is not None]
        rates = {name: _with_pauses(rate, size / max(1, files), limits) for name, rate in links.rates.items()}
        return links._replace(rates=rates)

    @retried
    async def tell(self, number: str, view: FinishView, by: float, settled: bool = True) -> None:
        """Store what is known about a task's deadline; if its grade changes, add an event.

        :param settled: whether to tell a change now; False if only one look has shown it
        """
        async with self._database.write() as connection:
            stored, now = DeadlineStore(connection), await read_clock(connection)
            holds_at = within(view.sure_by, now)
            active, before = await stored.note(
                number, by, round(view.chance, 3), None if holds_at is None else ceil(holds_at)
            )
            grade = graded(view.chance, before or "at risk", SURE)
            if not active or not settled or grade == before:
                return
            await stored.grade(number, grade)
            if grade != (before or "fine"):
                await TaskStore(connection).note([(number, _event(grade, view.chance, by, holds_at, now))])
                await stored.notify(number, now)


def _with_pauses(path: PathRate, mean: float, limits: list[float]) -> PathRate:
    """Return the rate of files one after the other, each with a set-up, under the limits of collections."""
    rate = mean / (mean / path.rate + path.setup) if mean else path.rate
    return PathRate(min([rate, *limits]), path.spread)


def _event(grade: Grade, chance: float, by: float, holds_at: float | None, now: float) -> Event:
    code, description = EVENTS[grade]
    holds = "" if holds_at is None else f"; {100 * SURE:g} % by {_shown(holds_at)}"
    return Event(now, code, False, description, f"{human.probability(chance)} by {_shown(by)}{holds}")


def _shown(moment: float) -> str:
    return datetime.fromtimestamp(ceil(moment), UTC).isoformat(" ")
