"""The opening of a worker's next lane: which task gets it, and whether the task's owner still has the rights."""

import json
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.lanes import CollectionPair, LaneCandidate
from broker.models.tasks import Event
from broker.storage.collections import CollectionStore
from broker.storage.database import Database
from broker.storage.dialects import read_clock
from broker.storage.lanes import LaneStore
from broker.storage.tasks import TaskStore
from broker.worker.actions.copying import AT_ONCE
from broker.worker.owner_rights import DENIED, OwnerRights
from broker.worker.policy.fairness import LaneChoice, choose
from broker.worker.tuner import Tuner

__all__ = ["LaneOpener", "OpenedLane"]


class OpenedLane(NamedTuple):
    """A lane of a task, which the database has under this number."""

    candidate: LaneCandidate
    number: int
    shared: object = None
    """The rights in guest collections with which it was opened (`OwnerRights.shared`)."""


class LaneOpener:
    """The opener of the lanes of one worker.

    :param queues: the sites whose tasks the worker does
    :param name: returns the worker's name in the database, which may change while a lane is opened
    :param wake: called when another task should be tried at once
    """

    def __init__(
        self,
        database: Database,
        tuner: Tuner,
        queues: Collection[str],
        name: Callable[[], str],
        wake: Callable[[], None],
    ) -> None:
        self._database = database
        self._tuner = tuner
        self._queues = queues
        self._name = name
        self._wake = wake

    async def open(self, idle: Collection[str]) -> OpenedLane | None:
        """Open a lane of the task whose turn it is; return None if no task may have one now.

        :param idle: tasks to leave out, as they have no work to lease
        """
        async with self._database.read() as connection:
            if not await LaneStore(connection).candidates(self._queues, await read_clock(connection), idle):
                return None
        async with self._database.write() as connection:
            lanes = LaneStore(connection)
            await lanes.alone()
            now = await read_clock(connection)
            choice, tuned = await self._choose(lanes, CollectionStore(connection), idle, now)
            await lanes.say(choice.waits)
            if choice.candidate is None:
                return None
            rights = await OwnerRights.of(connection, choice.candidate)
            if reason := rights.refusal():
                await _denied(connection, choice.candidate.task, reason, now)
                self._wake()
                return None
            number = await lanes.add(self._name(), choice.candidate, now)
            if not choice.candidate.started:
                await TaskStore(connection).note([(choice.candidate.task, _started(choice.candidate, tuned, now))])
        return OpenedLane(choice.candidate, number, rights.shared)

    async def _choose(
        self, lanes: LaneStore, stored: CollectionStore, idle: Collection[str], now: float
    ) -> tuple[LaneChoice, Mapping[CollectionPair, int]]:
        """Choose the next task; exclude tasks with all requested lanes, so that their owners' next tasks get a turn."""
        passed = set(idle)
        waits: dict[str, str] = {}
        while True:
            candidates = await lanes.candidates(self._queues, now, passed)
            ends = {end for each in candidates for end in each.pair if end}
            tuned = await self._tuner.limits(lanes, {each.pair for each in candidates})
            turns = await lanes.turns({each.owner for each in candidates})
            open_lanes = await lanes.open()
            pairs = [*(lane.pair for lane in open_lanes), *(turn.pair for turn in turns)]
            hosts = await stored.hosts(ends | {end for pair in pairs for end in pair if end})
            caps, names = await lanes.caps(ends), await stored.names(ends)
            choice = choose(candidates, open_lanes, caps, tuned, turns, hosts, names)
            waits.update(choice.waits)
            if choice.candidate or not choice.content:
                return choice._replace(waits=waits), tuned
            passed |= choice.content


async def _denied(connection: AsyncConnection, task: str, reason: str, now: float) -> None:
    """End a task whose owner no longer has the necessary rights."""
    tasks = TaskStore(connection)
    if await tasks.end(task, now, DENIED, reason, "failed"):
        await tasks.note([(task, Event(now, DENIED, True, "permission denied", reason))])


def _started(candidate: LaneCandidate, tuned: Mapping[CollectionPair, int], now: float) -> Event:
    """Return the start event of a task, with the details that Globus reports."""
    options = candidate.options
    details = {
        "type": "GridFTP Transfer",
        "concurrency": options.perf_cc or tuned[candidate.pair],
        "parallelism": options.perf_p or 1,
        "pipelining": options.perf_pp or AT_ONCE,
    }
    return Event(now, "STARTED", False, "started", json.dumps(details))
