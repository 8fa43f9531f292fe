"""Endless trees: the task fails with an event that names the directory, and the database does not fill up."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.models.tasks import Item
from broker.worker.actions import discovery
from broker.worker.policy import faults, selection
from coalloc.engine.gridftp import machine_listing
from tests.broker.worlds import ANN, Servers, World, working, world_at, write

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


@pytest.fixture
async def world(servers: Servers, database: str, tmp_path: Path, monkeypatch) -> AsyncIterator[World]:
    monkeypatch.setattr(faults, "FIRST_PAUSE", 0.01)
    async with world_at(servers, database, tmp_path) as world, working(world):
        yield world


async def failing(world, kind, **options):
    """Run a task on the directory `/d/` that fails; return its events' messages."""
    item = Item(source="/d/", destination="/copy/") if kind == "TRANSFER" else Item(source="/d")
    origin, to = ("source", "sink") if kind == "TRANSFER" else ("source", None)
    task = await world.done(kind, [item], to, origin=origin, recursive=kind == "DELETE", **options)
    events, _ = await world.factory.tasks.events(ANN, task.id, True, 100, 0)
    assert task.status == "FAILED"
    return task, " ".join(event.details for event in events)


@pytest.mark.parametrize("kind", ["TRANSFER", "DELETE"])
async def test_entries_without_end(world, kind, monkeypatch):
    monkeypatch.setattr(selection, "MOST_WORK", 20)
    write(world.source.root, {f"d/{i}/{j}/x": 1 for i in range(5) for j in range(10)})
    task, message = await failing(world, kind)
    assert "more than 20 files and directories" in message
    assert "/d/" in message
    assert task.files + task.directories < 100


@pytest.mark.parametrize("kind", ["TRANSFER", "DELETE"])
async def test_folders_in_each_other_without_end(world, kind, monkeypatch):
    for module in (discovery, selection):
        monkeypatch.setattr(module, "DEEPEST", 3)
    (world.source.root / "d/x/x/x/x/x").mkdir(parents=True)
    _, message = await failing(world, kind)
    assert "/d/x/x/x/x" in message
    assert "deep" in message


async def test_a_listing_without_end_is_not_asked_for_until_the_deadline(world, monkeypatch):
    monkeypatch.setattr(machine_listing, "MOST_ENTRIES", 10)
    write(world.source.root, {f"d/{i}": 1 for i in range(11)})
    _, message = await failing(world, "TRANSFER")
    assert "/d/: its listing has more than 10 entries" in message
