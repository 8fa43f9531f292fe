"""Webhooks for finished tasks: a real HTTP server checks signatures like any receiver."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import httpx
import pytest
from standardwebhooks.webhooks import Webhook

from broker.background import worker_of
from broker.config.settings import Hook, Settings, configured
from broker.errors import Invalid
from broker.services.tasks import notices
from broker.storage.ended_tasks import NoticeStore
from coalloc.guarantees.finish_admission import FinishView
from tests.broker.conftest import Broker, running
from tests.support.gridftp import GridFTPServer
from tests.support.waiting import PATIENCE, until

TASKS = "/broker/v1/tasks"
KEY = bytes(range(32))
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"


class Receiver:
    """A server that refuses the first few requests, and stores the others."""

    def __init__(self) -> None:
        self.refuses = 0
        self.taken: list[dict[str, Any]] = []
        self.numbers: list[str] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.numbers.append(self.headers["webhook-id"])
                refuse = len(receiver.numbers) <= receiver.refuses
                if not refuse:
                    receiver.taken.append(Webhook(SECRET).verify(body, dict(self.headers)))
                self.send_response(500 if refuse else 204)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/tasks"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    started = Receiver()
    with started.server as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        yield started
        server.shutdown()
        serving.join()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "TICK", 0.05)
    monkeypatch.setattr(notices, "FIRST", 0.1)


@asynccontextmanager
async def at_work(settings: Settings) -> AsyncIterator[Broker]:
    """A broker with a worker, in this or another process."""
    async with running(settings) as broker:
        beside = [] if broker.factory.database.sqlite else [asyncio.create_task(worker_of(broker.factory).run())]
        yield broker
        for task in beside:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture
async def broker(database: str, receiver: Receiver) -> AsyncIterator[Broker]:
    async with at_work(Settings(database, hook=Hook(receiver.url, KEY))) as started:
        yield started


@pytest.fixture
def gridftp(tmp_path: Path) -> Iterator[GridFTPServer]:
    """A server with a file."""
    with GridFTPServer(tmp_path / "here") as started:
        (started.root / "a").write_bytes(b"hello")
        yield started


async def stocked(broker: Broker, gridftp: GridFTPServer) -> httpx.AsyncClient:
    """An admin of a broker with the server, a local directory, and a directory without workers."""
    admin = await broker.client("admin")
    assert (await admin.put("/broker/v1/sites/LAB", json={"name": "LAB"})).status_code == 200
    where = {"scheme": "ftp", "host": gridftp.host, "port": gridftp.port, "prefix": f"{gridftp.root}/"}
    endpoint = {"name": "dtn", "site": "LAB", **where}
    assert (await admin.put("/broker/v1/endpoints/dtn", json=endpoint)).status_code == 200
    folder = gridftp.root.parent / "there"
    folder.mkdir(exist_ok=True)
    local = {"kind": "local", "base": str(folder)}
    for name, more in (("here", {"endpoint": "dtn"}), ("there", local), ("far", {**local, "site": "ELSEWHERE"})):
        assert (await admin.put(f"/broker/v1/collections/{name}", json={"name": name, **more})).status_code == 200
    return admin


async def submit(admin: httpx.AsyncClient, source: str, path: str, **more: Any) -> str:
    """Submit a copy to `there`, or a deletion of `far`; return its id."""
    far = source == "far"
    kind = {"kind": "DELETE"} if far else {"kind": "TRANSFER", "destination": "there"}
    item = {"source": path} if far else {"source": path, "destination": path}
    document = {"submission_id": str(uuid4()), "source": source, "items": [item], **kind, **more}
    answer = await admin.post(TASKS, json=document)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


async def test_a_hook_hears_how_each_task_ended(broker, receiver, gridftp):
    admin = await stocked(broker, gridftp)
    good, bad, late, stopped = [
        await submit(admin, "here", "/a", label="the first"),
        await submit(admin, "here", "/none"),
        await submit(admin, "far", "/x"),
        await submit(admin, "far", "/y"),
    ]
    async with broker.factory.database.write() as connection:
        await connection.exec_driver_sql(f"UPDATE tasks SET deadline = {time.time()} WHERE id = '{late}'")
    assert (await admin.post(f"{TASKS}/{stopped}/cancel")).is_success
    await until(lambda: len(receiver.taken) == 4)
    notices = {each["data"]["id"]: each for each in receiver.taken}
    assert {number: each["type"] for number, each in notices.items()} == {
        good: "task.succeeded",
        bad: "task.failed",
        late: "task.expired",
        stopped: "task.canceled",
    }
    data = notices[good]["data"]
    assert (data["label"], data["owner"], data["status"]) == ("the first", "a-admin", "SUCCEEDED")
    assert (data["files_transferred"], data["bytes_transferred"], data["faults"]) == (1, 5, 0)
    assert (data["source"]["name"], data["destination"]["name"]) == ("here", "there")
    assert data["description"].startswith("the first succeeded (1 files, 5 bytes, in ")
    assert notices[bad]["data"]["error"]["code"] == "FILE_NOT_FOUND"
    assert f"{bad} failed: " in notices[bad]["data"]["description"]


async def test_a_hook_hears_that_a_deadline_may_not_be_kept(broker, receiver, gridftp):
    """Each change is one notice; the end of the task is another one, also if the hook refused the change before."""
    admin, deadline = await stocked(broker, gridftp), time.time() + 3600
    loud = await submit(admin, "far", "/x", label="the plan", deadline=deadline)
    quiet = await submit(admin, "far", "/y", deadline=deadline, options={"notify_on_failed": False})
    by = (await admin.get(f"{TASKS}/{loud}")).json()["deadline"]
    for count, chance in enumerate((0.6, 0.01, 0.99), 1):
        for number in (quiet, loud):
            await broker.factory.task_deadlines.tell(number, FinishView(chance, by + 600), by)
        await until(lambda count=count: len(receiver.taken) == count)
    assert [each["type"] for each in receiver.taken] == [
        "task.deadline_at_risk",
        "task.deadline_lost",
        "task.deadline_holds",
    ]
    assert receiver.taken[0]["data"]["id"] == loud
    assert receiver.taken[0]["data"]["description"].startswith("the plan: the deadline may not be kept (60 % by 20")
    assert len(set(receiver.numbers)) == 3
    receiver.refuses = len(receiver.numbers) + 1
    await broker.factory.task_deadlines.tell(loud, FinishView(0.01, by + 600), by)
    await until(lambda: len(receiver.numbers) == 4)
    assert (await admin.post(f"{TASKS}/{loud}/cancel")).is_success
    await until(lambda: len(receiver.taken) == 4)
    assert (receiver.taken[-1]["type"], receiver.numbers[-1]) == ("task.canceled", loud)


async def test_tasks_that_are_to_be_silent_are(broker, receiver, gridftp):
    admin = await stocked(broker, gridftp)
    quiet = [
        await submit(admin, "here", "/a", options={"notify_on_succeeded": False}),
        await submit(admin, "here", "/none", options={"notify_on_failed": False}),
    ]
    loud = await submit(admin, "here", "/none", options={"notify_on_succeeded": False})
    await until(lambda: receiver.taken)
    async with asyncio.timeout(PATIENCE):
        while await _untold(broker):  # noqa: ASYNC110 - a table changes
            await asyncio.sleep(0.02)
    assert loud in receiver.numbers
    assert not set(quiet) & set(receiver.numbers)


async def _untold(broker: Broker) -> list[str]:
    async with broker.factory.database.read() as connection:
        return await NoticeStore(connection).due(time.time() + 1e6, 100)


async def test_a_refused_notice_is_sent_again_under_the_same_id(broker, receiver, gridftp):
    receiver.refuses = 3
    number = await submit(await stocked(broker, gridftp), "here", "/a")
    await until(lambda: receiver.taken)
    assert receiver.numbers == [number] * 4
    async with asyncio.timeout(PATIENCE):
        while await _untold(broker):  # noqa: ASYNC110 - a table changes
            await asyncio.sleep(0.02)


async def test_tasks_that_ended_while_the_broker_was_down_are_announced_later(database, receiver, gridftp):
    async with at_work(Settings(database)) as broker:
        admin = await stocked(broker, gridftp)
        number = await submit(admin, "far", "/x")
        old = await submit(admin, "far", "/y")
        for each in (number, old):
            assert (await admin.post(f"{TASKS}/{each}/cancel")).is_success
        async with broker.factory.database.write() as connection:
            await connection.exec_driver_sql(f"UPDATE tasks SET completed_at = completed_at - 1e6 WHERE id = '{old}'")
    async with running(Settings(database, hook=Hook(receiver.url, KEY))) as broker:
        await until(lambda: receiver.taken)
        async with asyncio.timeout(PATIENCE):
            while await _untold(broker):  # noqa: ASYNC110 - a table changes
                await asyncio.sleep(0.02)
    assert receiver.numbers == [number]


async def test_one_of_several_processes_sends_a_notice(database, receiver, gridftp):
    settings = Settings(database, hook=Hook(receiver.url, KEY))
    async with running(settings) as one, running(settings):
        admin = await stocked(one, gridftp)
        for i in range(10):
            number = await submit(admin, "far", f"/{i}")
            assert (await admin.post(f"{TASKS}/{number}/cancel")).is_success
        await until(lambda: len(receiver.taken) >= 10)
    assert len(set(receiver.numbers)) == len(receiver.numbers) == 10


async def test_a_hook_that_is_away_holds_up_no_task(database, gridftp):
    async with at_work(Settings(database, hook=Hook("http://127.0.0.1:9/", KEY))) as broker:
        admin = await stocked(broker, gridftp)
        for _ in range(3):
            number = await submit(admin, "here", "/a")
            async with asyncio.timeout(PATIENCE):
                while (await admin.get(f"{TASKS}/{number}")).json()["status"] == "ACTIVE":  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        assert len(await _untold(broker)) == 3


GOOD = f'[notify]\nurl = "https://hook.example/x"\nsecret = "{SECRET}"\n'


def test_a_hook_is_read_from_a_file(tmp_path):
    path = tmp_path / "broker.toml"
    path.write_text(GOOD)
    path.chmod(0o600)
    assert configured(Settings(), path).hook == Hook("https://hook.example/x", KEY)


@pytest.mark.parametrize(
    "text",
    [
        "[notify]\n",
        GOOD + "surprise = 1\n",
        GOOD.replace("https://hook", "http://hook"),
        GOOD.replace(SECRET, "c2hvcnQ="),
        GOOD.replace(SECRET, "no base64!"),
        GOOD.replace(f'"{SECRET}"', "3"),
    ],
)
def test_an_invalid_file_is_refused_by_name(tmp_path, text):
    path = tmp_path / "broker.toml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(Invalid, match=r"broker\.toml.*\[notify\]") as refused:
        configured(Settings(), path)
    assert "no base64" not in str(refused.value)
