"""Timers: each run takes place once, with the rights that its owner has at that moment, whatever the clock does.

`step` moves all stored times of timers back, which is the same as a step of the clock forward.
"""

import asyncio
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid5

import httpx
import pytest
import sqlalchemy as sa

from broker.config.settings import Settings
from broker.errors import Unavailable
from broker.factory import Factory
from broker.handlers.globus.filters import moment
from broker.models.callers import NewToken
from broker.models.oauth import ALL, KNOWN, TIMER
from broker.storage.database import Database
from broker.storage.grants import GrantStore
from tests.broker.conftest import Broker
from tests.broker.oauth.conftest import Program
from tests.broker.services.conftest import World, grant, somebody
from tests.support.waiting import until
from tests.support.workers import way

HOUR, DAY = 3600, 86_400
TIMERS = KNOWN[TIMER]
MOMENTS = ("start", "until", "next_run", "last_ran_at", "limit_at", "submitted_at")
ON_POSTGRESQL = pytest.mark.parametrize("database", ["postgresql"], indirect=True)


class Timing(NamedTuple):
    """A broker with two collections, and Ann, who may read the first and write the second."""

    broker: Broker
    admin: httpx.AsyncClient
    ann: httpx.AsyncClient
    ends: dict[str, str]
    sink: Path

    def transfer(self, **more: Any) -> dict[str, Any]:
        item = {"source_path": "/x", "destination_path": "/y"}
        return {"DATA_TYPE": "transfer", **self.ends, "DATA": [item], **more}

    async def create(self, schedule: dict[str, Any], by: httpx.AsyncClient | None = None, status: int = 201) -> Any:
        """Create a timer; return its id, or the refusal."""
        timer = {"timer_type": "transfer", "name": "nightly", "schedule": schedule, "body": self.transfer()}
        answer = await (by or self.ann).post("/v2/timer", json={"timer": timer})
        assert answer.status_code == status, answer.text
        return answer.json()["timer"]["job_id"] if status == 201 else answer.json()

    async def job(self, number: str, by: httpx.AsyncClient | None = None) -> dict[str, Any]:
        return (await (by or self.ann).get(f"/jobs/{number}")).json()

    async def run(self) -> None:
        await self.broker.factory.timer_runs.run_due()

    async def step(self, seconds: float) -> None:
        await step(self.broker.factory.database, seconds)

    async def ran(self, number: str, runs: int) -> dict[str, Any]:
        """Return a timer after this many runs, whose tasks are over."""

        async def settled() -> bool:
            async with self.broker.factory.database.read() as connection:
                ran = await connection.execute(sa.text("SELECT runs FROM timers WHERE id = :id"), {"id": number})
                active = await connection.execute(sa.text("SELECT count(*) FROM tasks WHERE status = 'ACTIVE'"))
                return ran.scalar_one() >= runs and not active.scalar_one()

        await self.run()
        await until(settled)
        job = await self.job(number)
        assert job["n_runs"] == runs
        return job

    async def tasks(self, number: str) -> int:
        return await tasks_of(self.broker.factory.database, number)


async def tasks_of(database: Database, number: str) -> int:
    """The number of tasks of a timer, found by their submission ids."""
    mine = [str(uuid5(UUID(number), f"run {run}")) for run in range(1, 100)]
    async with database.read() as connection:
        rows = (await connection.execute(sa.text("SELECT submission_id FROM tasks"))).scalars()
        return sum(each in mine for each in rows)


async def step(database: Database, seconds: float) -> None:
    moved = ", ".join(f'"{name}" = "{name}" - :seconds' for name in MOMENTS)
    async with database.write() as connection:
        await connection.execute(sa.text(f"UPDATE timers SET {moved}"), {"seconds": seconds})


@pytest.fixture
async def timing(world: World) -> Timing:
    known = (await world.admin.get("/broker/v1/collections")).json()["collections"]
    numbers = {each["name"]: each["id"] for each in known}
    (world.source / "x").write_bytes(b"x" * 100)
    ends = {"source_endpoint": numbers["from here"], "destination_endpoint": numbers["to"]}
    return Timing(world.broker, world.admin, world.ann, ends, world.sink)


