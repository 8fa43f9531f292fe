"""Users with grants to some directories of a collection stay in them, even if symbolic links lead out."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

import httpx
import pytest

from broker.models.callers import Caller
from broker.services.collections.collections import CollectionUse
from broker.services.collections.trees import GridFTPTree
from broker.worker.policy import faults
from coalloc.api import Storage
from tests.broker.services.conftest import TASKS, World, grant, somebody
from tests.support.waiting import until


class Eve(NamedTuple):
    """A user who may read `from here`, and use /u1/ of `to`, which also has /private."""

    client: httpx.AsyncClient
    world: World
    number: str

    async def call(self, operation: str, **fields: str) -> httpx.Response:
        url = f"/v0.10/operation/endpoint/{self.number}/{operation}"
        if operation in ("ls", "stat"):
            return await self.client.get(url, params=fields)
        return await self.client.post(url, json={"DATA_TYPE": operation, **fields})

    async def task(self, *items: tuple[str, str], origin: str = "from here", **options: Any) -> dict[str, Any]:
        """Run a transfer to `to`, or, without a source, a deletion in `to`; return the finished task."""
        pairs = [{"source": source, "destination": there} if there else {"source": source} for source, there in items]
        ends = {"source": origin, "destination": "to"} if items[0][1] else {"source": "to", "kind": "DELETE"}
        new = (await self.client.get("/v0.10/submission_id")).json()["value"]
        body = {"submission_id": new, "items": pairs, "options": options, **ends}
        answer = await self.client.post(TASKS, json=body)
        assert answer.status_code == 202, answer.text
        number = answer.json()["id"]

        async def over() -> bool:
            return (await self._task(number))["completed_at"] is not None

        await until(over)
        return await self._task(number)

    async def _task(self, number: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.client.get(f"{TASKS}/{number}")).json()
        return found

    async def skipped(self, task: dict[str, Any]) -> set[tuple[str, str]]:
        """Return the skipped entries and the reasons."""
        files = await self.client.get(f"{TASKS}/{task['id']}/files", params={"state": "skipped"})
        return {(each["source"], each["error"]["code"]) for each in files.json()["files"]}

    async def events(self, task: dict[str, Any], code: str) -> Sequence[str]:
        found = (await self.client.get(f"{TASKS}/{task['id']}/events")).json()["events"]
        return [each["details"] for each in found if each["code"] == code]


@pytest.fixture
async def eve(world: World, monkeypatch: pytest.MonkeyPatch) -> Eve:
    monkeypatch.setattr(faults, "FIRST_PAUSE", 0.05)
    await grant(world.admin, "from here", "eve", "r")
    rule = {"principal_type": "identity", "principal": "eve", "permissions": "rw", "path": "/u1/"}
    assert (await world.admin.post("/broker/v1/collections/to/rules", json=rule)).status_code == 201
    for name in ("private/deep", "u1/own"):
        (world.sink / name).mkdir(parents=True)
    (world.sink / "private/secret").write_text("secret")
    (world.sink / "u1/own/mine").write_text("mine")
    number = (await world.admin.get("/broker/v1/collections/to")).json()["id"]
    return Eve(await somebody(world.broker, "eve"), world, number)


def private(world: World) -> dict[str, str]:
    folder = world.sink / "private"
    return {str(path.relative_to(folder)): path.read_text() if path.is_file() else "" for path in folder.rglob("*")}


@pytest.mark.parametrize("text", ["../private", "{root}/private", "own/../own/back"])
async def test_no_call_follows_a_link_out_of_the_granted_paths(eve, world, text):
    (world.sink / "u1/own/back").symlink_to("../../private")
    (world.sink / "u1/out").symlink_to(text.format(root=world.sink))
    before = private(world)
    direct = await eve.call("ls", path="/private")
    assert direct.status_code == 403
    refused = [
        await eve.call("ls", path="/u1/out"),
        await eve.call("ls", path="/u1/out/deep/"),
        await eve.call("stat", path="/u1/out/secret"),
        await eve.call("stat", path="/u1/out/none"),
        await eve.call("mkdir", path="/u1/out/new"),
        await eve.call("rename", old_path="/u1/own/mine", new_path="/u1/out/mine"),
        await eve.call("rename", old_path="/u1/out/secret", new_path="/u1/stolen"),
    ]
    assert [each.status_code for each in refused] == [403] * len(refused)
    error = refused[0].json()
    assert (error["code"], error["message"]) == (
        "EndpointPermissionDenied",
        "a symbolic link on /u1/out leads to a place that eve may not read: ask its owner, or an admin",
    )
    assert all(str(world.sink) not in each.text for each in refused)
    listed = {each["name"]: each for each in (await eve.call("ls", path="/u1/")).json()["DATA"]}
    shown = [listed["out"], (await eve.call("stat", path="/u1/out")).json()]
    assert [(each["type"], each["size"], each["link_target"], each["user"]) for each in shown] == [
        ("invalid_symlink", 0, None, None)
    ] * 2
    assert listed["own"]["type"] == "dir"
    assert private(world) == before


@pytest.mark.sampled(2)
@pytest.mark.parametrize("skip", [True, False])
async def test_no_task_follows_a_link_out_of_the_granted_paths(eve, world, skip):
    (world.sink / "u1/out").symlink_to("../private")
    (world.sink / "u1/secret").symlink_to("../private/secret")
    (world.sink / "u1/near").symlink_to("own")
    (world.source / "d").mkdir()
    (world.source / "d/secret").write_text("overwritten")
    before = private(world)
    tasks = await asyncio.gather(
        eve.task(("/d/secret", "/u1/out/secret"), skip_source_errors=skip),
        eve.task(("/d/", "/u1/out/"), skip_source_errors=skip),
        eve.task(("/u1/out/secret", "/u1/own/stolen"), origin="to", skip_source_errors=skip),
        eve.task(("/u1/secret", "/u1/own/stolen"), origin="to", skip_source_errors=skip),
        eve.task(("/u1/out/deep", ""), recursive=True),
        eve.task(("/u1/out/*", ""), recursive=True, interpret_globs=True),
    )
    read = "SUCCEEDED" if skip else "FAILED"  # it was the source's
    assert [each["status"] for each in tasks] == ["FAILED", "FAILED", read, read, "FAILED", "FAILED"]
    assert private(world) == before
    assert not (world.sink / "u1/own/stolen").exists()
    assert (await eve.task(("/d/secret", "/u1/near/")))["status"] == "SUCCEEDED"
    assert (world.sink / "u1/own/secret").read_text() == "overwritten"


async def test_a_followed_link_that_leads_out_is_named_and_the_rest_is_copied(eve, world):
    (world.sink / "u1/d").mkdir()
    (world.sink / "u1/d/out").symlink_to("../../private")
    (world.sink / "u1/d/secret").symlink_to("../../private/secret")
    (world.sink / "u1/d/in").symlink_to("../own/mine")
    (world.sink / "u1/d/gone").symlink_to("nowhere")
    task = await eve.task(("/u1/d/", "/u1/e/"), origin="to", recursive_symlinks="copy", skip_source_errors=True)
    assert task["status"] == "SUCCEEDED", task
    assert {path.name: path.read_text() for path in (world.sink / "u1/e").iterdir()} == {"in": "mine"}
    denied = {("/u1/d/out", "PERMISSION_DENIED"), ("/u1/d/secret", "PERMISSION_DENIED")}
    assert await eve.skipped(task) == denied
    (hidden,) = await eve.events(task, "NOT_LISTED")
    assert hidden == "/u1/d/: the server counts 1 entries more than it names, for example dangling links"


async def test_a_kept_link_leads_only_to_paths_that_its_owner_may_write(eve, world):
    """Both a link's target and its own place count: a folder of theirs may be a link, too."""
    for name in ("a/b/keep", "private", "a/private", "a/b/way"):
        (world.source / name).mkdir(parents=True)
    (world.source / "a/b/keep/file").write_text("x")
    (world.source / "a/b/keep/up").symlink_to("../../private")  # /private at the destination
    (world.source / "a/b/keep/by").symlink_to("../way/deep")
    (world.source / "a/b/way/deep").mkdir()
    (world.source / "a/b/keep/fine").symlink_to("file")
    (world.source / "a/b/keep/dangling").symlink_to("../way")
    (world.source / "a/b/keep/nowhere").symlink_to("nowhere")
    (world.sink / "u1/way").symlink_to("../private")
    task = await eve.task(("/a/b/keep/", "/u1/keep/"), recursive_symlinks="keep", skip_source_errors=True)
    assert task["status"] == "SUCCEEDED", task
    made = {each.name for each in (world.sink / "u1/keep").iterdir()}
    assert made == {"file", "fine"}
    assert await eve.skipped(task) == {(f"/a/b/keep/{name}", "PERMISSION_DENIED") for name in ("up", "by", "dangling")}
    assert len(await eve.events(task, "NOT_LISTED")) == 1
    assert (await eve.task(("/a/b/keep/", "/u1/keep/"), recursive_symlinks="keep"))["status"] == "FAILED"


