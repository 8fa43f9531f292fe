"""Deadlines of tasks: promised or told at the submission, renewed while the task runs, and told once per change."""

import time
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
import sqlalchemy as sa

from broker.background import deadline_looks_of
from broker.jobs import task_deadlines as jobs
from broker.models.callers import Caller
from broker.schema.tasks import tasks
from broker.storage.dialects import read_clock
from broker.storage.guarantees import GuaranteeStore
from tests.broker.services.conftest import World, somebody, world

__all__ = ["world"]

V = "/v0.10"
PROMISES = "/broker/v1/guarantees"
RATE = 10_000_000
LARGE = 1000 * RATE


class Clock(NamedTuple):
    """A clock that the test sets."""

    now: list[float]

    def monotonic(self) -> float:
        return self.now[0]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of looks, which take place only when a test calls for one."""
    monkeypatch.setattr(jobs, "LOOK", 1e6)
    set_by_test = Clock([1000.0])
    monkeypatch.setattr(jobs, "time", set_by_test)
    return set_by_test


@pytest.fixture
async def known(world: World) -> World:
    """The same world, with a link at 10 MB/s, a large file, and a source that no task may read now."""
    endpoint = (await world.admin.get("/broker/v1/endpoints/from")).json()
    source = f"ftp://{endpoint['host']}:{endpoint['port']}"
    now = time.time()
    same = {"source": source, "sink": "LAB", "bytes": 10 * RATE}
    times = [now - 1000 + 20 * i for i in range(30)]
    reports = [{**same, "id": f"r{at}", "started": at, "ended": at + 10} for at in times]
    assert (await world.admin.post("/broker/v1/transfers", json=reports)).status_code == 200
    await world.admin.get("/broker/v1/forecasts", params={"source": source, "sink": "LAB"})
    await world.broker.settled()
    with (world.source / "large").open("wb") as file:
        file.truncate(LARGE)
    (await world.admin.post(f"{V}/endpoint_manager/pause_rule", json=await _paused(world))).raise_for_status()
    return world


async def _ids(world: World) -> dict[str, str]:
    every = (await world.admin.get("/broker/v1/collections")).json()["collections"]
    return {each["name"]: each["id"] for each in every}


async def _paused(world: World) -> dict[str, Any]:
    number = (await _ids(world))["from here"]
    return {
        "DATA_TYPE": "pause_rule",
        "endpoint_id": number,
        "message": "later",
        "pause_task_transfer_read": True,
    }


async def transfer(world: World, seconds: float | None, path: str = "/large", client: Any = None) -> str:
    """Submit a transfer as Globus clients do; return its id."""
    ids, client = await _ids(world), client or world.ann
    item = {"DATA_TYPE": "transfer_item", "source_path": path, "destination_path": f"{path}-{uuid4()}"}
    ends = {"source_endpoint": ids["from here"], "destination_endpoint": ids["to"]}
    document = {"DATA_TYPE": "transfer", "submission_id": str(uuid4()), **ends, "DATA": [item]}
    if seconds is not None:
        document["deadline"] = datetime.fromtimestamp(time.time() + seconds, UTC).isoformat()
    answer = await client.post(f"{V}/transfer", json=document)
    assert answer.status_code == 202, answer.text
    return answer.json()["task_id"]


async def shown(world: World, number: str) -> dict[str, Any]:
    return (await world.ann.get(f"{V}/task/{number}")).json()


async def told(world: World, number: str) -> list[str]:
    """Return the codes of the events of a task's deadline, the first one first."""
    events = (await world.ann.get(f"{V}/task/{number}/event_list", params={"limit": 100})).json()["DATA"]
    return [each["code"] for each in reversed(events) if each["code"].startswith("DEADLINE")]


async def promises(world: World) -> list[dict[str, Any]]:
    return (await world.ann.get(PROMISES)).json()["guarantees"]