def hourly(**more: Any) -> dict[str, Any]:
    return {"type": "recurring", "interval_seconds": HOUR, **more}


async def test_a_timer_runs_once_and_is_kept_with_its_result(timing):
    number = await timing.create({"type": "once"})
    job = await timing.ran(number, 1)
    assert (timing.sink / "y").read_bytes() == b"x" * 100
    (result,) = job["results"]["data"]
    assert (job["status"], job["next_run"], job["n_errors"], job["activity"]) == ("ended", None, 0, None)
    assert (result["run_status"], result["errors"], result["status"]) == ("succeeded", None, 202)
    assert result["data"]["details"]["task_id"] == result["resource_id"]
    await timing.step(DAY)
    await timing.run()
    assert await timing.tasks(number) == 1
    assert (await timing.ann.post(f"/jobs/{number}/pause")).status_code == 409
    made, _ = await timing.broker.factory.clients.make("tests", "program", None)
    secret = (await timing.broker.factory.tokens.issue("tests", NewToken(subject="ann", role="transfer"))).token
    given = await Program(timing.broker, made.id, None).login(secret, scope=ALL)
    only = {"Authorization": f"Bearer {given['transfer.api.globus.org']['access_token']}"}
    await timing.create(hourly(), timing.broker.with_headers(only), 401)


