"""A broker in a process of its own, two GridFTP servers, and a user of `coget submit`."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import pytest

from tests.support.broker import BrokerProcess, broker_in
from tests.support.coget import CONTENT, coget, coget_process
from tests.support.gridftp import GridFTPServer

SLOW = len(CONTENT) / 3
"""Rate of a slow collection, in bytes per second."""


class Lab(NamedTuple):
    """A broker, an admin's client, two servers, and a user's home directory and token."""

    broker: BrokerProcess
    admin: httpx.Client
    one: Path
    two: Path
    home: Path
    user: str
    environment: dict[str, str]

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return coget(words, self.home, **self.environment)

    def start(self, *words: str) -> "subprocess.Popen[str]":
        return coget_process(words, self.home, **self.environment)

    def task(self, number: str) -> dict[str, Any]:
        return self.admin.get(f"/broker/v1/tasks/{number}").json()

    def tasks(self) -> list[dict[str, Any]]:
        """Return the user's tasks."""
        return self.admin.get("/broker/v1/tasks", params={"owner": self.user}).json()["tasks"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One broker for all tests of a module, with two servers and their collections, and without users."""
    folder = tmp_path_factory.mktemp("lab")
    with lab_in(folder) as made:
        yield made


@pytest.fixture
def lab(running: Lab, tmp_path: Path) -> Iterator[Lab]:
    """The broker with empty servers, and with a new user; in the end, the user's tasks are canceled."""
    made = with_user(running, tmp_path)
    yield made
    for task in made.tasks():
        made.admin.post(f"/broker/v1/tasks/{task['id']}/cancel")
    for root in (made.one, made.two):
        shutil.rmtree(root)
        root.mkdir()


@contextmanager
def lab_in(folder: Path, *words: str) -> Iterator[Lab]:
    """Run a broker, with further arguments of its command, and two servers in a directory."""
    with (
        GridFTPServer(folder / "one") as one,
        GridFTPServer(folder / "two", "127.0.0.2") as two,
        broker_in(folder, words=words) as broker,
    ):
        admin = broker.client()
        admin.put("/broker/v1/sites/LAB", json={"name": "LAB"})
        for name, server in (("one", one), ("two", two)):
            where = {"scheme": "ftp", "host": server.host, "port": server.port, "prefix": f"{server.root}/"}
            endpoint = {"name": name, "site": "LAB", "write_priority": 1, **where}
            assert admin.put(f"/broker/v1/endpoints/{name}", json=endpoint).status_code == 200
        for name, more in (
            ("one", {"endpoint": "one"}),
            ("two", {"endpoint": "two"}),
            ("slow", {"endpoint": "two", "rate": SLOW}),
            ("all", {"kind": "catalogue"}),
            ("far", {"kind": "local", "base": "/nowhere/", "site": "ELSEWHERE"}),
        ):
            assert admin.put(f"/broker/v1/collections/{name}", json={"name": name, **more}).status_code == 200
            rule = {"principal_type": "role", "principal": "transfer", "permissions": "rw"}
            assert admin.post(f"/broker/v1/collections/{name}/rules", json=rule).status_code == 201
        yield Lab(broker, admin, one.root, two.root, folder, "", {})


def with_user(lab: Lab, home: Path) -> Lab:
    """Return the lab with a new user, who has this home directory."""
    user = f"ann-{uuid4()}"
    token = lab.admin.post("/broker/v1/tokens", json={"subject": user, "role": "transfer"}).json()["token"]
    environment = {"COGET_BROKER": lab.broker.url, "COGET_BROKER_TOKEN": token}
    return lab._replace(home=home, user=user, environment=environment)
