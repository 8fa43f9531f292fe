"""Durable tasks: fenced leases, work of dead workers passed on, and bad files that stop only themselves."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.factory import Announcements
from broker.handlers.globus import task_documents
from broker.models.callers import Caller
from broker.models.collections import NewCollection, PauseRule
from broker.models.lanes import LaneCandidate
from broker.models.standstills import standstill
from broker.models.subjects import Usernames
from broker.models.tasks import Details, Item, NewTask, Options, Work
from broker.models.work import PlannedWork, WorkResult
from broker.schema.tasks import workers
from broker.services.auth.identities import Identities
from broker.services.auth.quotas import Quotas
from broker.services.collections.pause_rules import PauseRules
from broker.services.forecasting.decisions import Decisions
from broker.services.forecasting.history import Transfers
from broker.services.network.places import Places
from broker.services.tasks.tasks import Tasks
from broker.storage.collections import CollectionStore
from broker.storage.database import Database, addressed
from broker.storage.lanes import LaneStore
from broker.storage.tasks import TaskFilter
from broker.storage.tasks import TaskStore as Stored
from broker.storage.work import WorkStore
from broker.storage.workers import WorkerStore
from broker.worker.leases import Leases
from broker.worker.recorder import Recorder
from broker.worker.worker import Worker
from tests.support.waiting import until

ANN = Caller(subject="ann", role="transfer")
ROOT = Caller(subject="root", role="admin")
SITE, SINK = uuid4(), uuid4()


class Ready:
    """An executor that does copies at once, except for special names."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.owners: list[str] = []
        self.begun = asyncio.Event()

    async def perform(self, task: LaneCandidate, batch: Sequence[Work], recorder: Recorder) -> None:
        self.begun.set()
        self.owners.append(task.owner)
        for work in batch:
            if "endless" in work.source:
                await asyncio.Event().wait()
            if "poison" in work.source:
                recorder.report(WorkResult(work, "failed", error_code="UNKNOWN", error="poison"))
                continue
            self.done.append(work.source)
            children = tuple(PlannedWork("copy", f"{work.source}/{i}", f"/to/{i}", 10) for i in range(3))
            recorder.report(WorkResult(work, "succeeded", children=children if work.source == "/folder" else ()))

    async def leave(self, task: LaneCandidate, batch: Sequence[Work]) -> None:
        pass

    async def close(self) -> None:
        pass


@pytest.fixture
async def opened(database: str) -> AsyncIterator[Database]:
    made = Database(addressed(database))
    yield made
    await made.close()


def task(*names: str, owner: str = "ann", submission: object = None, **options: object) -> NewTask:
    return NewTask(
        owner=owner,
        kind="TRANSFER",
        submission_id=submission or uuid4(),
        source=SITE,
        destination=SINK,
        deadline=time.time() + 3600,
        options=Options(**options),
        items=tuple(Item(source=name, destination=f"/to{name}") for name in names),
    )


async def silent(connection: AsyncConnection, worker: str, seconds: float = 100.0) -> None:
    """Record a last heartbeat of this long ago for a worker."""
    earlier = {"seen_at": workers.c.seen_at - seconds}
    await connection.execute(sa.update(workers).where(workers.c.id == worker).values(earlier))


@asynccontextmanager
async def working(database: Database, performer: Ready) -> AsyncIterator[Worker]:
    places = Places(database)
    history = Transfers(database, places, Quotas(10**6), Announcements())
    worker = Worker(database, history, Decisions(database, Places(database)), performer)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_a_task_is_done_with_all_that_is_found_on_the_way(opened):
    tasks, performer = Tasks(opened, Announcements()), Ready()
    number, new = await tasks.submit(task("/a", "/folder", "/b"))
    assert new
    async with working(opened, performer):
        await until(lambda: over(tasks, number))
    done = await tasks.one(ANN, number)
    assert (done.status, done.total, done.succeeded, done.files) == ("SUCCEEDED", 6, 6, 3)
    assert sorted(performer.done) == ["/a", "/b", "/folder", "/folder/0", "/folder/1", "/folder/2"]
    (newest, *_), _ = await tasks.events(ANN, number, None, 10, 0)
    assert newest.code == "SUCCEEDED"


