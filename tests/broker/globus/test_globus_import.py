"""`coget history import --globus`, through the real SDK: tasks that a broker has run between real servers."""

import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from coalloc.history.formats import globus
from tests.support.broker import PROGRAM, BrokerProcess, broker_in
from tests.support.browser import Browser
from tests.support.coget import coget
from tests.support.effort import effort
from tests.support.globus import Globus
from tests.support.gridftp import GridFTPServer
from tests.support.programs import COGET, LATE, run, start
from tests.support.waiting import PATIENCE

SIZE, RATE = 24 << 20, 4 << 20
PAGE = effort(100, 1000)
MANY = PAGE * 11 // 10
SPOILED = {"faults": 9, "files_skipped": 2, "bytes_transferred": 4, "files_transferred": 1000}


class Place(NamedTuple):
    """A service with the SDK, the collections `one` and `two`, and the directory of `one`."""

    broker: BrokerProcess
    database: Path
    environment: dict[str, str]
    one: str
    two: str
    source: str

    def transfers(self) -> list[dict]:
        """Return the transfers that the broker has received, the oldest first."""
        found, before = [], None
        client = self.broker.client()
        while True:
            params = {"limit": 1000, **({"before": before} if before else {})}
            page = client.get("/broker/v1/transfers", params=params).json()
            found += [each for each in page["transfers"] if each["subject"] == "admin"]  # not those of robot's tasks
            before = page["next"]
            if before is None:
                return sorted(found, key=lambda each: each["started"])

    def imported(self, home: Path) -> dict:
        """Return the output of an import."""
        done = coget(["history", "import", "--globus", "--json"], home, **self.environment)
        assert done.returncode == 0, done.stderr
        (log,) = json.loads(done.stdout)["logs"]
        return log


class Service(NamedTuple):
    """A broker without tasks, its database, and the SDK settings of a service."""

    broker: BrokerProcess
    database: Path
    environment: dict[str, str]


def made(database: Path, *words: str) -> list[str]:
    """Register a client; return its id, and its secret if it has one."""
    command = [PROGRAM, "client", "create", *words, "--database", f"sqlite:///{database}"]
    return run(command, text=True, check=True).stdout.split()


