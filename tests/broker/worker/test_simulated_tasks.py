"""Random tasks between random trees, against a model: in simulation, so that there can be thousands.

Servers fail, hide and count wrongly, and workers die at any call.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import CoroutineType
from typing import NamedTuple

import pytest
import sqlalchemy as sa

from broker.storage import ended_tasks
from broker.worker import worker as working
from broker.worker.policy import faults
from broker.worker.worker import Worker
from tests.broker.random_trees import Case, ours
from tests.broker.worker.simulated_tasks import Trouble, simulated
from tests.broker.worlds import World, world_with
from tests.support.effort import effort
from tests.support.seeds import tries
from tests.support.waiting import until

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
AT_ONCE = effort(3, 20)
ROUNDS = effort(1, 3)
TROUBLES = ["calm", "failing", "dying", "changing"]
DEATHS = 6
"""Workers that die, at most, before one survives."""


class Folder(NamedTuple):
    """A directory in place of a server."""

    root: Path
    host: str
    port: int = 2811

    def url(self, path: str) -> str:
        return f"ftp://{self.host}:{self.port}{self.root}/{path}"


@pytest.fixture
async def world(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(faults, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(ended_tasks, "PAUSE", 0.5)
    monkeypatch.setattr(working, "BEAT", 0.2)
    monkeypatch.setattr(working, "LOOK", 0.5)
    ends = Folder(tmp_path / "from", "one.example"), Folder(tmp_path / "to", "other.example")
    async with world_with(database, tmp_path, *ends) as world:
        yield world


async def settled(world: World, cases: list[Case], ends: Trouble) -> bool:
    """Return whether the worker has died, or all tasks are over without partial files."""
    if ends.died.is_set():
        return True
    async with world.factory.database.read() as connection:
        active = (await connection.execute(sa.text("SELECT count(*) FROM tasks WHERE status = 'ACTIVE'"))).scalar_one()
    return not active and not any(ours(case.sink.parent) for case in cases if not case.rerouted)


async def stopped(running: asyncio.Task[None]) -> None:
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def killed(world: World, worker: Worker, others: set[asyncio.Task[object]]) -> None:
    """Kill a worker as SIGKILL does: it releases nothing, and records nothing more."""

    async def nothing(*_: object) -> None:
        pass

    worker._shut_down = worker._leases.settle = nothing
    left = asyncio.all_tasks() - others
    for task in left:
        if not isinstance(task.get_coro(), CoroutineType) or "sqlalchemy" not in task.get_coro().cr_code.co_filename:
            task.cancel()  # the others return connections of this process, which must not be lost
    await asyncio.gather(*left, return_exceptions=True)
    async with world.factory.database.write() as connection:
        await connection.execute(sa.text("UPDATE workers SET seen_at = 0"))


async def carried_out(world: World, cases: list[Case], trouble: str, counts: bool) -> None:
    """Run all submitted tasks by workers, one after the other until one survives."""
    chance, roots = cases[0].chance, {"source": world.source.root, "sink": world.sink.root}
    deaths = chance.randint(1, DEATHS) if trouble == "dying" else 0
    while True:
        others = asyncio.all_tasks()
        ends = Trouble(chance, 0.05 if trouble == "failing" else 0.0, chance.randint(1, 300) if deaths else None)
        worker = simulated(world, roots, ends, counts)
        running = asyncio.create_task(worker.run())
        if trouble == "changing":
            for case in cases:
                await asyncio.sleep(chance.uniform(0.0, 0.05))
                case.change()
        await until(partial(settled, world, cases, ends))
        if not ends.died.is_set():
            return await stopped(running)
        await killed(world, worker, others)
        deaths -= 1


@pytest.mark.sampled(4)
@pytest.mark.long
@pytest.mark.seeded
@pytest.mark.parametrize("counts", [True, False], ids=["counts", "silent"])
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_task_does_exactly_what_was_submitted(world, trouble, counts):
    roots = world.source.root, world.sink.root
    for attempt in tries(ROUNDS):
        with attempt as seed:
            cases = [Case(seed, i, *roots, follows=True, accents=True) for i in range(AT_ONCE)]
            tasks = [await world.submit("TRANSFER", case.items, "sink", **case.options) for case in cases]
            await carried_out(world, cases, trouble, counts)
            for case, number in zip(cases, tasks, strict=True):
                task, changed = await world.task(number), trouble == "changing"
                try:
                    case.check(task.status, task.error, calm=trouble == "calm", changed=changed, hides=not counts)
                except AssertionError as error:
                    raise AssertionError(f"{case.name}, {case.options}: {task.status}, {task.error}") from error
