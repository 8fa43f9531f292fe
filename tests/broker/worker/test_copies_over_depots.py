"""Tasks whose data go over a real depot between the servers, and directly where that fails."""

import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker.cli import broker
from broker.models.depots import NewDepot
from broker.models.tasks import Item, Task
from broker.worker.policy import faults
from coalloc.depot.protocol.addresses import DestinationPattern
from coalloc.depot.tickets import Ticket, key_of, sign
from tests.broker.worlds import ANN, World, read, register, working, world_of, write
from tests.support.depot import LOOPBACK, RunningDepot, depots
from tests.support.waiting import until

SECRET = "0123456789abcdef"
HUGE = 1 << 30
FILES = [Item(source="/d/", destination="/e/")]


@pytest.fixture
async def world(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(faults, "FIRST_PAUSE", 0.05)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    async with world_of(database, tmp_path) as world:
        yield world


@pytest.fixture
def depot(tmp_path: Path) -> Iterator[RunningDepot]:
    """A depot that needs tickets."""
    (tmp_path / "secret").write_text(SECRET)
    with depots(tmp_path, ("--name", "depot-a", "--secret-file", str(tmp_path / "secret"), *LOOPBACK)) as (running,):
        yield running


async def known(world: World, depot: RunningDepot) -> None:
    """Register the depot at the broker."""
    place = {"host": depot.place.host, "port": depot.place.port}
    await world.factory.depots.put("root", NewDepot(name="depot-a", site="here", secret=SECRET, **place))


def over(world: World, *via: object) -> World:
    """Return the world with these routes for its worker."""
    settings = world.factory.settings._replace(via=tuple(map(str, via)))
    return world._replace(factory=world.factory._replace(settings=settings))


async def events(world: World, task: Task) -> list[tuple[str, str]]:
    """Return codes and details of the events about depots, the oldest first."""
    found, _ = await world.factory.tasks.events(ANN, task.id, None, 100, 0)
    of_depots = [event for event in found if event.code.startswith("DEPOT")]
    return [(event.code, event.details) for event in sorted(of_depots, key=lambda event: event.at)]


def carried(depot: RunningDepot) -> set[tuple[str, str]]:
    """Return the users and destinations' hosts of connections over ports."""
    return {(line["user"], line["destination"].split(":")[0]) for line in depot.lines if "up" in line}


@pytest.mark.parametrize("by", ["name", "address"])
async def test_a_task_takes_a_registered_depot_with_the_brokers_ticket(world, depot, tmp_path, by):
    await known(world, depot)
    save_ticket(tmp_path, depot)
    files = write(world.source.root / "d", {f"f{number}": number * 10_000 for number in range(50)})
    world = over(world, "depot-a" if by == "name" else depot.place)
    async with working(world):
        task = await world.done("TRANSFER", FILES)
    assert task.status == "SUCCEEDED", task.error
    assert read(world.sink.root / "e") == files
    assert await events(world, task) == [("DEPOT_USED", str(depot.place))]
    await until(lambda: carried(depot) == {("coget-broker", world.sink.host)})


async def test_a_depot_that_is_not_registered_takes_the_ticket_of_the_tokens_file(world, depot, tmp_path):
    save_ticket(tmp_path, depot)
    files = write(world.source.root / "d", {"f": 1_000_000})
    async with working(over(world, depot.place)):
        task = await world.done("TRANSFER", FILES)
    assert read(world.sink.root / "e") == files
    assert await events(world, task) == [("DEPOT_USED", str(depot.place))]
    await until(lambda: carried(depot) == {("ann", world.sink.host)})


def save_ticket(folder: Path, depot: RunningDepot, count: int = 10**12) -> None:
    """Write a ticket for this many bytes into tokens.toml."""
    destinations = (DestinationPattern.parse("127.0.0.0/8"),)
    text = sign(Ticket("id", "ann", "depot-a", destinations, int(time.time()) + 600, count, 99), SECRET.encode())
    tokens = folder / "config" / "coget" / "tokens.toml"
    tokens.parent.mkdir(parents=True)
    key = key_of(text, SECRET.encode()).hex()
    tokens.write_text(f'[depots."{depot.place}"]\nticket = "{text}"\nkey = "{key}"\n')
    tokens.chmod(0o600)


async def test_a_dead_depot_is_reported_once_and_the_task_continues_directly(world, depot):
    await known(world, depot)
    depot.process.kill()
    files = write(world.source.root / "d", {f"f{number}": 1000 for number in range(50)})
    async with working(over(world, "depot-a")):
        task = await world.done("TRANSFER", FILES)
    assert read(world.sink.root / "e") == files
    ((code, why),) = await events(world, task)
    assert code == "DEPOT_NOT_USED"
    assert str(depot.place) in why


async def test_a_depot_that_gives_no_access_is_not_used(world, depot):
    files = write(world.source.root / "d", {"f": 1000})
    async with working(over(world, depot.place)):
        task = await world.done("TRANSFER", FILES)
    assert read(world.sink.root / "e") == files
    ((code, why),) = await events(world, task)
    assert code == "DEPOT_NOT_USED"
    assert "needs a ticket" in why


@pytest.mark.parametrize("how", ["killed", "used up"])
async def test_a_depot_that_fails_in_the_middle_does_not_fail_the_task(world, depot, tmp_path, how):
    save_ticket(tmp_path, depot, count=10**12 if how == "killed" else 20_000_000)
    (world.source.root / "d").mkdir()
    with (world.source.root / "d" / "huge").open("wb") as file:
        file.write(os.urandom(1_000_000))
        file.truncate(HUGE if how == "killed" else 100_000_000)
    async with working(over(world, depot.place)):
        number = await world.submit("TRANSFER", FILES)
        if how == "killed":
            await until(lambda: [path for path in world.sink.root.rglob("*huge*") if path.stat().st_size])
            depot.process.kill()
        task = await world.over(number)
    assert task.status == "SUCCEEDED", task.error
    assert read(world.sink.root / "e") == read(world.source.root / "d")
    used, not_used = await events(world, task)
    assert used == ("DEPOT_USED", str(depot.place))
    assert not_used[0] == "DEPOT_NOT_USED"
    assert str(depot.place) in not_used[1]


async def test_without_a_route_no_event_is_recorded(world, depot):
    await known(world, depot)
    write(world.source.root / "d", {"f": 1000})
    async with working(over(world, "depot-a", f"{world.sink.host}=none")):
        task = await world.done("TRANSFER", FILES)
    assert await events(world, task) == []
    assert depot.lines == []


async def test_datasets_go_over_the_depot_too(world, depot):
    await known(world, depot)
    content = write(world.source.root, {"x": 3_000_000})["x"]
    await register(world, "run:x", content, world.source)
    async with working(over(world, "depot-a")):
        number = await world.submit("TRANSFER", [Item(source="/run/x", destination="/x")], origin="catalogue")
        task = await world.over(number)
        assert task.status == "SUCCEEDED", task.error
        assert (world.sink.root / "x").read_bytes() == content
        assert await events(world, task) == [("DEPOT_USED", str(depot.place))]
        depot.process.kill()
        number = await world.submit("TRANSFER", [Item(source="/run/x", destination="/y")], origin="catalogue")
        ((code, why),) = await events(world, await world.over(number))
    assert (world.sink.root / "y").read_bytes() == content
    assert code == "DEPOT_NOT_USED"
    assert str(depot.place) in why


@pytest.mark.parametrize("route", ["auto", "depot-a,depot-b", "depot-a,*", "a b"])
def test_other_routes_are_refused_with_the_remedy(route):
    done = CliRunner().invoke(broker, ["worker", "--database", "postgresql+psycopg://x/y", "--via", route])
    assert done.exit_code == 2
    assert "invalid route" in done.output
    assert "write --via DEPOT" in done.output