async def test_only_kept_links_to_files_that_are_not_copied_are_named(eve, world):
    (world.source / "d/other").mkdir(parents=True)
    (world.source / "d/x").mkdir()
    (world.source / "d/other/file").write_text("x")
    (world.source / "d/x/file").write_text("x")
    (world.source / "d/x/there").symlink_to("file")
    (world.source / "d/x/elsewhere").symlink_to("../other/file")
    task = await eve.task(("/d/x/", "/u1/x/"), recursive_symlinks="keep", skip_source_errors=True)
    assert task["status"] == "SUCCEEDED", task
    assert {each.name for each in (world.sink / "u1/x").iterdir()} == {"file", "there"}
    assert await eve.skipped(task) == {("/d/x/elsewhere", "FILE_NOT_FOUND")}
    (message,) = await eve.events(task, "FILE_NOT_FOUND")
    assert message.endswith("/u1/x/elsewhere would lead to /u1/other/file, which does not exist")


async def test_links_of_a_collection_whose_own_path_is_a_link_are_kept_once(eve, world):
    alias = world.sink.with_name("alias")
    alias.symlink_to(world.sink)
    known = (await world.admin.get("/broker/v1/endpoints/to")).json()
    moved = {**known, "prefix": f"{alias}/"}
    assert (await world.admin.put("/broker/v1/endpoints/to", json=moved)).status_code == 200
    (world.source / "d").mkdir()
    (world.source / "d/file").write_text("x")
    (world.source / "d/link").symlink_to("file")
    first = await eve.task(("/d/", "/u1/d/"), recursive_symlinks="keep")
    assert first["status"] == "SUCCEEDED", first
    made = (world.sink / "u1/d/link").lstat()
    for user in (eve, eve._replace(client=world.ann)):
        listed = (await user.call("ls", path="/u1/d/")).json()["DATA"]
        assert {each["name"]: each["link_target"] for each in listed} == {"file": None, "link": "file"}
    assert (await eve.task(("/d/", "/u1/d/"), recursive_symlinks="keep"))["status"] == "SUCCEEDED"
    assert (world.sink / "u1/d/link").lstat().st_ino == made.st_ino, "it was not made again"
    again = await eve.task(("/u1/d/", "/u1/e/"), origin="to", recursive_symlinks="keep")
    assert again["status"] == "SUCCEEDED", again
    assert (world.sink / "u1/e/link").resolve() == world.sink / "u1/e/file"