async def test_a_deadline_that_cannot_be_met_is_told_at_once(known):
    number = await transfer(known, 60)
    task = await shown(known, number)
    assert (task["status"], task["deadline_probability"] < 0.05) == ("ACTIVE", True)
    assert task["deadline_holds_at"] > task["deadline"]
    (event,) = (await known.ann.get(f"{V}/task/{number}/event_list")).json()["DATA"]
    assert (event["code"], event["is_error"]) == ("DEADLINE_LOST", False)
    assert event["details"].startswith("under 1 % by 20")
    assert "; 95 % by 20" in event["details"]
    own = (await known.ann.get(f"/broker/v1/tasks/{number}")).json()
    assert own["deadline_chance"] == task["deadline_probability"]
    assert [each["outcome"] for each in await promises(known)] == ["refused"]


async def test_a_deadline_that_can_be_met_has_a_share_until_the_task_ends(known):
    number = await transfer(known, 1500)
    assert (await shown(known, number))["deadline_probability"] >= 0.95
    assert await told(known, number) == []
    (made,) = await promises(known)
    assert (made["task"], made["outcome"], made["bytes"], made["expires_at"]) == (number, "open", LARGE, None)
    assert made["shares"][0]["rate"] == pytest.approx(LARGE / 1500, rel=0.02)
    second = await transfer(known, 1500)
    assert await told(known, second) == ["DEADLINE_LOST"]  # two tasks cannot both have what one needs
    await known.ann.post(f"{V}/task/{number}/cancel")
    async with known.broker.factory.database.read() as connection:  # before anything changes the ledger
        stored, now = GuaranteeStore(connection), await read_clock(connection)
        assert await stored.running(now) == []
        assert await stored.promised([each["source"] for each in made["shares"]], made["sink"], now) == []
    third = await transfer(known, 1500)
    assert await told(known, third) == []
    assert [each["outcome"] for each in await promises(known)] == ["open", "refused", "given up"]