async def test_wrong_timers_are_refused_and_those_of_others_are_hidden(timing):
    past = _text(time.time() - HOUR)
    wrong: list[dict[str, Any]] = [
        {"type": "weekly"},
        {"type": "recurring"},
        {"type": "recurring", "interval_seconds": 59},
        {"type": "once", "datetime": "soon"},
        {"type": "once", "datetime": _text(time.time() + 400 * DAY)},
        hourly(end={"condition": "time", "datetime": past}),
        hourly(end={"condition": "time"}),
        hourly(end={"condition": "iterations"}),
        hourly(end={"condition": "iterations", "count": 0}),
    ]
    for schedule in wrong:
        assert (await timing.create(schedule, status=400))["code"] == "ClientError.BadRequest"
    flow = {"timer": {"timer_type": "flow", "flow_id": str(uuid5(UUID(int=0), "x")), "schedule": {"type": "once"}}}
    job = {"callback_url": "http://127.0.0.1/", "callback_body": {}, "start": past, "interval": 60}
    for path, body in (("/v2/timer", flow), ("/jobs/", job)):
        answer = await timing.ann.post(path, json=body)
        assert answer.status_code == 400
        assert "not offered by this broker" in answer.json()["message"]
    timer = {"timer_type": "transfer", "schedule": {"type": "once"}, "body": timing.transfer(deadline=past)}
    assert "deadline" in (await timing.ann.post("/v2/timer", json={"timer": timer})).json()["message"]
    number = await timing.create(hourly())
    bob = await somebody(timing.broker, "bob")
    for other in (bob, timing.admin):
        assert (await other.get("/jobs/")).json() == {"jobs": []}
        requests = [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume")]
        for method, path in requests:
            body = json.dumps({"name": "mine"}) if method == "PATCH" else None
            json_type = {"Content-Type": "application/json"}
            answer = await other.request(method, f"/jobs/{number}{path}", content=body, headers=json_type)
            assert (answer.status_code, answer.json()["code"]) == (404, "TimerNotFound"), answer.text
    assert [each["name"] for each in (await timing.ann.get("/jobs/")).json()["jobs"]] == ["nightly"]
    await timing.create(hourly(), bob, 404)  # bob has no rights in these collections


async def test_a_timer_ends_after_its_number_of_runs_and_makes_up_for_missed_ones_by_one(timing):
    number = await timing.create(hourly(end={"condition": "iterations", "iterations": 2}))
    first = await timing.ran(number, 1)
    assert first["status"] == "loaded"
    assert first["schedule"]["end"] == {"condition": "iterations", "count": 2}
    await timing.run()
    assert await timing.tasks(number) == 1  # the second is not due yet
    await timing.step(HOUR)
    assert (await timing.ran(number, 2))["status"] == "ended"
    await timing.step(HOUR)
    await timing.run()
    assert await timing.tasks(number) == 2
    await timing.ann.delete(f"/jobs/{number}")
    number = await timing.create(hourly())
    await timing.ran(number, 1)
    await timing.step(10.5 * HOUR)
    job = await timing.ran(number, 2)
    gap = _seconds(job["next_run"]) - time.time()
    assert 0 < gap < HOUR / 2 + 60
    assert (_seconds(job["next_run"]) - _seconds(job["start"])) % HOUR == 0
    await timing.ann.delete(f"/jobs/{number}")
    number = await timing.create(hourly())
    await timing.ran(number, 1)
    assert (await timing.ann.post(f"/jobs/{number}/pause")).json()["message"] == f"Successfully paused job {number}."
    await timing.step(5 * HOUR)
    await timing.run()
    job = await timing.job(number)
    assert (job["status"], job["inactive_reason"]["cause"], job["n_runs"]) == ("inactive", "user", 1)
    assert (await timing.ann.patch(f"/jobs/{number}", json={"name": "weekly"})).json()["name"] == "weekly"
    await timing.ann.post(f"/jobs/{number}/resume")
    await timing.ran(number, 2)  # the missed run
    assert (await timing.ann.delete(f"/jobs/{number}")).json()["status"] == "deleted"
    await timing.step(HOUR)
    await timing.run()
    assert (await timing.tasks(number), (await timing.ann.get("/jobs/")).json()) == (2, {"jobs": []})


async def test_a_clock_that_is_set_back_repeats_no_run_and_stops_no_timer_for_long(timing):
    number = await timing.create(hourly())
    await timing.ran(number, 1)
    before = await timing.job(number)
    await timing.step(-5 * HOUR)
    await timing.run()
    assert await timing.tasks(number) == 1
    assert _seconds((await timing.job(number))["next_run"]) - _seconds(before["next_run"]) == pytest.approx(5 * HOUR, 2)
    await timing.step(-100 * DAY)  # the clock was far ahead, such as before it was first set
    await timing.run()
    assert await timing.tasks(number) == 1
    assert _seconds((await timing.job(number))["next_run"]) < time.time() + 101 * DAY
    await timing.step(105 * DAY)
    await timing.ran(number, 2)
    await timing.ann.delete(f"/jobs/{number}")
    number = await timing.create(hourly())
    await timing.step(1000 * DAY)
    await timing.ran(number, 1)
    async with timing.broker.factory.database.write() as connection:  # only the clock goes back, not the start
        await connection.execute(sa.text("UPDATE timers SET next_run = next_run + 86400e3, last_ran_at = 86400e5"))
    await timing.run()
    assert 0 < _seconds((await timing.job(number))["next_run"]) - time.time() <= HOUR
    await timing.step(HOUR)
    await timing.ran(number, 2)


async def test_a_grant_that_was_taken_back_fails_the_run_and_the_timer_says_so(timing):
    number = await timing.create(hourly())
    rules = (await timing.admin.get("/broker/v1/collections/to/rules")).json()["rules"]
    await timing.ran(number, 1)
    await timing.admin.delete(f"/broker/v1/collections/to/rules/{rules[0]['id']}")
    await timing.step(HOUR)
    job = await timing.ran(number, 2)
    assert (job["n_errors"], job["status"], await timing.tasks(number)) == (1, "loaded", 1)
    failed = job["results"]["data"][0]
    assert (failed["run_status"], failed["resource_id"], failed["status"]) == ("failed", None, 403)
    assert timing.ends["destination_endpoint"] in failed["errors"]["detail"]
    await grant(timing.admin, "to", "ann", "rw")
    await timing.step(HOUR)
    job = await timing.ran(number, 3)
    assert (job["n_errors"], job["results"]["data"][0]["run_status"]) == (1, "succeeded")
    await timing.ann.delete(f"/jobs/{number}")
    number = await timing.create(hourly())
    pause = {"message": "a moment", "endpoint_id": timing.ends["source_endpoint"]}
    rule = (await timing.admin.post("/v0.10/endpoint_manager/pause_rule", json=pause)).json()["id"]
    await timing.run()
    await timing.step(3 * HOUR)
    await timing.run()
    assert await timing.tasks(number) == 1
    assert (await timing.job(number))["activity"]["code"] == "run_in_progress"
    await timing.admin.delete(f"/v0.10/endpoint_manager/pause_rule/{rule}")
    await timing.ran(number, 2)


async def test_a_revoked_credential_stops_the_timer_until_its_owner_resumes_it(timing):
    made, _ = await timing.broker.factory.clients.make("tests", "program", None)
    issued = await timing.broker.factory.tokens.issue("tests", NewToken(subject="ann", role="transfer"))
    given = (await Program(timing.broker, made.id, None).login(issued.token, scope=TIMER))[TIMERS]["access_token"]
    number = await timing.create(hourly(), timing.broker.with_headers({"Authorization": f"Bearer {given}"}))
    await timing.ran(number, 1)
    assert (await timing.admin.delete(f"/broker/v1/tokens/{issued.id}")).status_code == 204
    await timing.step(HOUR)
    await timing.run()
    job = await timing.job(number)
    assert (job["status"], job["next_run"], await timing.tasks(number)) == ("inactive", None, 1)
    assert job["inactive_reason"]["cause"] == "globus_auth_requirements"
    assert "revoked" in job["inactive_reason"]["detail"]["authorization_parameters"]["session_message"]
    answer = await timing.ann.post(f"/jobs/{number}/resume", json={})
    assert answer.json() == {"message": f"Successfully resumed job {number}."}
    await timing.ran(number, 2)
    await timing.ann.delete(f"/jobs/{number}")
    number = await timing.create(hourly())
    async with timing.broker.factory.database.write() as connection:
        await connection.execute(sa.text("UPDATE timers SET limit_at = :at"), {"at": time.time() + 2 * HOUR})
    await timing.ran(number, 1)
    await timing.step(3 * HOUR)
    await timing.run()
    assert ((await timing.job(number))["status"], await timing.tasks(number)) == ("inactive", 1)
    await timing.ann.delete(f"/jobs/{number}")
    client, secret = await timing.broker.factory.clients.make("tests", "robot", "transfer")
    for name in ("from here", "to"):
        await grant(timing.admin, name, "robot", "rw")
    answer = await Program(timing.broker, client.id, secret).ask(grant_type="client_credentials", scope=TIMER)
    robot = timing.broker.with_headers({"Authorization": f"Bearer {answer.json()['access_token']}"})
    number = await timing.create({"type": "once", "datetime": _text(time.time() + HOUR)}, robot)
    await timing.broker.factory.clients.revoke("tests", client.id)
    async with timing.broker.factory.database.write() as connection:
        await GrantStore(connection).forget(time.time() + 400 * DAY)
    await timing.step(2 * HOUR)
    await timing.run()
    async with timing.broker.factory.database.read() as connection:
        stopped = (await connection.execute(sa.text("SELECT stopped FROM timers"))).scalar_one()
    assert (stopped, await timing.tasks(number)) == ("credentials", 0)


async def test_no_run_begins_long_after_the_end(timing):
    for late, runs in ((HOUR / 2, 2), (2 * HOUR, 1)):
        end = {"condition": "time", "datetime": _text(time.time() + 1.5 * HOUR)}
        number = await timing.create(hourly(end=end))
        await timing.ran(number, 1)
        await timing.step(1.5 * HOUR + late)
        assert (await timing.ran(number, runs))["status"] == "ended"


async def test_a_timer_ends_with_the_client_that_created_it(timing):
    made, _ = await timing.broker.factory.clients.make("tests", "program", None)
    issued = await timing.broker.factory.tokens.issue("tests", NewToken(subject="ann", role="transfer"))
    given = (await Program(timing.broker, made.id, None).login(issued.token, scope=TIMER))[TIMERS]["access_token"]
    number = await timing.create(hourly(), timing.broker.with_headers({"Authorization": f"Bearer {given}"}))
    other = await timing.create(hourly())
    await timing.ran(number, 1)
    await timing.broker.factory.clients.revoke("tests", made.id)
    await timing.step(HOUR)
    await timing.ran(other, 2)
    job = await timing.job(number)
    assert (job["status"], job["n_runs"]) == ("inactive", 1)
    assert job["inactive_reason"]["cause"] == "globus_auth_requirements"
    assert (await timing.ann.post(f"/jobs/{number}/resume", json={})).status_code == 200
    assert (await timing.ran(number, 2))["status"] == "loaded"


async def test_timers_that_ended_long_ago_are_deleted(timing):
    ended = await timing.create({"type": "once"})
    await timing.ran(ended, 1)
    future = await timing.create({"type": "once", "datetime": _text(time.time() + 100 * DAY)})
    paused = await timing.create(hourly())
    await timing.ann.post(f"/jobs/{paused}/pause")
    for days, status in ((29, 200), (2, 404)):
        await timing.step(days * DAY)
        await timing.ann.delete(f"/jobs/{await timing.create(hourly())}")
        assert (await timing.ann.get(f"/jobs/{ended}")).status_code == status
    assert {each["job_id"] for each in (await timing.ann.get("/jobs/")).json()["jobs"]} == {future, paused}


async def test_a_list_of_timers_has_the_newest_first_and_no_items(timing):
    for _ in range(2):
        ended = await timing.create({"type": "once"})
        await timing.ran(ended, 1)
    numbers = [await timing.create(hourly()) for _ in range(11)]
    jobs = (await timing.ann.get("/jobs/")).json()["jobs"]
    assert [each["job_id"] for each in jobs[:12]] == [*reversed(numbers), ended]
    assert (len(jobs), jobs[0]["body"]["DATA"], jobs[0]["body"]["source_endpoint"]) == (
        13,
        [],
        timing.ends["source_endpoint"],
    )
    assert len((await timing.job(numbers[0]))["body"]["DATA"]) == 1


async def test_a_timer_of_more_than_1_mb_is_refused(timing):
    items = [{"source_path": "/x", "destination_path": f"/{at}{'y' * 1000}"} for at in range(1100)]
    timer = {"timer_type": "transfer", "schedule": hourly(), "body": timing.transfer() | {"DATA": items}}
    assert (await timing.ann.post("/v2/timer", json={"timer": timer})).status_code == 413


async def test_several_processes_carry_out_each_run_once(timing, database):
    numbers = [await timing.create(hourly()) for _ in range(4)]
    factories = [Factory.of(Settings(database), compiled=False) for _ in range(4)]
    await asyncio.gather(*(each.timer_runs.run_due() for each in factories for _ in range(2)))
    await timing.run()
    assert [await timing.tasks(each) for each in numbers] == [1, 1, 1, 1]
    assert {(await timing.job(each))["n_runs"] for each in numbers} == {1}
    await asyncio.gather(*(each.database.close() for each in factories))


@ON_POSTGRESQL
async def test_a_process_that_dies_between_claim_and_answer_neither_loses_nor_doubles_a_run(timing, database, tmp_path):
    """Its connection ends after the task was inserted: before its COMMIT, or after it, but before the answer."""
    numbers = []
    for commits in (True, False):
        folder = tmp_path / str(commits)
        folder.mkdir()
        async with way(database, folder) as path:
            dying = Factory.of(Settings(path.database), compiled=False)
            path.lose(b"INSERT INTO timer_runs", commits=commits)
            while not path.lost.is_set():  # another process may be faster
                numbers.append(await _due(timing))
                with suppress(Unavailable):
                    await dying.timer_runs.run_due()
            await dying.database.close()
    for number in numbers:
        await timing.ran(number, 1)
        assert await timing.tasks(number) == 1


async def _due(timing: Timing) -> str:
    """Create a timer that is due."""
    number = await timing.create({"type": "once", "datetime": _text(time.time() + HOUR)})
    await timing.step(2 * HOUR)
    return str(number)


def _text(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(moment))


def _seconds(text: str) -> float:
    return moment(text)