async def over(tasks: Tasks, number: str) -> bool:
    return (await tasks.one(ANN, number)).status != "ACTIVE"


async def test_users_take_turns_at_a_single_lane(opened):
    """The deadline of one user's tasks does not take the turns of another."""
    async with opened.write() as connection:
        only = NewCollection(name="one lane", kind="catalogue", concurrency=1)
        await CollectionStore(connection).put(SITE, "root", only, time.time())
    tasks, performer = Tasks(opened, Announcements()), Ready()
    new = [task(f"/a{i}", owner="ann") for i in range(8)] + [task(f"/b{i}", owner="bob") for i in range(3)]
    new = [each.model_copy(update={"role": "admin"}) for each in new]
    urgent = [each.model_copy(update={"deadline": each.deadline - 60}) for each in new[:8]]
    numbers = [(await tasks.submit(each)).task for each in (*urgent, *new[8:])]
    async with working(opened, performer):
        await until(lambda: all_over(tasks, numbers))
    assert performer.owners == ["ann", "bob"] * 3 + ["ann"] * 5


async def all_over(tasks: Tasks, numbers: Sequence[str]) -> bool:
    known = [await tasks.one(ROOT, number) for number in numbers]
    return all(each.status != "ACTIVE" for each in known)


async def test_the_same_submission_is_one_task(opened):
    tasks, submission = Tasks(opened, Announcements()), uuid4()
    first, again, others = [
        await tasks.submit(task("/a", owner=owner, submission=submission)) for owner in ("ann", "ann", "bob")
    ]
    assert again == (first.task, False)
    assert others.new
    assert others.task != first.task


async def test_a_poisoned_file_stops_only_itself(opened):
    tasks, performer = Tasks(opened, Announcements()), Ready()
    number, _ = await tasks.submit(task("/a", "/poison", "/b"))
    async with working(opened, performer):
        await until(lambda: over(tasks, number))
    done = await tasks.one(ANN, number)
    assert (done.status, done.succeeded, done.failed, done.error) == ("FAILED", 2, 1, "poison")


async def test_late_results_of_a_dead_worker_do_not_count(opened):
    tasks = Tasks(opened, Announcements())
    number, _ = await tasks.submit(task("/a"))
    async with opened.write() as connection:
        works = WorkStore(connection)
        await WorkerStore(connection).enrol("slow", "", "here")
        await silent(connection, "slow")
        (first,) = await works.lease(number, "slow", ["look"], True, 10, 10, time.time())
        assert await WorkerStore(connection).dead(50.0) == ["slow"]
        await WorkerStore(connection).remove(["slow"], died=True)
        await WorkerStore(connection).enrol("quick", "", "here")
        (second,) = await works.lease(number, "quick", ["look"], True, 10, 10, time.time())
        assert (second.attempt, second.lost) == (2, 1)
        assert await works.complete("slow", [WorkResult(first, "succeeded")], time.time()) == set()
        assert await works.complete("quick", [WorkResult(second, "succeeded")], time.time()) == {second.lease}


async def test_work_lost_with_a_worker_is_done_alone(opened):
    tasks = Tasks(opened, Announcements())
    number, _ = await tasks.submit(task("/a", "/b", "/c"))
    async with opened.write() as connection:
        works, now = WorkStore(connection), time.time()
        await WorkerStore(connection).enrol("w", "", "here")
        assert len(await works.lease(number, "w", ["look"], True, 2, 10, now)) == 2
        await WorkerStore(connection).remove(["w"], died=True)
        await WorkerStore(connection).enrol("v", "", "here")
        alone = [await works.lease(number, "v", ["look"], True, 10, 10, now) for _ in range(3)]
        assert [len(batch) for batch in alone] == [1, 1, 1]


