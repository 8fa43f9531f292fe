"""A broker in a process of its own, two GridFTP servers, and a user of `coget submit`."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.support.broker import BrokerProcess, broker_in
from tests.support.coget import CONTENT, coget, coget_process
from tests.support.gridftp import GridFTPServer

SLOW = len(CONTENT) / 3
"""Rate of a slow collection, in bytes per second."""


class Lab(NamedTuple):
    """A broker, an admin's client, two servers, and Ann's home directory with her token."""

    broker: BrokerProcess
    admin: httpx.Client
    one: Path
    two: Path
    home: Path
    environment: dict[str, str]

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return coget(words, self.home, **self.environment)

    def start(self, *words: str) -> "subprocess.Popen[str]":
        return coget_process(words, self.home, **self.environment)

    def task(self, number: str) -> dict[str, Any]:
        return self.admin.get(f"/broker/v1/tasks/{number}").json()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    (tmp_path / "home").mkdir()
    with (
        GridFTPServer(tmp_path / "one") as one,
        GridFTPServer(tmp_path / "two", "127.0.0.2") as two,
        broker_in(tmp_path) as broker,
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
        token = admin.post("/broker/v1/tokens", json={"subject": "ann", "role": "transfer"}).json()["token"]
        environment = {"COGET_BROKER": broker.url, "COGET_BROKER_TOKEN": token}
        yield Lab(broker, admin, one.root, two.root, tmp_path / "home", environment)