@contextmanager
def serving(folder: Path) -> Iterator[Service]:
    """Run a broker with its database in a directory."""
    database = folder / "broker.sqlite"
    with broker_in(folder, database.name) as broker:
        number, secret = made(database, "robot", "--role", "admin")
        known = Globus(folder / "globus", broker.url).environment
        yield Service(
            broker,
            database,
            {name: known[name] for name in known if name.startswith("GLOBUS_SDK")}
            | {"GLOBUS_CLIENT_ID": number, "GLOBUS_CLIENT_SECRET": secret}
            | {"COGET_BROKER": broker.url, "COGET_BROKER_TOKEN": broker.token},
        )
        assert secret not in broker.log()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A broker for all tests that need no tasks."""
    with serving(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
def own_service(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path) as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, own_service: Service) -> Iterator[Place]:
    """Transfer a large file and a small one."""
    service = own_service
    client = service.broker.client()
    assert client.put("/broker/v1/sites/HERE", json={"name": "HERE"}).status_code == 200
    with GridFTPServer(tmp_path / "one") as one, GridFTPServer(tmp_path / "two") as two:
        numbers = []
        for server in (one, two):
            name = server.root.name
            where = {"site": "HERE", "scheme": "ftp", "host": "127.0.0.1", "port": server.port, "prefix": "/"}
            assert client.put(f"/broker/v1/endpoints/{name}", json={"name": name, **where}).status_code == 200
            collection = {"name": name, "endpoint": name, "base": str(server.root), "rate": RATE}
            numbers.append(client.put(f"/broker/v1/collections/{name}", json=collection).json()["id"])
        login = (service.environment["GLOBUS_CLIENT_ID"], service.environment["GLOBUS_CLIENT_SECRET"])
        globus = Globus(tmp_path / "globus", service.broker.url).as_client(*login)
        for name, size in (("large", SIZE), ("small", 5)):
            (one.root / name).write_bytes(bytes(size))
            task = globus.cli("transfer", f"{numbers[0]}:/{name}", f"{numbers[1]}:/{name}").stdout.split()[-1]
            globus.cli("task", "wait", task, "--timeout", str(int(PATIENCE)), "--polling-interval", "1")
        broker, database, environment = service
        yield Place(broker, database, environment, numbers[0], numbers[1], f"ftp://127.0.0.1:{one.port}")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def clones(database: Path, count: int) -> None:
    """Insert copies of the slow task, a minute apart, some of them corrupted, each in another way."""
    with closing(sqlite3.connect(database, timeout=PATIENCE)) as connection:
        connection.row_factory = sqlite3.Row
        (like,) = connection.execute("SELECT * FROM tasks WHERE bytes_transferred = ?", (SIZE,)).fetchall()
        now, names = time.time(), like.keys()
        insert = f"INSERT INTO tasks VALUES ({', '.join('?' * len(names))})"
        event = "INSERT INTO events (task_id, at, code, is_error, description, details) VALUES (?, ?, ?, 0, '', ?)"
        details = json.dumps({"concurrency": 2, "parallelism": 4})
        for i in range(count):
            ended, number = now - 60 * (i + 1), str(uuid4())
            values = {"id": number, "submission_id": str(uuid4()), "requested_at": ended - 50, "completed_at": ended}
            if i < len(SPOILED):
                name = list(SPOILED)[i]
                values[name] = SPOILED[name]
            connection.execute(insert, [values.get(name, like[name]) for name in names])
            if i == len(SPOILED):  # the service has deleted the events
                continue
            connection.execute(event, (number, ended - 12, "STARTED", details))
            if i == len(SPOILED) + 1:
                connection.execute(event, (number, ended - 6, "PAUSED", ""))
        connection.commit()


def test_a_users_own_tasks_are_remembered_and_reported(place, home):
    log = place.imported(home)
    assert (log["transfers"], log["usable"], log["new"], log["told"]) == (2, 1, 1, 1)
    (transfer,) = place.transfers()
    assert (transfer["source"], transfer["sink"], transfer["bytes"]) == (place.source, "HERE", SIZE)
    assert transfer["bytes"] / (transfer["ended"] - transfer["started"]) < RATE * 2
    (source,) = json.loads(coget(["history", "--json"], home).stdout)["sources"]
    assert (source["source"], source["bytes"]) == (f"globus://{place.one}", SIZE)
    again = place.imported(home)
    assert (again["usable"], again["new"], again["told"]) == (1, 0, 0)


@pytest.mark.long
def test_more_tasks_than_one_page_are_imported(place, home, tmp_path):
    """The short form makes the pages smaller than Globus does."""
    clones(place.database, MANY)
    code = f"{LATE}from coalloc.history import globus_client\nglobus_client.MOST = {PAGE}\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    place.environment["PYTHONPATH"] = str(tmp_path)
    log = place.imported(home)
    good = 1 + MANY - len(SPOILED) - 2
    assert (log["transfers"], log["usable"], log["new"], log["told"]) == (MANY + 2, good, good, good)
    transfers = place.transfers()
    assert len(transfers) == good
    assert {(each["source"], each["streams"]) for each in transfers[:-1]} == {(place.source, 8)}
    assert {round(each["ended"] - each["started"]) for each in transfers[:-1]} == {12}


def test_a_collection_that_a_broker_does_not_know_keeps_its_id(place, home):
    client = place.broker.client()
    assert client.delete("/broker/v1/collections/one").status_code == 204
    time.sleep(2.1)  # the broker may remember it for this long
    place.imported(home)
    (transfer,) = place.transfers()
    assert (transfer["source"], transfer["sink"]) == (f"globus://{place.one}", "HERE")


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"GLOBUS_CLIENT_ID": ""}, 2, "GLOBUS_CLIENT_ID is not set"),
        ({"GLOBUS_CLIENT_SECRET": "cogetb_wrong"}, 7, "Globus refuses the login"),
        ({"GLOBUS_CLIENT_SECRET_FILE": "file"}, 2, "GLOBUS_CLIENT_SECRET_FILE are both set"),
        ({"GLOBUS_SDK_SERVICE_URL_AUTH": ""}, 2, 'environment "broker"'),
        ({"GLOBUS_CLIENT_SECRET": ""}, 2, "Globus sent an unexpected answer"),  # a user, who is not there to log in
    ],
)
def test_a_missing_setting_is_named(service, home, change, status, message):
    done = coget(["history", "import", "--globus"], home, **{**service.environment, **change})
    assert (done.returncode, message in done.stderr) == (status, True), done.stderr


def test_people_log_in_once(service, home, tmp_path):
    (number,) = made(service.database, "notebook")
    person = {**service.environment, "GLOBUS_CLIENT_ID": number, "GLOBUS_CLIENT_SECRET": ""}
    words = [COGET, "history", "import", "--globus", "--json"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **person}
    with start(words, text=True, cwd=home, env=environment, **pipes) as process:
        link = next(line for line in process.stderr if line.startswith("http"))
        browser = Browser(tmp_path / "cookies.json")
        page = browser.send(browser.open(link.strip()), token=service.broker.token)
        browser.close()
        output, _ = process.communicate(page.words["code"] + "\n", timeout=PATIENCE)
    assert (process.returncode, json.loads(output)["logs"][0]["transfers"]) == (0, 0)
    assert coget(["history", "import", "--globus"], home, **person).returncode == 0


def test_a_log_or_globus_has_to_be_named(home):
    assert coget(["history", "import"], home).returncode == 2
    assert coget(["history", "import", "x.csv", "--broker", "http://localhost:1"], home).returncode == 2


TASK = {
    "task_id": "t",
    "history_deleted": False,
    "files_skipped": 0,
    "faults": 0,
    "bytes_transferred": 10**9,
    "files_transferred": 1,
    "request_time": "2026-01-01T00:00:00+00:00",
    "completion_time": "2026-01-01T01:00:00+00:00",
    "source_endpoint_id": "a",
    "destination_endpoint_id": "b",
}
STARTED = {"code": "STARTED", "time": "2026-01-01T00:50:00+00:00", "details": '{"parallelism": 2, "concurrency": 3}'}
LATER = {"code": "STARTED", "time": "2026-01-01T00:55:00+00:00", "details": ""}


def test_a_task_counts_from_when_it_first_began():
    (found,) = globus.read([TASK], lambda number: [LATER, STARTED]).values()
    assert (found.source, found.sink, found.end - found.start, found.streams) == ("globus://a", "b", 600, 6)


@pytest.mark.parametrize(
    "change",
    [
        {"history_deleted": True},
        {"completion_time": None},
        {"request_time": "yesterday"},
        {"bytes_transferred": "many"},
        {"completion_time": "2026-01-01T00:50:03+00:00"},
        {"faults": 4},
    ],
)
def test_tasks_without_a_usable_rate_are_left_out(change):
    assert globus.read([{**TASK, **change}], lambda number: [STARTED]) == {}
    assert globus.read([TASK, {}], lambda number: []) == {}
    assert globus.read([TASK], lambda number: [{"code": "STARTED"}]) == {}
