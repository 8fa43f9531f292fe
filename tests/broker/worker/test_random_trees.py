"""Random tasks between random trees, on real servers: workers and servers die, and files change or vanish meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from broker.background import WakeUps, worker_of
from broker.models.tasks import Item, Task
from broker.storage.collections import CollectionStore
from coalloc.errors import SourceError
from tests.broker.random_trees import Case, Seen, ours, seen
from tests.broker.worlds import Servers, World, world_at
from tests.support.effort import effort
from tests.support.seeds import tries
from tests.support.waiting import until
from tests.support.workers import Workers

ON_SQLITE = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
ON_POSTGRESQL = pytest.mark.parametrize("database", ["postgresql"], indirect=True)
AT_ONCE = effort(3, 20)
DELETIONS = effort(7, 20)
RENAMES = effort(20, 60)
ROUNDS = effort(1, 3)
KILLS = effort(1, 4)
DEATHS = 0.1
"""Probability that a server's sessions die when a file changes."""


@pytest.fixture
async def world(servers: Servers, database: str, tmp_path: Path) -> AsyncIterator[World]:
    async with world_at(servers, database, tmp_path) as world:
        yield world


@pytest.fixture
def workers(database: str, tmp_path: Path) -> Iterator[Workers]:
    started = Workers(database, tmp_path)
    yield started
    started.close()


async def working(world: World, cases: list[Case], calm: bool) -> None:
    """Run workers until stopped; unless `calm`, change files while the first one runs, stop it, and start another."""
    chance = cases[0].chance
    while True:
        running = asyncio.create_task(worker_of(world.factory).run())
        try:
            if calm:
                await running
            for case in cases:
                await asyncio.sleep(chance.uniform(0.0, 0.2))
                case.change()
                if chance.random() < DEATHS:
                    chance.choice([world.source, world.sink]).end_sessions()
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
        calm = True


async def at_work(world: World, done: int) -> bool:
    """Return whether enough work has begun, or none is left."""
    async with world.factory.database.read() as connection:
        states = (await connection.execute(sa.text("SELECT state FROM work WHERE kind = 'copy'"))).scalars().all()
        active = (await connection.execute(sa.text("SELECT count(*) FROM tasks WHERE status = 'ACTIVE'"))).scalar_one()
    return not active or sum(state != "pending" for state in states) >= done


def nothing_of(cases: list[Case]) -> bool:
    return not any(ours(case.sink.parent) for case in cases if not case.rerouted)


def check(cases: list[Case], tasks: list[Task], **how: bool) -> None:
    for case, task in zip(cases, tasks, strict=True):
        try:
            case.check(task.status, task.error, **how)
        except AssertionError as error:
            raise AssertionError(f"{case.name}, {case.options}: {task.status}, {task.error}") from error


@pytest.mark.sampled(2)
@pytest.mark.long
@pytest.mark.seeded
@ON_SQLITE
@pytest.mark.parametrize("to", ["sink", "local"])
@pytest.mark.parametrize("calm", [True, False], ids=["calm", "troubled"])
async def test_a_task_does_exactly_what_was_submitted(world, to, calm):
    root = world.local if to == "local" else world.sink.root
    for attempt in tries(ROUNDS):
        with attempt as seed:
            cases = [Case(seed, i, world.source.root, root, follows=to == "sink") for i in range(AT_ONCE)]
            numbers = [await world.submit("TRANSFER", case.items, to, **case.options) for case in cases]
            work = asyncio.create_task(working(world, cases, calm))
            try:
                tasks = await asyncio.gather(*map(world.over, numbers))
            finally:
                work.cancel()
                with suppress(asyncio.CancelledError):
                    await work
            check(cases, tasks, calm=calm, changed=not calm)


@pytest.mark.sampled(2)
@pytest.mark.long
@pytest.mark.seeded
@ON_POSTGRESQL
@pytest.mark.parametrize("to", ["sink", "local"])
async def test_killed_workers_do_not_change_what_a_task_does(world, workers, to):
    root = world.local if to == "local" else world.sink.root
    async with WakeUps(world.factory.database.url) as wake_ups:
        world.factory.new_work.subscribe(wake_ups.ring)
        for attempt in tries(ROUNDS):
            with attempt as seed:
                cases = [Case(seed, i, world.source.root, root, follows=to == "sink") for i in range(AT_ONCE)]
                check(cases, await carried_out(world, workers, cases, to), calm=False)


async def carried_out(world: World, workers: Workers, cases: list[Case], to: str) -> list[Task]:
    """Run submitted tasks by workers that are each killed at some time, but for the last, which also sweeps."""
    chance = cases[0].chance
    numbers = [await world.submit("TRANSFER", case.items, to, **case.options) for case in cases]
    for _ in range(KILLS):
        worker = workers.start()
        await until(partial(at_work, world, chance.randint(1, 60)))
        if chance.random() < 0.5:
            chance.choice([world.source, world.sink]).end_sessions()
        worker.kill()
        worker.wait()
        async with world.factory.database.write() as connection:
            await connection.execute(sa.text("UPDATE workers SET seen_at = 0"))
    worker = workers.start()
    tasks = await asyncio.gather(*map(world.over, numbers))
    await until(partial(nothing_of, cases))
    worker.terminate()
    worker.wait()
    return tasks


@pytest.mark.long
@pytest.mark.seeded
@ON_SQLITE
@pytest.mark.parametrize("origin", ["sink", "local"])
async def test_only_what_is_named_is_deleted(world, origin):
    root = world.local if origin == "local" else world.sink.root
    for attempt in tries(ROUNDS):
        with attempt as seed:
            cases = [Case(seed, i, world.source.root, root, follows=False) for i in range(DELETIONS)]
            await delete_some(world, [case for case in cases if case.before[1].names], origin)


async def delete_some(world: World, cases: list[Case], origin: str) -> None:
    chosen = {case: case.chance.choice(sorted(case.before[1].names)) for case in cases}
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


@pytest.mark.long
@pytest.mark.seeded
@ON_SQLITE
@pytest.mark.parametrize("where", ["sink", "local"])
async def test_renames_move_what_is_named_and_replace_nothing(world, where):
    root = world.local if where == "local" else world.sink.root
    async with world.factory.database.read() as connection:
        (collection,) = await CollectionStore(connection).all({str(world.collections[where])})
    tree = await world.factory.trees.of(collection)
    for attempt in tries(ROUNDS):
        with attempt as seed:
            case, refused = Case(seed, 0, world.source.root, root, follows=False), 0
            for _ in range(RENAMES):
                before = seen(case.sink)
                old, new = case.two_paths(beyond=where == "local")  # servers follow links
                try:
                    await tree.rename(*(f"/{case.name}/tree/{path}" for path in (old, new)))
                except SourceError:
                    refused += 1
                    assert seen(case.sink) == before
                else:
                    assert seen(case.sink) == moved(before, old, new), (old, new)
            assert refused < RENAMES or not (case.before[1].files or case.before[1].folders)


def moved(tree: Seen, old: str, new: str) -> Seen:
    """Return the tree with an entry, and all below it, copied to a path that was empty."""
    assert old in tree.names
    assert new not in tree.names

    def at(path: str) -> str:
        return new + path.removeprefix(old) if path == old or path.startswith(f"{old}/") else path

    files, links = ({at(path): what for path, what in kind.items()} for kind in (tree.files, tree.links))
    return Seen(files, links, frozenset(map(at, tree.folders)))