async def test_a_lease_that_others_have_by_now_is_not_given_back(opened):
    tasks = Tasks(opened, Announcements())
    number, _ = await tasks.submit(task("/a"))
    async with opened.write() as connection:
        works, now = WorkStore(connection), time.time()
        await WorkerStore(connection).enrol("w", "", "here")
        (first,) = await works.lease(number, "w", ["look"], True, 10, 10, now)
        await works.complete("w", [WorkResult(first, "pending", error_code="TIMEOUT")], now)
        (second,) = await works.lease(number, "w", ["look"], True, 10, 10, now)
        await works.release("w", [first.lease])
        assert not await works.lease(number, "w", ["look"], True, 10, 10, now)
        await works.release("w", [second.lease])
        (third,) = await works.lease(number, "w", ["look"], True, 10, 10, now)
        assert (third.attempt, third.leases) == (second.attempt, second.leases + 1)
        await works.release("w", [second.lease])
        assert await works.leased("w") == {third.lease}, "a stale release freed another lease"


async def test_two_results_for_one_lease_count_once(opened):
    tasks = Tasks(opened, Announcements())
    number, _ = await tasks.submit(task("/a", "/b"))
    async with opened.write() as connection:
        works, now = WorkStore(connection), time.time()
        await WorkerStore(connection).enrol("w", "", "here")
        first, _ = await works.lease(number, "w", ["look"], True, 10, 10, now)
        await works.complete("w", [WorkResult(first, "succeeded"), WorkResult(first, "failed")], now)
        assert not await Stored(connection).finish([number], now)
        known = await Stored(connection).one(number)
        assert (known.succeeded, known.failed) == (1, 0)


async def test_only_results_whose_leases_are_held_count(opened):
    tasks = Tasks(opened, Announcements())
    number, _ = await tasks.submit(task("/a", "/b", "/c"))
    async with opened.write() as connection:
        works, now = WorkStore(connection), time.time()
        await WorkerStore(connection).enrol("w", "", "here")
        lost, *kept = await works.lease(number, "w", ["look"], True, 10, 10, now)
        await works.release("w", [lost.lease])
        results = [WorkResult(each, "succeeded") for each in (lost, *kept)]
        assert await works.complete("w", results, now, {number: 7}) == {each.lease for each in kept}
        known = await Stored(connection).one(number)
        assert (known.succeeded, known.pending, known.bytes_transferred) == (2, 1, 7)
        (again,) = await works.lease(number, "w", ["look"], True, 10, 10, now)
        assert (again.source, again.lease) == (lost.source, (lost.id, lost.leases + 1))


async def test_a_task_shows_its_last_error_until_something_succeeds(opened):
    tasks = Tasks(opened, Announcements())
    number, _ = await tasks.submit(task("/a", "/b", "/c"))

    async def status_after(*results: WorkResult) -> tuple[object, ...]:
        async with opened.write() as connection:
            await WorkStore(connection).complete("w", results, time.time())
            await Stored(connection).finish([number], time.time())
        people = await Identities(opened, Usernames("", {})).people([ANN.subject])
        document = task_documents.task(await tasks.one(ANN, number), people, {}, time.time())
        ok, word, details = (document[name] for name in ("is_ok", "nice_status", "nice_status_details"))
        return ok, word, details and details.rpartition(": ")[2]

    async with opened.write() as connection:
        await WorkerStore(connection).enrol("w", "", "here")
        await Stored(connection).change(number, started_at=time.time())
        a, b, c = await WorkStore(connection).lease(number, "w", ["look"], True, 10, 10, time.time())
    assert await status_after() == (True, "OK", None)
    trouble = (False, "CONNECT_FAILED", "no answer")
    assert await status_after(WorkResult(a, "pending", error_code="CONNECT_FAILED", error="no answer")) == trouble
    assert await status_after(WorkResult(b, "succeeded")) == (True, "OK", None)
    assert await status_after(WorkResult(c, "pending", error_code="CONNECT_FAILED", error="no answer")) == trouble
    async with opened.write() as connection:
        a, c = await WorkStore(connection).lease(number, "w", ["look"], True, 10, 10, time.time())
    assert await status_after(
        WorkResult(a, "succeeded"), WorkResult(c, "pending", error_code="TIMEOUT", error="slow")
    ) == (
        False,
        "TIMEOUT",
        "slow",
    )
    async with opened.write() as connection:
        (c,) = await WorkStore(connection).lease(number, "w", ["look"], True, 10, 10, time.time())
    assert await status_after(WorkResult(c, "skipped", error_code="TIMEOUT", error="slow")) == (None, None, None)
    over = await tasks.one(ANN, number)
    assert (over.status, over.error_code, over.error) == ("SUCCEEDED", None, None)


