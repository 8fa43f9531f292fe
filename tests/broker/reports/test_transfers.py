"""Reports on tasks, transfers, regret and decisions: their readers and their content."""

import csv
import io
import math
import time
from uuid import UUID, uuid4

import httpx
import pytest

from broker.models.callers import Caller
from broker.models.lanes import CollectionPair, LaneTuning
from broker.models.tasks import Event, Item, NewTask, Options
from broker.storage.decisions import WEEK, DecisionFilter, DecisionStore
from broker.storage.lanes import LaneStore
from broker.storage.tasks import TaskStore
from tests.broker.services.forecasting.test_decisions import AT, MB, decided, part

HOSTILE = '<script>alert("x")</script>'


@pytest.fixture
async def ann(broker) -> httpx.AsyncClient:
    return await broker.client("transfer")


@pytest.fixture
async def other(broker) -> httpx.AsyncClient:
    return await broker.client("curator")


async def report(client: httpx.AsyncClient, name: str, **params: object) -> dict:
    answer = await client.get(f"/broker/v1/reports/{name}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def rows(client: httpx.AsyncClient, name: str, table: str, **params: object) -> list[dict[str, str]]:
    """Return a table of a report from its export."""
    answer = await client.get(f"/broker/v1/reports/{name}/{table}.csv", params=params)
    assert answer.status_code == 200, answer.text
    return list(csv.DictReader(io.StringIO(answer.text)))


def fact(document: dict, label: str) -> object:
    (found,) = [each["value"] for each in document["facts"] if each["label"] == label]
    return found


async def newest(broker) -> int:
    async with broker.factory.database.read() as connection:
        return (await DecisionStore(connection).page(DecisionFilter(), 1)).decisions[0].id


async def submitted(broker, owner: str) -> str:
    """A task of another user between deleted collections, with hostile names."""
    new = NewTask(
        owner=owner,
        kind="TRANSFER",
        submission_id=uuid4(),
        source=uuid4(),
        destination=uuid4(),
        label=HOSTILE,
        deadline=time.time() + 3600,
        queue="nowhere",
        options=Options(sync_level=3),
        items=(Item(source=f"/{HOSTILE}", destination="/to"),),
    )
    task = (await broker.factory.tasks.submit(new)).task
    events = [Event(AT + i, "PROGRESS", False, "progress", f'{{"bytes_transferred": {i * MB}}}') for i in range(3)]
    events.append(Event(AT + 9, "FILE_NOT_FOUND", True, "file not found", f"/{HOSTILE}: no such file"))
    async with broker.factory.database.write() as connection:
        await TaskStore(connection).note([(task, each) for each in events])
    return task


async def test_a_transfer_shows_its_ranges_candidates_and_losses(broker, ann):
    await ann.post("/broker/v1/decisions", json=decided())
    number = await newest(broker)
    document = await report(ann, "transfer", id=number)
    assert fact(document, "Lost by forecasts") == pytest.approx(2.5)
    assert fact(document, "Lost by the strategy") == pytest.approx(-2.0)
    assert fact(document, "Reason") == "adaptive: shares by set-up and rate"
    assert fact(document, "Ranges taken over by others") == 1
    ranges = await rows(ann, "transfer", "ranges", id=number)
    assert sum(int(each["bytes"]) for each in ranges) == 100 * MB
    candidates = await rows(ann, "transfer", "candidates", id=number)
    assert [float(each["p50"]) for each in candidates] == [5.0 * MB, 5.0 * MB]
    assert [float(each["rate"]) for each in candidates] == [6.0 * MB, 4.0 * MB]
    assert candidates[0]["pair"] == "pair?source=ftp%3A%2F%2Fa.example&sink=HERE&direction=read"
    over_time = await rows(ann, "transfer", "rates", id=number)
    assert {each["source"] for each in over_time} <= {"ftp://a.example", "ftp://b.example"}


async def test_regret_is_what_anybody_computes_from_the_exported_rows(broker, ann):
    """Regret follows from the candidates alone (rates, starts, planned shares); weeks and sources from transfers."""
    sent = [
        ([part("a", 60 * MB, 10.0, 50 * MB), part("b", 40 * MB, 10.0, 50 * MB)], 11.5),
        ([part("a", 90 * MB, 4.0, 20 * MB), part("b", 10 * MB, 3.0, 80 * MB, start_seconds=2.5)], 5.5),
        ([part("a", 50 * MB, 5.0, 50 * MB), part("c", 50 * MB, 5.0, 50 * MB, start_seconds=0.0)], 6.0),
    ]
    for i, (sources, fetch) in enumerate(sent):
        body = decided(f"d{i}", at=AT + i, sources=sources, fetch_seconds=fetch, seconds=fetch + 1)
        assert (await ann.post("/broker/v1/decisions", json=body)).json()["accepted"] == 1
    log = await rows(ann, "decisions", "decisions")
    best, planned, spent = 0.0, 0.0, 0.0
    for each in log:
        number = each["transfer"].partition("id=")[2]
        candidates = await rows(ann, "transfer", "candidates", id=number)
        own = _planned(candidates), _best(candidates, 100 * MB)
        document = await report(ann, "transfer", id=number)
        assert fact(document, "Best in hindsight") == pytest.approx(own[1], rel=1e-6)
        assert fact(document, "As planned") == pytest.approx(own[0], rel=1e-6)
        assert float(each["regret"]) == pytest.approx(fact(document, "Until the last byte") - own[1])
        planned, best, spent = planned + own[0], best + own[1], spent + fact(document, "Until the last byte")
    whole = await report(ann, "regret")
    assert fact(whole, "Time spent") == pytest.approx(spent) == pytest.approx(23.0)
    assert fact(whole, "Time lost") == pytest.approx(spent - best, rel=1e-6)
    assert fact(whole, "Lost by forecasts") == pytest.approx(planned - best, rel=1e-6)
    assert fact(whole, "Lost by the strategy") == pytest.approx(spent - planned, rel=1e-6)
    for name in ("weeks", "sinks", "strategies"):
        (only,) = await rows(ann, "regret", name)
        assert float(only["prediction_seconds"]) == pytest.approx(planned - best, rel=1e-6)
    by_source = {each["source"]: each for each in await rows(ann, "regret", "sources")}
    assert {name: int(each["bytes"]) for name, each in by_source.items()} == {
        "ftp://a.example": 200 * MB,
        "ftp://b.example": 50 * MB,
        "ftp://c.example": 50 * MB,
    }
    waited = sum(float(each["prediction_seconds"]) for each in by_source.values())
    assert waited == pytest.approx(planned - best, rel=1e-6)
    assert "too few" in whole["tables"][0]["note"]


def _planned(candidates: list[dict[str, str]]) -> float:
    return max(float(c["start_seconds"]) + float(c["planned_bytes"]) / float(c["rate"]) for c in candidates)


def _best(candidates: list[dict[str, str]], size: int) -> float:
    """Find by bisection the least time in which the candidates can deliver everything."""
    low, high = 0.0, 1e6
    while high - low > 1e-9 and not math.isclose(low, high, rel_tol=1e-12):
        middle = (low + high) / 2
        brought = sum(max(0.0, middle - float(c["start_seconds"])) * float(c["rate"]) for c in candidates)
        low, high = (low, middle) if brought >= size else (middle, high)
    return high


async def test_users_see_their_own_decisions_and_admins_all(broker, ann, other, admin):
    await ann.post("/broker/v1/decisions", json=decided("hers"))
    await other.post("/broker/v1/decisions", json=decided("theirs", thing="another"))
    seen = {
        client: sorted(each["subject"] for each in await rows(client, "decisions", "decisions"))
        for client in (ann, other, admin)
    }
    assert list(seen.values()) == [["a-transfer"], ["a-curator"], ["a-curator", "a-transfer"]]
    spied = await rows(ann, "decisions", "decisions", subject="a-curator")
    assert [each["subject"] for each in spied] == ["a-transfer"]
    assert [each["thing"] for each in await rows(admin, "decisions", "decisions", subject="a-curator")] == ["another"]
    decisions = {client: fact(await report(client, "regret"), "Decisions evaluated") for client in (ann, other, admin)}
    assert list(decisions.values()) == [1, 1, 2]


async def test_ids_of_another_user_are_answered_like_unknown_ids(broker, ann, other, admin):
    await ann.post("/broker/v1/decisions", json=decided())
    number, task = await newest(broker), await submitted(broker, "a-transfer")
    for name, real, unreal in (("transfer", number, number + 1), ("task", task, str(UUID(int=7)))):
        assert (await report(admin, name, id=real))["name"] == (await report(ann, name, id=real))["name"] == name
        answers = [await other.get(f"/broker/v1/reports/{name}", params={"id": each}) for each in (real, unreal)]
        assert [each.status_code for each in answers] == [404, 404]
        texts = [each.text.replace(str(number), "N") for each, number in zip(answers, (real, unreal), strict=True)]
        assert texts[0] == texts[1]
        exported = await other.get(f"/broker/v1/reports/{name}/ranges.csv", params={"id": real})
        assert exported.status_code == 404
    assert await rows(other, "tasks", "tasks") == []
    assert (await other.get("/broker/v1/reports/tasks", params={"before": task})).status_code == 404


async def test_a_task_shows_its_state_events_and_progress(broker, ann):
    task = await submitted(broker, "a-transfer")
    (listed,) = await rows(ann, "tasks", "tasks", status="ACTIVE")
    assert (listed["task"], listed["address"], listed["owner"]) == (HOSTILE, f"task?id={task}", "a-transfer")
    document = await report(ann, "task", id=task)
    assert fact(document, "State") == "ACTIVE"
    assert [each["code"] for each in await rows(ann, "task", "events", id=task)] == ["FILE_NOT_FOUND"] + [
        "PROGRESS"
    ] * 3
    assert [float(each["bytes"]) for each in await rows(ann, "task", "progress", id=task)] == [0, MB, 2 * MB]
    assert await rows(ann, "task", "options", id=task) == [{"option": "sync_level", "value": "3"}]
    await broker.factory.tasks.cancel(Caller(subject="a-transfer", role="transfer"), task)
    assert fact(await report(ann, "task", id=task), "State") == "FAILED"
    assert await rows(ann, "tasks", "tasks", status="ACTIVE") == []


async def test_the_log_can_be_searched_for_any_text(broker, ann):
    for i, why in enumerate((HOSTILE, "100%_sure", "100 x sure")):
        await ann.post("/broker/v1/decisions", json=decided(f"d{i}", at=AT + i, rationale=why))
    for text, found in ((HOSTILE.upper(), 1), ("100%_", 1), ("sure", 2), ("' OR 1=1--", 0), ("\\", 0)):
        assert len(await rows(ann, "decisions", "decisions", text=text)) == found
    assert len(await rows(ann, "decisions", "decisions", since=AT + 1, until=AT + 2)) == 1
    assert len(await rows(ann, "decisions", "decisions", outcome="failed")) == 0
    assert len(await rows(ann, "decisions", "decisions", strategy="adaptive")) == 3
    for wrong in (
        {"outcome": "x"},
        {"since": "x"},
        {"before": -1},
        {"text": "x" * 501},
        {"text": "a\0"},
        {"nonsense": 1},
    ):
        assert (await ann.get("/broker/v1/reports/decisions", params=wrong)).status_code == 422


async def test_the_log_goes_on_with_older_ones(broker, ann, monkeypatch):
    monkeypatch.setattr("broker.reports.decisions.PAGE", 2)
    for i in range(5):
        await ann.post("/broker/v1/decisions", json=decided(f"d{i}", at=AT + i))
    found, document = [], await report(ann, "decisions", text="shares")
    while True:
        found += [row[0] for row in document["tables"][0]["rows"]]
        if not document["links"]:
            break
        (link,) = document["links"]
        answer = await ann.get(f"/broker/v1/reports/{link['address']}")
        document = answer.json()
    assert found == sorted(found, reverse=True)
    assert len(found) == 5


async def test_how_many_lanes_pairs_have_is_a_decision_that_admins_see(broker, ann, admin):
    async with broker.factory.database.write() as connection:
        for i in range(3):
            await LaneStore(connection).tune(
                LaneTuning(CollectionPair("a", "b"), AT + i, 4 + i, 1, 1e6, 0.0, f"{HOSTILE} {i}")
            )
    found = await rows(admin, "decisions", "lanes", text="ALERT", since=AT + 1)
    assert [int(each["concurrency"]) for each in found] == [6, 5]
    assert [table["name"] for table in (await report(ann, "decisions"))["tables"]] == ["decisions"]


async def test_pages_show_names_as_text(broker, ann, sitting, root):
    hostile = decided(thing=HOSTILE, rationale=HOSTILE, outcome="failed", error=HOSTILE)
    hostile["sources"][0]["url"] = f"ftp://a.example/{HOSTILE}"
    await ann.post("/broker/v1/decisions", json=hostile)
    task = await submitted(broker, "a-transfer")
    number = await newest(broker)
    await sitting.login(root)
    for path in (f"transfer?id={number}", f"task?id={task}", "tasks", "decisions", "regret"):
        page = await sitting.open(f"/reports/{path}")
        assert page.status == 200, page.text
        assert HOSTILE not in page.text
        assert path == "regret" or "&lt;script&gt;" in page.text


async def test_empty_reports_have_notes(broker, ann, admin):
    for name in ("regret", "tasks", "decisions"):
        for client in (ann, admin):
            document = await report(client, name)
            assert all(table["rows"] == [] for table in document["tables"] if table["name"] != "lanes")
            assert any(table["note"] for table in document["tables"])
    assert (await ann.get("/broker/v1/reports/transfer", params={"id": 1})).status_code == 404


async def test_regret_is_reported_by_whole_weeks(broker, ann):
    """A decision in the first second of a Thursday, and one a second earlier, belong to different weeks."""
    begin = (AT // WEEK - 3) * WEEK
    for i, at in enumerate((begin - 1, begin)):
        await ann.post("/broker/v1/decisions", json=decided(f"d{i}", at=at))
    for params, weeks in (
        ({}, [begin - WEEK, begin]),
        ({"since": begin}, [begin]),
        ({"until": begin}, [begin - WEEK]),
        ({"since": begin - 1, "until": begin + 1}, [begin - WEEK, begin]),
        ({"weeks": 1}, []),
        ({"sink": "HERE"}, [begin - WEEK, begin]),
        ({"sink": "THERE"}, []),
        ({"strategy": "brute"}, []),
    ):
        assert [float(each["key"]) for each in await rows(ann, "regret", "weeks", **params)] == weeks, params


async def test_tasks_go_on_with_older_ones(broker, ann, monkeypatch):
    monkeypatch.setattr("broker.reports.tasks.PAGE", 2)
    numbers = [await submitted(broker, "a-transfer") for _ in range(3)]
    document = await report(ann, "tasks", status="ACTIVE")
    (link,) = document["links"]
    older = (await ann.get(f"/broker/v1/reports/{link['address']}")).json()
    found = [row[1] for each in (document, older) for row in each["tables"][0]["rows"]]
    assert found == [f"task?id={number}" for number in reversed(numbers)]


@pytest.mark.parametrize(("name", "field"), [("tasks", "owner"), ("tasks", "label"), ("regret", "strategy")])
async def test_text_that_no_database_stores_is_refused(ann, admin, name, field):
    for client in (ann, admin):
        assert (await client.get(f"/broker/v1/reports/{name}", params={field: "a\0b"})).status_code == 422
        assert (await client.get(f"/broker/v1/reports/{name}", params={field: "a%_'"})).status_code == 200
