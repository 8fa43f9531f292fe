"""Tasks beside promises to others on the same link: real servers, both kinds of destinations."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.models.callers import Caller
from broker.models.forecasts import ForecastRequest
from broker.models.guarantees import WantedGuarantee
from broker.models.history import Observed
from broker.models.lanes import CollectionPair, LaneCandidate
from broker.models.tasks import Item, Options
from broker.worker import rate_limits
from tests.broker.worker.test_rates import paced
from tests.broker.worlds import Servers, World, begun, read, working, world_at, write

BOB = Caller(subject="bob", role="transfer")
RATE = 400_000
"""Rate of the link's past, in bytes per second; the link itself is faster."""
PROMISED = RATE // 2
SIZE = 600_000


@pytest.fixture
async def world(servers: Servers, database: str, tmp_path: Path) -> AsyncIterator[World]:
    async with world_at(servers, database, tmp_path) as world, working(world):
        await known(world)
        yield world


def source(world: World) -> str:
    return f"ftp://{world.source.host}:{world.source.port}"


async def known(world: World) -> None:
    """Report past transfers over the link."""
    now, forecasting = time.time(), world.factory.forecasting
    times = [now - 1000 + 20 * i for i in range(30)]
    same = {"source": source(world), "sink": "here", "bytes": 10 * RATE}
    reports = [Observed(**same, id=f"r{at}", started=at, ended=at + 10) for at in times]
    await world.factory.transfers.take("root", reports, "admin")
    await forecasting.ask([ForecastRequest(source=source(world), sink="here")], BOB)
    await forecasting.look()
    await forecasting._links.all_made()


async def promised(world: World, seconds: float = 600.0) -> int:
    """Promise half of the link to bob for some time; return the promise's number."""
    wanted = WantedGuarantee(
        bytes=int(PROMISED * seconds), sources=(source(world),), sink="here", by=time.time() + seconds, sure=0.5
    )
    made = (await world.factory.guarantees.admit(BOB, wanted)).guarantee
    assert made.outcome == "open"
    return made.id


@pytest.mark.parametrize("to", ["sink", "local"])
async def test_a_task_leaves_the_rate_that_another_user_was_promised(world, to):
    files = write(world.source.root, {"a": SIZE})
    await promised(world)
    since = time.time()
    task = await world.submit("TRANSFER", [Item(source="/a", destination="/a")], to)
    await paced(world, task, since=since, rate=RATE - PROMISED)
    assert read(world.local if to == "local" else world.sink.root) == files


async def test_a_task_is_free_again_when_the_promise_is_over(world, monkeypatch):
    """Copy more than the promise leaves in the longest time that a test waits, and a file that begins afterwards."""
    monkeypatch.setattr(rate_limits, "LOOK", 0.1)
    files = write(world.source.root, {"a": 400_000, "b": 40_000_000, "c": 100})
    number = await promised(world)
    task = await world.submit("TRANSFER", [Item(source=f"/{name}", destination=f"/{name}") for name in files], "local")
    await begun(world, task, 1)
    await world.factory.guarantees.remove(BOB, number)
    assert (done := await world.over(task)).status == "SUCCEEDED"
    assert done.faults == 0
    assert read(world.local) == files


async def test_promises_over_other_links_limit_nothing(world):
    await promised(world)
    pair = CollectionPair(str(world.collections["source"]), str(world.collections["sink"]))
    candidate = LaneCandidate("1", "ann", pair, "TRANSFER", Options(), 0, 0.0, 0.0)
    assert list(await world.factory.unpromised.of(candidate, "here", BOB)) == [source(world)]
    assert await world.factory.unpromised.of(candidate, "elsewhere", BOB) == {}