async def test_no_lease_is_given_back_before_its_results_are_written(opened):
    tasks = Tasks(opened, Announcements())
    numbers = [(await tasks.submit(task(f"/{i}")))[0] for i in range(20)]
    places = Places(opened)
    history = Transfers(opened, places, Quotas(10**6), Announcements())
    recorder = Recorder(opened, history, Decisions(opened, Places(opened)), lambda *_: None)
    async with opened.write() as connection:
        await WorkerStore(connection).enrol("w", "", "here")
    leases = Leases(opened, recorder)
    leases.begin("w", time.monotonic())

    async def work(number: str) -> None:
        while batch := await leases.lease(number, [["look"]], True, 10):
            recorder.report(WorkResult(batch[0], "succeeded"))
            await leases.settle(batch)
            done.append(number)

    done = []
    await asyncio.gather(*(work(number) for number in numbers))
    assert sorted(done) == sorted(numbers), "work was done twice"


async def test_a_result_that_cannot_be_written_stops_only_itself(opened):
    class Strange(Ready):
        async def perform(self, task: LaneCandidate, batch: Sequence[Work], recorder: Recorder) -> None:
            for work in batch:
                size = 10**30 if "strange" in work.source else 1
                details = Details(modified=object()) if "strange" in work.source else Details()
                children = (
                    (PlannedWork("copy", f"{work.source}/x", "/x", size, details),) if work.kind == "look" else ()
                )
                recorder.report(WorkResult(work, "succeeded", children=children))

    tasks = Tasks(opened, Announcements())
    number, _ = await tasks.submit(task("/strange", "/b"))
    async with working(opened, Strange()):
        await until(lambda: over(tasks, number))
    done = await tasks.one(ANN, number)
    assert (done.status, done.failed, done.succeeded) == ("FAILED", 1, 2)
    assert "cannot record the result" in done.error


async def test_a_dead_workers_lease_passes_on(opened):
    tasks, performer = Tasks(opened, Announcements()), Ready()
    number, _ = await tasks.submit(task("/a", "/b"))
    async with opened.write() as connection:
        works = WorkStore(connection)
        await WorkerStore(connection).enrol("dead", "", "here")
        await silent(connection, "dead")
        assert len(await works.lease(number, "dead", ["look"], True, 10, 10, time.time())) == 2
    async with working(opened, performer):
        await until(lambda: over(tasks, number))
    assert sorted(performer.done) == ["/a", "/b"]


async def test_a_canceled_task_is_left_at_once(opened):
    tasks, performer = Tasks(opened, Announcements()), Ready()
    number, _ = await tasks.submit(task("/endless", "/a"))
    async with working(opened, performer):
        await performer.begun.wait()
        assert await tasks.cancel(ANN, number)
        assert not await tasks.cancel(ANN, number)
        await until(lambda: no_lanes(opened))
    done = await tasks.one(ANN, number)
    assert (done.status, done.error_code, done.canceled_work) == ("FAILED", "CANCELED", 2)