async def test_a_task_has_one_promise_that_its_owner_cannot_report(known):
    number = await transfer(known, 1500)
    (made,) = await promises(known)
    ids, owner = await _ids(known), Caller(subject=made["owner"], role="transfer")
    again = (owner, number, (ids["from here"], ids["to"]), LARGE, 1)
    assert await known.broker.factory.task_deadlines.promise(*again, made["by"])
    assert not await known.broker.factory.task_deadlines.promise(*again, made["by"] + 60), "it has another deadline"
    assert await promises(known) == [made]
    for what, body in (("ended", None), ("progress", {"bytes_left": 1})):
        answer = await known.ann.post(f"{PROMISES}/{made['id']}/{what}", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")


async def test_deadlines_that_nobody_has_chosen_and_other_tasks_are_not_promised(known):
    number = await transfer(known, None)
    task = await shown(known, number)
    assert (task["deadline_probability"], task["deadline_holds_at"]) == (None, None)
    trial = known.submission("/large", deadline=time.time() + 60, options={"dry_run": True})
    assert (await known.ann.post("/broker/v1/tasks", json=trial)).status_code == 202
    removal = {"submission_id": str(uuid4()), "kind": "DELETE", "source": "to", "items": [{"source": "/nothing"}]}
    removal["deadline"] = time.time() + 60
    assert (await known.ann.post("/broker/v1/tasks", json=removal)).status_code == 202
    await deadline_looks_of(known.broker.factory).look()
    assert await promises(known) == []


async def test_the_task_of_another_user_shows_and_frees_nothing(known):
    number = await transfer(known, 1500)
    (made,) = await promises(known)
    bob = await somebody(known.broker, "bob", "curator")
    assert (await bob.get(f"{V}/task/{number}")).status_code == 404
    assert (await bob.delete(f"{PROMISES}/{made['id']}")).status_code == 404
    assert (await bob.get(PROMISES)).json()["guarantees"] == []


async def test_a_task_in_time_keeps_its_promise(known):
    (known.source / "small").write_bytes(b"x" * 1000)
    rules = (await known.admin.get(f"{V}/endpoint_manager/pause_rule_list")).json()["DATA"]
    await known.admin.delete(f"{V}/endpoint_manager/pause_rule/{rules[0]['id']}")
    number = await transfer(known, 3600, "/small")
    assert (await known.over(number))["status"] == "SUCCEEDED"
    (made,) = await promises(known)
    assert (made["outcome"], made["ended_at"] < made["by"]) == ("kept", True)
    await transfer(known, 3600, "/small")
    assert (await promises(known))[1] == made


async def test_a_change_of_the_probability_is_told_once(known, clock):
    number = await transfer(known, 1500)
    factory = known.broker.factory
    looks, others = deadline_looks_of(factory), deadline_looks_of(factory)

    async def look(moved: int, times: int) -> list[str]:
        for _ in range(times):
            clock.now[0] += 20
            async with factory.database.write() as connection:
                later = tasks.c.bytes_transferred + 20 * moved
                mine = sa.update(tasks).where(tasks.c.id == number)
                await connection.execute(mine.values(bytes=LARGE, bytes_transferred=later))
            await looks.look()
            await others.look()
        return await told(known, number)

    assert await look(RATE, 4) == []
    good = await shown(known, number)
    assert good["deadline_probability"] >= 0.95
    ((made,), share) = await promises(known), LARGE / 1500
    assert made["bytes_left"] == LARGE - 80 * RATE
    assert made["shares"][0]["rate"] < share * 0.99
    assert await look(0, 1) == []
    worse = await look(0, 8)
    assert worse[-1] == "DEADLINE_LOST"
    assert len(worse) == len(set(worse)) <= 2  # at risk on the way
    assert await look(0, 3) == worse
    assert (await shown(known, number))["deadline_probability"] < 0.05
    better = await look(10 * RATE, 4)
    assert better[-1] == "DEADLINE_HOLDS"
    assert better.count("DEADLINE_HOLDS") == better.count("DEADLINE_LOST") == 1


async def test_another_process_looks_when_the_first_one_is_gone(known, clock):
    number = await transfer(known, 1500)
    factory = known.broker.factory
    first, second = deadline_looks_of(factory), deadline_looks_of(factory)
    await first.look()
    await second.look()
    async with factory.database.write() as connection:
        watcher = (await connection.execute(sa.select(tasks.c.watcher).where(tasks.c.id == number))).scalar()
        await connection.execute(sa.update(tasks).values(watched_until=1.0))
    await second.look()
    async with factory.database.read() as connection:
        other = (await connection.execute(sa.select(tasks.c.watcher).where(tasks.c.id == number))).scalar()
    assert None not in (watcher, other)
    assert watcher != other


async def test_a_changed_deadline_is_promised_anew(known):
    number = await transfer(known, 60)
    later = datetime.fromtimestamp(time.time() + 1500, UTC).isoformat()
    document = {"DATA_TYPE": "task", "deadline": later}
    assert (await known.ann.put(f"{V}/task/{number}", json=document)).status_code == 200
    assert (await shown(known, number))["deadline_probability"] is None
    async with known.broker.factory.database.write() as connection:  # as if all its files were listed
        await connection.execute(sa.text("UPDATE work SET kind = 'copy'"))
        await connection.execute(sa.update(tasks).values(bytes=LARGE, files=1))
    await deadline_looks_of(known.broker.factory).look()
    assert (await shown(known, number))["deadline_probability"] >= 0.95
    assert [each["outcome"] for each in await promises(known)] == ["open", "refused"]
    sooner = datetime.fromtimestamp(time.time() + 90, UTC).isoformat()
    await known.ann.put(f"{V}/task/{number}", json={**document, "deadline": sooner})
    assert (await promises(known))[0]["outcome"] == "given up"
