"""Live tasks: server-sent events of a real broker, directly and through nginx."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import event

from broker.models.callers import Caller
from broker.services.tasks import watching
from tests.broker.services.conftest import TASKS, somebody
from tests.support.broker import BrokerProcess, broker_in
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE, until, wait_until

ADMIN = Caller(subject="a-admin", role="admin")
ANN = Caller(subject="ann", role="transfer")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker_in(tmp_path) as running:
        yield running


@pytest.fixture
def client(broker: BrokerProcess, tmp_path: Path) -> httpx.Client:
    """A client of a broker with a directory, and another one at a site without workers."""
    client = broker.client()
    for name, site in (("here", ""), ("far", "ELSEWHERE")):
        collection = {"name": name, "kind": "local", "base": str(tmp_path / name), "site": site}
        (tmp_path / name).mkdir()
        assert client.put(f"/broker/v1/collections/{name}", json=collection).status_code == 200
    return client


def delete(client: httpx.Client, where: str) -> str:
    """Submit a task that deletes a file: done at once here, never in the other directory."""
    items = [{"source": "/x"}]
    submission = {"submission_id": str(uuid4()), "kind": "DELETE", "source": where, "items": items}
    answer = client.post(TASKS, json={**submission, "options": {"ignore_missing": True}})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


class Stream:
    """A stream of events, read one by one."""

    def __init__(self, open_: ExitStack, client: httpx.Client, number: str, seen: str = "") -> None:
        headers = {"Last-Event-ID": seen} if seen else {}
        self.answer = open_.enter_context(client.stream("GET", f"{TASKS}/{number}/progress", headers=headers))
        self._lines = self.answer.iter_lines()

    def next(self) -> dict[str, Any] | None:
        """Return the next event; None at the end."""
        event: dict[str, Any] = {}
        for line in self._lines:
            if not line:
                return event
            name, _, value = line.partition(": ")
            event[name] = json.loads(value) if name == "data" else value
        return None


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_stream_begins_at_once_and_ends_with_the_task(client, opened):
    number = delete(client, "far")
    stream = Stream(opened, client, number)
    assert stream.answer.headers["content-type"].startswith("text/event-stream")
    first = stream.next()
    assert (first["event"], first["data"]["id"], first["data"]["status"]) == ("progress", number, "ACTIVE")
    client.post(f"{TASKS}/{number}/cancel")
    last = stream.next()
    assert (last["event"], last["data"]["status"], last["data"]["error"]["code"]) == ("end", "FAILED", "CANCELED")
    assert stream.next() is None
    assert last["data"] == client.get(f"{TASKS}/{number}").json()


def test_a_reconnected_watcher_gets_only_new_events(client, opened):
    number = delete(client, "far")
    seen = Stream(opened, client, number).next()["id"]
    again = Stream(opened, client, number, seen)
    client.post(f"{TASKS}/{number}/cancel")
    last = again.next()
    assert last["event"] == "end"
    assert Stream(opened, client, number, seen).next() == last
    over = client.get(f"{TASKS}/{number}/progress", headers={"Last-Event-ID": last["id"]})
    assert (over.status_code, over.content) == (204, b"")


def test_nginx_lets_events_through_as_they_come(broker, client, opened, tmp_path):
    """nginx keeps its default settings, with which it would buffer short answers, but for our header."""
    more = f"location / {{ proxy_pass {broker.url}; }}"
    nginx = opened.enter_context(Nginx(tmp_path / "root", tmp_path / "run", more=more))
    url = nginx.url("").rstrip("/")
    through = opened.enter_context(httpx.Client(base_url=url, headers=client.headers, timeout=PATIENCE))
    number = delete(client, "far")
    stream = Stream(opened, through, number)
    assert stream.next()["event"] == "progress"
    client.post(f"{TASKS}/{number}/cancel")
    assert stream.next()["event"] == "end"


def test_streams_do_not_hold_up_a_broker_that_is_to_end(broker, client, opened):
    streams = [Stream(opened, client, delete(client, "far")) for _ in range(3)]
    for stream in streams:
        assert stream.next()["event"] == "progress"
    broker.process.terminate()
    assert [stream.next() for stream in streams] == [None] * 3  # ended, not cut: that would raise
    broker.process.wait(PATIENCE)


def test_a_stream_ends_when_its_client_goes(client, opened):
    with ExitStack() as gone:
        assert Stream(gone, client, delete(client, "far")).next()["event"] == "progress"
    wait_until(lambda: "/progress" in client.get("/metrics").text)  # requests are counted when they end


async def test_silence_is_not_mistaken_for_an_end(world, monkeypatch):
    monkeypatch.setattr(watching, "HEARTBEAT", 0.01)
    await world.admin.put("/broker/v1/collections/far", json={"name": "far", "kind": "local", "site": "ELSEWHERE"})
    number = (await world.admin.post(TASKS, json={**world.submission("/a"), "destination": "far"})).json()["id"]
    task = await world.broker.factory.tasks.one(ADMIN, number)
    async with aclosing(world.broker.factory.watching.watch(ADMIN, task, {})) as stream:
        records = [await anext(stream) for _ in range(4)]
    assert [each and each.status for each in records][-3:] == [None] * 3


def test_an_unknown_task_is_refused_before_the_stream(client, opened):
    assert client.get(f"{TASKS}/{uuid4()}/progress").status_code == 404
    assert client.get(f"{TASKS}/x/progress").status_code == 422


async def test_one_query_serves_all_watchers(world):
    factory = world.broker.factory
    (world.source / "a").write_bytes(b"x" * 100)
    submission = world.submission("/a")
    await world.admin.put("/broker/v1/collections/far", json={"name": "far", "kind": "local", "site": "ELSEWHERE"})
    numbers = []
    for _ in range(3):
        sent = {**submission, "submission_id": str(uuid4()), "destination": "far"}
        numbers.append((await world.admin.post(TASKS, json=sent)).json()["id"])
    tasks = [await factory.tasks.one(ADMIN, number) for number in numbers for _ in range(20)]
    queries: list[asyncio.Task[Any] | None] = []

    async def watch(task: Any) -> list[str]:
        async with aclosing(factory.watching.watch(ADMIN, task, {})) as stream:
            return [record.status async for record in stream if record]

    def count(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if "bytes_transferred" in statement and statement.startswith("SELECT"):
            queries.append(asyncio.current_task())  # others ask as well: workers look for tasks

    look, asked = factory.watching._look, list[int]()

    async def counted() -> None:
        before = len(queries)
        await look()
        asked.append(queries[before:].count(asyncio.current_task()))

    watchers = [asyncio.create_task(watch(task)) for task in tasks]
    await until(lambda: sum(each.watchers for each in factory.watching._watched.values()) == len(watchers))
    engine = factory.database._engine.sync_engine
    event.listen(engine, "before_cursor_execute", count)
    factory.watching._look = counted
    await until(lambda: len(asked) == 4)
    event.remove(engine, "before_cursor_execute", count)
    assert set(asked) == {1}
    assert not set(queries) & set(watchers)
    for number in numbers:
        await factory.tasks.cancel(ADMIN, number)
    assert [await each for each in watchers] == [["ACTIVE", "FAILED"]] * 60
    assert not factory.watching._watched
    assert not factory.watching._callers


async def test_the_number_of_watchers_of_a_user_is_limited(world, monkeypatch):
    monkeypatch.setattr(watching, "MOST", 1)
    number = (await world.ann.post(TASKS, json=world.submission("/x"))).json()["id"]
    task = await world.broker.factory.tasks.one(ANN, number)
    async with aclosing(world.broker.factory.watching.watch(ANN, task, {})) as stream:
        await anext(stream)
        refused = await world.ann.get(f"{TASKS}/{number}/progress")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
        bob = await somebody(world.broker, "bob", "admin")
        assert (await bob.get(f"{TASKS}/{number}/progress")).status_code == 200