async def no_lanes(database: Database) -> bool:
    async with database.read() as connection:
        return not await LaneStore(connection).open()


async def test_a_paused_task_waits_and_goes_on(opened):
    tasks, performer = Tasks(opened, Announcements()), Ready()
    admin = Caller(subject="root", role="admin")
    number, _ = await tasks.submit(task("/a"))
    await tasks.pause(admin, number, "maintenance")
    other, _ = await tasks.submit(task("/b"))
    async with working(opened, performer) as worker:
        await until(lambda: over(tasks, other))
        assert performer.done == ["/b"]
        await tasks.pause(admin, number, None)
        worker.wake()
        await until(lambda: over(tasks, number))


async def test_a_task_that_a_pause_rule_holds_says_so_at_once_and_goes_on_when_it_is_lifted(opened):
    """Rules for other users, and for other operations, hold nothing."""
    await add_collections(opened)
    news, performer = Announcements[[str]](), Ready()
    tasks, rules = Tasks(opened, news), PauseRules(opened, news)
    kept = [
        await rules.put("root", pause_rule(SITE, "the robot is repaired", "task_transfer_read", "task_delete")),
        await rules.put("root", pause_rule(SINK, "only bob's", "task_transfer_write", subject="bob")),
    ]
    submitted = [task("/a"), task("/endless", owner="bob"), task("/free", owner="eve")]
    a, endless, free = [(await tasks.submit(each.model_copy(update={"role": "admin"}))).task for each in submitted]
    async with working(opened, performer) as worker:
        news.subscribe(lambda _: worker.wake())
        await until(lambda: has_worker(tasks, a))
        assert await state(tasks, a) == (True, "PAUSED", "PAUSED_BY_RULE", "tape is paused since 00:00 UTC")
        await rules.remove("root", kept[0].id)
        await until(lambda: all_over(tasks, [a, free]))
        held = await state(tasks, endless)
        assert (*held[:3], held[3].partition(" since")[0]) == (True, "PAUSED", "PAUSED_BY_RULE", "disk is paused")
        performer.begun.clear()
        await rules.remove("root", kept[1].id)
        await performer.begun.wait()
        assert (await state(tasks, endless))[:2] == (False, "OK")
        await rules.put("root", pause_rule(SITE, "again", "task_transfer_read"))
        assert (await state(tasks, endless))[:3] == (True, "PAUSED", "PAUSED_BY_RULE")  # before any worker heard of it
        await until(lambda: no_lanes(opened))


async def test_a_rule_for_all_operations_names_the_collection_that_it_holds(opened):
    await add_collections(opened)
    news = Announcements[[str]]()
    tasks, rules = Tasks(opened, news), PauseRules(opened, news)
    number, _ = await tasks.submit(task("/a"))
    await rules.put("root", pause_rule(SINK, "moved", "task_transfer_read", "task_transfer_write", "task_delete"))
    assert (await tasks.one(ROOT, number)).rule_collection == str(SINK)


async def add_collections(opened: Database) -> None:
    async with opened.write() as connection:
        for number, name in ((SITE, "tape"), (SINK, "disk")):
            place = NewCollection(name=name, kind="local", base=f"/{name}/")
            await CollectionStore(connection).put(number, "root", place, 0.0)


def pause_rule(collection: UUID, message: str, *operations: str, subject: str | None = None) -> PauseRule:
    fixed = {"id": uuid4(), "modified_by": "root", "created_at": 0.0, "modified_at": 0.0}
    return PauseRule(collection_id=collection, subject=subject, message=message, operations=operations, **fixed)


async def has_worker(tasks: Tasks, number: str) -> bool:
    return (await tasks.one(ROOT, number)).has_worker


