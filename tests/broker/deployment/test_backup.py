"""Backup and restore with the commands of the how-to, while a broker receives reports."""

import os
import re
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx

from tests.support.broker import BrokerProcess, kept_by, reports
from tests.support.postgres import Postgres
from tests.support.waiting import PATIENCE

HOWTO = Path(__file__).parents[3] / "docs" / "howto" / "broker.md"
PART = 20
"""Transfers per report."""


def _steps(database: str) -> tuple[list[str], list[str]]:
    """The commands that back up, and those that restore, up to the one that serves."""
    section = re.search(rf"^### {database}$.*?coget-broker serve", HOWTO.read_text(), re.DOTALL | re.MULTILINE)
    assert section
    backup, *restore, _ = re.findall("^    (.*)$", section[0], re.MULTILINE)
    return [backup], restore


class Told:
    """A client that reports to a broker from several threads until the broker has ended."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.acknowledged: list[int] = []
        self._broker = broker
        self._lanes = [threading.Thread(target=self._report, args=(lane,)) for lane in range(3)]
        for lane in self._lanes:
            lane.start()

    def _report(self, lane: int) -> None:
        client = self._broker.client()
        with suppress(httpx.TransportError):
            for begin in range(1_000_000 * lane, 1_000_000 * (lane + 1), PART):
                client.post("/broker/v1/transfers", json=reports(begin, PART)).raise_for_status()
                self.acknowledged.extend(range(begin, begin + PART))

    def wait_for_more(self, count: int) -> None:
        until = len(self.acknowledged) + count
        while len(self.acknowledged) < until:
            assert self._broker.process.poll() is None
            time.sleep(0.01)

    def end(self) -> None:
        self._broker.process.kill()
        for lane in self._lanes:
            lane.join()


def _backed_up(database: str, kind: str, folder: Path, env: dict[str, str]) -> tuple[str, list[int], list[int]]:
    """Back up and restore a busy broker; return the token, the reports acknowledged before the backup, and all."""
    backup, restore = _steps(kind)
    assert (len(backup), len(restore)) == (1, 2)
    with BrokerProcess(database, folder) as broker:
        broker.client().put("/broker/v1/datasets/run1:x", json={"name": "run1:x", "size": 7}).raise_for_status()
        told = Told(broker)
        told.wait_for_more(1000)
        before = list(told.acknowledged)
        _run(backup, folder, env)
        told.wait_for_more(200)
        told.end()
    _run(restore, folder, env)
    return broker.token, before, told.acknowledged


def _run(commands: list[str], folder: Path, env: dict[str, str]) -> None:
    for command in commands:
        subprocess.run(["bash", "-c", command], cwd=folder, env={**os.environ, **env}, check=True, timeout=PATIENCE)


def _has_all(database: str, folder: Path, token: str, before: list[int], acknowledged: list[int]) -> None:
    with BrokerProcess(database, folder, token) as restored:
        client = restored.client()
        kept = kept_by(client)
        assert len(kept) == len(set(kept))
        assert set(before) <= set(kept)
        assert set(acknowledged) - set(kept)  # otherwise the copy contains later reports and proves nothing
        assert client.get("/broker/v1/datasets/run1:x").json()["size"] == 7
        again = [reports(number, 1)[0] for number in acknowledged]
        client.post("/broker/v1/transfers", json=again).raise_for_status()
        assert set(acknowledged) <= set(after := kept_by(client))
        assert len(after) == len(set(after))


def test_a_copy_of_sqlite_has_all_that_was_acknowledged_before(tmp_path):
    database = "sqlite:///coget-broker.sqlite"
    _has_all(database, tmp_path, *_backed_up(database, "SQLite", tmp_path, {}))


def test_a_dump_of_postgresql_has_all_that_was_acknowledged_before(server: Postgres, tmp_path):
    address = urlsplit(server.url("broker"))
    env = {"PGHOST": parse_qs(address.query)["host"][0], "PGUSER": address.netloc.partition("@")[0]}
    _run(["createdb broker"], tmp_path, env)
    told = _backed_up(server.url("broker"), "PostgreSQL", tmp_path, env)
    _has_all(server.url("restored"), tmp_path, *told)
