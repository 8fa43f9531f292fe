"""Random tasks between random trees, on real servers, with workers that stop and files that change meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from broker.models.tasks import Item
from broker.tasks import worker_of
from tests.broker.random_trees import Case
from tests.broker.worlds import World, world_of
from tests.support.effort import effort

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
AT_ONCE = effort(8, 20)
CASES = effort(1, 3) * AT_ONCE
APART = 10_000
"""How far the seeds of two tests are apart."""


@pytest.fixture
async def world(database: str, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(database, tmp_path) as world:
        yield world


async def working(world: World, cases: list[Case], calm: bool) -> None:
    """Work until told to stop; else with a worker that is stopped, and one that goes on, while files change."""
    chance = cases[0].chance
    while True:
        running = asyncio.create_task(worker_of(world.factory).run())
        try:
            if calm:
                await running
            for case in cases:
                await asyncio.sleep(chance.uniform(0.0, 0.2))
                case.change()
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
        calm = True


@pytest.mark.long
@pytest.mark.parametrize("to", ["sink", "local"])
@pytest.mark.parametrize("calm", [True, False], ids=["calm", "troubled"])
async def test_a_task_does_what_it_was_told_and_nothing_else(world, to, calm):
    root = world.local if to == "local" else world.sink.root
    first = APART * (1 + 2 * (to == "local") + calm)
    for seed in range(first, first + CASES, AT_ONCE):
        cases = [Case(seed + i, world.source.root, root, follows=to == "sink") for i in range(AT_ONCE)]
        numbers = [await world.submit("TRANSFER", case.items, to, **case.options) for case in cases]
        work = asyncio.create_task(working(world, cases, calm))
        try:
            tasks = await asyncio.gather(*map(world.over, numbers))
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
        for case, task in zip(cases, tasks, strict=True):
            try:
                case.check(task.status, task.error, changed=not calm)
            except AssertionError as error:
                raise AssertionError(f"{case.name}, {case.options}: {task.status}, {task.error}") from error


@pytest.mark.parametrize("origin", ["sink", "local"])
async def test_only_what_is_named_is_deleted(world, origin):
    root = world.local if origin == "local" else world.sink.root
    cases = [Case(5 * APART + i, world.source.root, root, follows=False) for i in range(20)]
    chosen = {case: case.chance.choice(sorted(case.before[1].names)) for case in cases if case.before[1].names}
    numbers = [
        await world.submit("DELETE", [Item(source=f"{case.items[0].source}{path}")], None, origin, recursive=True)
        for case, path in chosen.items()
    ]
    work = asyncio.create_task(worker_of(world.factory).run())
    tasks = await asyncio.gather(*map(world.over, numbers))
    work.cancel()
    await asyncio.wait([work])
    for (case, path), task in zip(chosen.items(), tasks, strict=True):
        case.check_deleted(path, task.status, f"{case.name}, {path}: {task.error}")