async def state(tasks: Tasks, number: str) -> tuple[bool, str, str | None, str]:
    """Return what a task says: whether it is paused, its status, and the reason with the time."""
    known, ends = await tasks.one(ROOT, number), {str(SITE): "tape", str(SINK): "disk"}
    people = await Identities(tasks._database, Usernames("", {})).people([known.owner])
    document = task_documents.task(known, people, {}, 60.0)
    found = standstill(known, ends, 60.0)
    message = found.message.partition(": ")[0] if found else ""
    return document["is_paused"], document["nice_status"], found and found.code, message


async def test_a_task_without_a_worker_says_so(opened):
    tasks = Tasks(opened, Announcements())
    number, _ = await tasks.submit(task("/a").model_copy(update={"queue": "CERN"}))
    assert await state(tasks, number) == (False, "Queued", "NO_WORKER", "no worker is running for the site CERN")
    async with opened.write() as connection:
        await WorkerStore(connection).enrol("w", "CERN", "here")
    assert (await state(tasks, number))[2] == "TURN"
    async with opened.write() as connection:
        await silent(connection, "w")
    assert (await state(tasks, number))[2] == "NO_WORKER"


async def test_an_error_keeps_the_time_when_it_began(opened):
    tasks = Tasks(opened, Announcements())
    number, _ = await tasks.submit(task("/a", "/b"))

    async def after(now: float, work: Work, **how: object) -> tuple[str, float | None]:
        async with opened.write() as connection:
            await WorkStore(connection).complete("w", [WorkResult(work, **how)], now)
        known = await tasks.one(ANN, number)
        return known.error_side, known.error_since

    async with opened.write() as connection:
        await WorkerStore(connection).enrol("w", "", "here")
        a, b = await WorkStore(connection).lease(number, "w", ["look"], True, 10, 10, time.time())
    refused = {"state": "pending", "error_code": "AUTH", "error": "530 no", "side": "source"}
    assert await after(1000.0, a, **refused) == ("source", 1000.0)
    assert await after(1060.0, b, **refused) == ("source", 1000.0)
    found = standstill(await tasks.one(ANN, number), {str(SITE): "tape"}, 1100.0)
    assert (found.message, found.since) == ("tape refuses the login since 00:16 UTC", 1000.0)
    async with opened.write() as connection:
        a, b = await WorkStore(connection).lease(number, "w", ["look"], True, 10, 10, 2000.0)
    assert await after(2000.0, a, **refused | {"error_code": "NO_SPACE_LEFT", "side": "destination"}) == (
        "destination",
        2000.0,
    )
    assert await after(2001.0, b, state="succeeded") == ("", None)


async def test_a_task_ends_at_its_deadline(opened):
    tasks, performer = Tasks(opened, Announcements()), Ready()
    late = task("/endless").model_copy(update={"deadline": time.time() + 1})
    number, _ = await tasks.submit(late)
    async with working(opened, performer):
        await until(lambda: over(tasks, number))
    done = await tasks.one(ANN, number)
    assert (done.status, done.error_code, done.expired) == ("FAILED", "EXPIRED", 1)


async def test_later_phases_wait_for_earlier_ones(opened):
    tasks = Tasks(opened, Announcements())
    number, _ = await tasks.submit(task("/a"))
    async with opened.write() as connection:
        works, now = WorkStore(connection), time.time()
        await WorkerStore(connection).enrol("w", "", "here")
        await works.add(number, [PlannedWork("remove", "/x", phase=5), PlannedWork("remove", "/x/y", phase=4)])
        (look,) = await works.lease(number, "w", ["look", "remove"], True, 10, 10, now)
        assert look.kind == "look"
        assert not await works.lease(number, "w", ["remove"], True, 10, 10, now)
        await works.complete("w", [WorkResult(look, "succeeded")], now)
        (deep,) = await works.lease(number, "w", ["remove"], True, 10, 10, now)
        assert deep.source == "/x/y"
        assert not await Stored(connection).finish([number], now)


