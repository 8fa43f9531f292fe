"""Users with grants to some directories of a collection reach nothing else in it, whatever links there are."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import httpx
import pytest

from broker.config.settings import Settings
from tests.broker.conftest import Broker, running
from tests.broker.linked_trees import LinkedTree
from tests.broker.services.conftest import somebody
from tests.support.effort import effort
from tests.support.gridftp import GridFTPServer
from tests.support.seeds import tries
from tests.support.waiting import until

pytestmark = [pytest.mark.parametrize("database", ["sqlite"], indirect=True), pytest.mark.long]
CASES = effort(1, 25)
CALLS, TASKS = 40, 8
MORE = 20
"""Further trees until each operation succeeded at least once, as what a tree grants is random."""


class World(NamedTuple):
    """A broker with a worker, a real server, and its users."""

    broker: Broker
    admin: httpx.AsyncClient
    server: GridFTPServer


@pytest.fixture
async def world(database: str, tmp_path: Path) -> AsyncIterator[World]:
    with GridFTPServer(tmp_path / "server") as server:
        async with running(Settings(database)) as broker:
            admin = await broker.client("admin")
            await admin.put("/broker/v1/sites/LAB", json={"name": "LAB"})
            yield World(broker, admin, server)


class Attack:
    """All attempts of one user in one tree."""

    def __init__(self, world: World, tree: LinkedTree, eve: httpx.AsyncClient, number: str) -> None:
        self._world = world
        self._tree = tree
        self._eve = eve
        self._number = number
        self._made = 0
        self.done: list[str] = []

    async def call(self) -> None:
        """Make one call, and compare it with the model."""
        calls = self._list, self._stat, self._make, self._rename
        await self._tree.chance.choices(calls, (4, 3, 2, 2))[0]()

    async def _list(self) -> None:
        path = self._tree.walk()
        answer = await self._get("ls", path)
        end = self._tree.real(path)
        granted = self._tree.may(path) and self._tree.reaches(end) and self._tree.is_folder(path)
        assert (answer.status_code == 200) == granted, (path, end, answer.text)
        if granted:
            self.done.append("ls")
            entries = answer.json()["DATA"]
            assert {each["name"] for each in entries} == self._tree.names(path), path
            for each in entries:
                self._check(f"{path.rstrip('/')}/{each['name']}", each)

    async def _stat(self) -> None:
        path = self._tree.walk()
        answer = await self._get("stat", path)
        entered = self._tree.entered(path) if path != "/" else "/"
        granted = self._tree.may(path) and self._tree.reaches(entered)
        there = granted and self._exists(path)
        assert (answer.status_code == 200) == there, (path, entered, answer.text)
        if there:
            self.done.append("stat")
            self._check(path, answer.json())

    def _exists(self, path: str) -> bool:
        return (self._tree.root / path.strip("/")).exists()

    def _check(self, path: str, entry: dict[str, Any]) -> None:
        """Check that nothing is shown of a link whose target may not be read."""
        end = self._tree.real(path)
        if not self._tree.reaches(end):
            facts = {
                name: entry[name] for name in ("type", "size", "link_target", "last_modified", "user", "permissions")
            }
            assert facts == {
                "type": "invalid_symlink", "size": 0, "link_target": None, "last_modified": None, "user": None,
                "permissions": None,
            }, (path, end)  # fmt: skip
        elif self._tree.is_link(path):
            assert entry["type"] == ("dir" if self._tree.is_folder(path) else "file"), (path, end)

    async def _make(self) -> None:
        path = self._new()
        answer = await self._eve.post(self._url("mkdir"), json={"DATA_TYPE": "mkdir", "path": path})
        entered = self._tree.entered(path)
        above = path.rpartition("/")[0]
        granted = self._tree.may(path, True) and self._tree.reaches(entered, True)
        assert (answer.status_code == 202) == (granted and self._tree.is_folder(above or "/")), (path, answer.text)
        if granted:
            self.done.append("mkdir")

    async def _rename(self) -> None:
        old, new = self._tree.walk(), self._new()
        ends = [self._tree.entered(path) for path in (old, new)]
        granted = all(self._tree.may(path, True) for path in (old, new))
        granted = granted and all(self._tree.reaches(end, True) for end in ends)
        body = {"DATA_TYPE": "rename", "old_path": old, "new_path": new}
        answer = await self._eve.post(self._url("rename"), json=body)
        assert granted or answer.status_code != 200, (old, new, ends, answer.text)
        if answer.status_code == 200:
            self.done.append("rename")

    def _new(self) -> str:
        self._made += 1
        return f"{self._tree.walk().rstrip('/')}/n{self._made}"

    async def submit(self) -> str | None:
        """Submit a random task; return None if it is refused."""
        chance = self._tree.chance
        kind = chance.choices(("TRANSFER", "DELETE"), (5, 1))[0]
        item: dict[str, Any] = {"source": self._tree.walk() + chance.choice(["", "/"])}
        options: dict[str, Any] = {"recursive": True, "interpret_globs": chance.random() < 0.3}
        if kind == "TRANSFER":
            item["destination"] = self._new() if chance.random() < 0.5 else self._tree.walk() + chance.choice(["", "/"])
            options = {
                "recursive_symlinks": chance.choice(["keep", "copy", "copy", "ignore"]),
                "sync_level": chance.choice([None, None, 1, 3]),
                "skip_source_errors": chance.random() < 0.8,
                "delete_destination_extra": chance.random() < 0.3,
            }
        elif chance.random() < 0.3:
            item["source"] = f"{item['source'].rstrip('/')}/*"
        body = {
            "submission_id": (await self._eve.get("/v0.10/submission_id")).json()["value"],
            "kind": kind,
            "source": self._number,
            "items": [item],
            "options": options,
            **({"destination": self._number} if kind == "TRANSFER" else {}),
        }
        answer = await self._eve.post("/broker/v1/tasks", json=body)
        assert answer.status_code in (202, 403, 422), answer.text
        return str(answer.json()["id"]) if answer.status_code == 202 else None

    async def over(self, task: str) -> None:
        async def ended() -> bool:
            self._last = (await self._eve.get(f"/broker/v1/tasks/{task}")).json()
            return self._last["completed_at"] is not None

        await until(ended)
        if self._last["status"] == "SUCCEEDED" and self._last["files_transferred"]:
            self.done.append("transfer")

    def _url(self, operation: str) -> str:
        return f"/v0.10/operation/endpoint/{self._number}/{operation}"

    async def _get(self, operation: str, path: str) -> httpx.Response:
        return await self._eve.get(self._url(operation), params={"path": path})


async def attack(world: World, seed: int, number: int) -> list[str]:
    """Try everything in one tree; return the number of calls."""
    chance = Random(seed)
    tree = LinkedTree(world.server.root / f"case{number}", chance)
    name, prefix = f"case {number}", tree.root if chance.random() < 0.5 else tree.root.with_name("alias")
    where = {"scheme": "ftp", "host": world.server.host, "port": world.server.port, "prefix": f"{prefix}/"}
    endpoint = {"name": f"e{number}", "site": "LAB", "write_priority": 1, **where}
    assert (await world.admin.put(f"/broker/v1/endpoints/e{number}", json=endpoint)).status_code == 200
    made = await world.admin.put(f"/broker/v1/collections/{name}", json={"name": name, "endpoint": f"e{number}"})
    for path, permissions in tree.grants.items():
        rule = {"principal_type": "identity", "principal": "eve", "path": path, "permissions": permissions}
        assert (await world.admin.post(f"/broker/v1/collections/{name}/rules", json=rule)).status_code == 201
    doing = Attack(world, tree, await somebody(world.broker, "eve"), made.json()["id"])
    closed, secrets = tree.closed(writes=True), tree.closed(writes=False)
    for _ in range(CALLS):
        await doing.call()
        assert tree.closed(writes=True) == closed
    tasks = [task for _ in range(TASKS) if (task := await doing.submit())]
    await asyncio.gather(*map(doing.over, tasks))
    assert tree.closed(writes=True) == closed
    assert tree.leaked(secrets) == []
    return doing.done


async def test_no_operation_reaches_outside_of_the_granted_paths(world):
    done: list[str] = []
    for number, attempt in enumerate(tries(CASES)):
        with attempt as seed:
            done += await attack(world, seed, number)
    possible, seed = {"ls", "stat", "mkdir", "rename", "transfer"}, 0
    while not possible <= set(done):  # not each tree grants all of it
        seed += 1
        assert seed <= MORE, f"what is granted cannot be done: {possible - set(done)}"
        done += await attack(world, seed, CASES + seed)