async def test_links_are_not_resolved_for_users_who_are_granted_everything(eve, world, monkeypatch):
    """Looking at links would cost a round trip more."""
    (world.sink / "u1/own/link").symlink_to("mine")
    asked: list[str] = []
    stat = Storage.stat

    async def counted(self: Storage, path: str) -> Any:
        asked.append(path)
        return await stat(self, path)

    monkeypatch.setattr(Storage, "stat", counted)
    for subject, costs in (("ann", False), ("eve", True)):
        caller = Caller(subject=subject, role="transfer")
        (reach,) = (
            await world.broker.factory.collections.allow(caller, [CollectionUse(UUID(eve.number), "/u1/")])
        ).values()
        tree = await world.broker.factory.trees.of(reach.collection, reach)
        assert isinstance(tree, GridFTPTree)
        asked.clear()
        assert [entry.name async for some in tree.list("/u1/own/") for entry in some]
        await tree.readable("/u1/own/link")
        await tree.writable("/u1/own/link")
        await tree.make(f"/u1/own/{subject}")
        assert bool(asked) == costs
        asked.clear()
        await tree.stat("/u1/own/link")
        assert (len(asked) == 1) != costs


async def test_a_user_who_may_read_all_writes_only_to_granted_paths(world):
    await grant(world.admin, "to", "zoe", "r")
    rule = {"principal_type": "identity", "principal": "zoe", "permissions": "rw", "path": "/z/"}
    assert (await world.admin.post("/broker/v1/collections/to/rules", json=rule)).status_code == 201
    number = (await world.admin.get("/broker/v1/collections/to")).json()["id"]
    (world.sink / "z").mkdir()
    (world.sink / "others").mkdir()
    (world.sink / "z/out").symlink_to("../others")
    zoe = Eve(await somebody(world.broker, "zoe"), world, number)
    assert (await zoe.call("ls", path="/z/out/")).status_code == 200
    assert (await zoe.call("mkdir", path="/z/out/new")).status_code == 403
    assert not (world.sink / "others/new").exists()


async def test_no_file_is_written_beside_a_granted_folder(eve, world):
    (world.source / "file").write_text("x")
    before = {path.name for path in world.sink.iterdir()}
    task = await eve.task(("/file", "/u1"))
    assert (task["status"], task["error"]["code"]) == ("FAILED", "IS_A_DIRECTORY")
    assert {path.name for path in world.sink.iterdir()} == before