async def test_a_task_may_begin_a_phase_that_others_have_not_come_to(opened):
    tasks = Tasks(opened, Announcements())
    ahead, _ = await tasks.submit(task("/a"))
    await tasks.submit(task("/b", owner="bob"))
    async with opened.write() as connection:
        works, now = WorkStore(connection), time.time()
        await WorkerStore(connection).enrol("w", "", "here")
        await works.add(ahead, [PlannedWork("remove", "/x", phase=5)])
        (look,) = await works.lease(ahead, "w", ["look"], True, 10, 10, now)
        assert [each.owner for each in await LaneStore(connection).candidates({""}, now)] == ["bob"]
        await works.complete("w", [WorkResult(look, "succeeded")], now)
        assert {each.owner for each in await LaneStore(connection).candidates({""}, now)} == {"ann", "bob"}
        assert [each.kind for each in await works.lease(ahead, "w", ["remove"], True, 10, 10, now)] == ["remove"]


async def test_the_candidates_of_any_number_of_groups_are_found_by_few_statements(opened):
    """A user may submit tasks between thousands of pairs; all workers wait while one chooses."""
    tasks, rng, now = Tasks(opened, Announcements()), random.Random(7), time.time()
    ends = [SITE, *(uuid4() for _ in range(3))]
    await add_collections(opened)
    for number in range(30):
        pair = {"source": rng.choice(ends), "destination": rng.choice([*ends, None])}
        kind = "DELETE" if pair["destination"] is None else "TRANSFER"
        values = {"priority": rng.choice([0, 0, 5]), "deadline": now + 3600 + rng.randrange(5)}
        await tasks.submit(task("/a").model_copy(update={**pair, **values, "kind": kind, "owner": f"u{number % 3}"}))
    seen = []
    sa.event.listen(opened._engine.sync_engine, "before_cursor_execute", lambda *args: seen.append(args[2]))
    async with opened.write() as connection:
        every = await Stored(connection).page(TaskFilter(), [("request_time", False)], 100, 0)
        idle = {each.id for each in every.tasks[:5]}
        for rules in ([], [pause_rule(SITE, "stop", "task_transfer_read", "task_delete")]):
            for rule in rules:
                await CollectionStore(connection).put_pause(rule)
            seen.clear()
            found = await LaneStore(connection).candidates({""}, now, idle)
            assert len(seen) <= 2
            firsts = {}
            for each in sorted(every.tasks, key=lambda each: (-each.priority, each.deadline, each.requested_at)):
                if each.id not in idle and not (rules and each.source == str(SITE)):
                    firsts.setdefault((each.owner, each.kind, each.source, each.destination), each.id)
            assert sorted(each.task for each in found) == sorted(firsts.values())


async def test_work_that_is_found_twice_is_done_once(opened):
    tasks = Tasks(opened, Announcements())
    number, _ = await tasks.submit(task("/a"))
    async with opened.write() as connection:
        works = WorkStore(connection)
        planned = [PlannedWork("copy", f"/f{i}", f"/t{i}", i) for i in range(5)]
        assert [await works.add(number, planned), await works.add(number, planned)] == [5, 0]
        assert (await Stored(connection).one(number)).total == 6
        await WorkerStore(connection).enrol("w", "", "here")
        large = await works.lease(number, "w", ["copy"], True, 10, 7, time.time())
        assert [work.size for work in large] == [4, 3]
        small = await works.lease(number, "w", ["copy"], False, 10, 100, time.time())
        assert [work.size for work in small] == [0, 1, 2]


async def test_the_first_of_two_plans_for_the_same_work_counts(opened):
    number, _ = await Tasks(opened, Announcements()).submit(task("/a"))
    async with opened.write() as connection:
        assert (
            await WorkStore(connection).add(number, [PlannedWork("copy", "/x", "/to/x", size) for size in (10, 20)])
            == 1
        )
        assert (await Stored(connection).one(number)).bytes == 10
