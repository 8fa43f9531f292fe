"""Guest collections as an attacker sees them: no way out of the shared directory, and no more than its owner may.

Ann may write below /pub of a collection, and shares /pub/x. Bob is her guest. /secret belongs to neither. Servers are
real.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import select

from broker.schema.tasks import tasks
from broker.storage.collections import CollectionStore
from broker.storage.lanes import CANDIDATE, candidate
from broker.worker.owner_rights import OwnerRights
from tests.broker.conftest import Broker
from tests.broker.services.conftest import World, grant, somebody
from tests.support.waiting import until

GLOBUS = "/v0.10"
BIG = 10_000_000
RATE = 500_000


class Sharing(NamedTuple):
    """A host collection, Ann's guest collection of a directory in it, and the users."""

    broker: Broker
    admin: httpx.AsyncClient
    ann: httpx.AsyncClient
    bob: httpx.AsyncClient
    host: str
    guest: str
    sink: str
    root: Path

    async def ask(self, who: httpx.AsyncClient, operation: str, path: str, on: str = "") -> int:
        """Try an operation at a path; return the status."""
        place = f"{GLOBUS}/operation/endpoint/{on or self.guest}/{operation}"
        if operation in ("ls", "stat"):
            return (await who.get(place, params={"path": path})).status_code
        body = {"path": path} if operation == "mkdir" else {"old_path": path, "new_path": "/renamed"}
        return (await who.post(place, json=body)).status_code

    async def share(self, who: httpx.AsyncClient, host: str, path: str, name: str = "another") -> httpx.Response:
        document = {"DATA_TYPE": "shared_endpoint", "host_endpoint": host, "host_path": path, "display_name": name}
        return await who.post(f"{GLOBUS}/shared_endpoint", json=document)

    async def allow(self, permissions: str, path: str = "/") -> str:
        """Give Bob a permission in the guest collection; return the rule's id."""
        rule = {"principal_type": "identity", "principal": "bob", "path": path, "permissions": permissions}
        answer = await self.ann.post(f"{GLOBUS}/endpoint/{self.guest}/access", json={"DATA_TYPE": "access", **rule})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["access_id"])

    async def change(self, rule: str, permissions: str) -> None:
        """Change the permissions of a rule of the guest collection."""
        place = f"{GLOBUS}/endpoint/{self.guest}/access/{rule}"
        (await self.ann.put(place, json={"permissions": permissions})).raise_for_status()

    async def submit(self, source: str, destination: str, items: list[dict[str, Any]]) -> httpx.Response:
        """Submit a transfer of Bob's."""
        ends = {"source_endpoint": source, "destination_endpoint": destination}
        body = {"DATA_TYPE": "transfer", "submission_id": str(uuid4()), **ends, "DATA": items}
        return await self.bob.post(f"{GLOBUS}/transfer", json=body)

    async def over(self, number: str) -> dict[str, Any]:
        async def ended() -> dict[str, Any] | None:
            task = (await self.bob.get(f"{GLOBUS}/task/{number}")).json()
            return task if task["status"] != "ACTIVE" else None

        return await until(ended)

    async def copied(self, source: str, path: str, destination: str, to: str) -> str:
        """Copy a file as Bob; return how the task ended, or the status of a refusal."""
        answer = await self.submit(source, destination, [{"source_path": path, "destination_path": to}])
        if answer.status_code != 202:
            return str(answer.status_code)
        task = await self.over(answer.json()["task_id"])
        return task["status"] if task["fatal_error"] is None else task["fatal_error"]["code"]

    async def change_host(self, **values: Any) -> None:
        known = (await self.admin.get("/broker/v1/collections/from here")).json()
        fields = ("name", "kind", "endpoint", "base", "sharing", "rate", "concurrency")
        body = {name: known[name] for name in fields} | values
        assert (await self.admin.put("/broker/v1/collections/from here", json=body)).status_code == 200


@pytest.fixture
async def sharing(world: World) -> Sharing:
    for name in ("pub/x/d/a", "secret/s"):
        (world.source / name).parent.mkdir(parents=True, exist_ok=True)
        (world.source / name).write_bytes(b"of " + name.encode())
    known = (await world.admin.get("/broker/v1/collections")).json()["collections"]
    numbers = {each["name"]: each["id"] for each in known}
    (rule,) = (await world.admin.get("/broker/v1/collections/from here/rules")).json()["rules"]
    await world.admin.delete(f"/broker/v1/collections/from here/rules/{rule['id']}")
    await _let_ann(world.admin, "rw")
    bob = await somebody(world.broker, "bob")
    await grant(world.admin, "to", "bob", "rw")
    made = Sharing(world.broker, world.admin, world.ann, bob, numbers["from here"], "", numbers["to"], world.source)
    await made.change_host(sharing=True)
    answer = await made.share(world.ann, made.host, "/pub/x", "x of ann")
    assert answer.status_code == 201, answer.text
    return made._replace(guest=answer.json()["id"])


async def _let_ann(admin: httpx.AsyncClient, permissions: str) -> str:
    rule = {"principal_type": "identity", "principal": "ann", "path": "/pub/", "permissions": permissions}
    answer = await admin.post("/broker/v1/collections/from here/rules", json=rule)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def test_a_guest_uses_the_shared_directory_and_nothing_else(sharing):
    assert await sharing.ask(sharing.bob, "ls", "/") == 404
    await sharing.allow("rw")
    listed = await sharing.bob.get(f"{GLOBUS}/operation/endpoint/{sharing.guest}/ls")
    assert [each["name"] for each in listed.json()["DATA"]] == ["d"]
    assert await sharing.ask(sharing.bob, "mkdir", "/new") == 202
    assert (sharing.root / "pub" / "x" / "new").is_dir()
    assert await sharing.ask(sharing.bob, "rename", "/d/a") == 200
    assert await sharing.copied(sharing.guest, "/renamed", sharing.sink, "/got") == "SUCCEEDED"
    for operation in ("ls", "stat", "mkdir", "rename"):
        assert await sharing.ask(sharing.bob, operation, "/pub/x", sharing.host) == 404
        for path in ("/..", "/../secret", "/d/../../../secret/s", "~/../y", "//..//secret"):
            assert await sharing.ask(sharing.bob, operation, path) == 400
    assert (sharing.root / "secret" / "s").exists()
    assert not (sharing.root / "renamed").exists()


async def test_the_root_of_a_share_stays_and_a_pause_of_the_host_holds(sharing):
    await sharing.allow("rw")
    for old, new in (("/", "/d/x"), ("/", "/../y"), ("/d", "/"), ("/d", "/../../d")):
        body = {"old_path": old, "new_path": new}
        answer = await sharing.bob.post(f"{GLOBUS}/operation/endpoint/{sharing.guest}/rename", json=body)
        assert answer.status_code in (400, 502), answer.text
    body = {"DATA_TYPE": "delete", "submission_id": str(uuid4()), "endpoint": sharing.guest, "recursive": True}
    assert (await sharing.bob.post(f"{GLOBUS}/delete", json={**body, "DATA": [{"path": "/"}]})).status_code == 400
    assert (sharing.root / "pub" / "x" / "d" / "a").exists()
    pause = {"message": "a moment", "endpoint_id": sharing.host, "pause_ls": True}
    assert (await sharing.admin.post(f"{GLOBUS}/endpoint_manager/pause_rule", json=pause)).status_code == 201
    assert await sharing.ask(sharing.bob, "ls", "/") == 409
    rules = await sharing.bob.get(f"{GLOBUS}/endpoint/{sharing.guest}/my_effective_pause_rule_list")
    assert [each["endpoint_id"] for each in rules.json()["DATA"]] == [sharing.guest]


async def test_links_lead_no_guest_out(sharing):
    await sharing.allow("rw")
    shared = sharing.root / "pub" / "x"
    (shared / "out").symlink_to(sharing.root / "secret")
    (shared / "file").symlink_to("../../secret/s")
    (shared / "up").symlink_to("..")
    (shared / "in").symlink_to(shared / "d")
    for path in ("/out/", "/out/s", "/up/y", "/up/"):
        assert await sharing.ask(sharing.bob, "ls", path) == 403, path
    for path in ("/out/s", "/up/y"):
        assert await sharing.ask(sharing.bob, "stat", path) == 403
        assert await sharing.ask(sharing.bob, "mkdir", path + "/n") == 403
        assert await sharing.ask(sharing.bob, "rename", path) == 403
    assert await sharing.copied(sharing.guest, "/file", sharing.sink, "/stolen") == "PERMISSION_DENIED"
    assert await sharing.ask(sharing.bob, "ls", "/in/") == 200
    entries = (await sharing.bob.get(f"{GLOBUS}/operation/endpoint/{sharing.guest}/ls")).json()["DATA"]
    shown = {each["name"]: (each["type"], each["link_target"]) for each in entries}
    assert {shown["out"], shown["file"], shown["up"]} == {("invalid_symlink", None)}
    assert await sharing.copied(sharing.guest, "/d/a", sharing.guest, "/out/s") == "PERMISSION_DENIED"
    assert (sharing.root / "secret" / "s").read_bytes() == b"of secret/s"


async def test_a_shared_directory_that_becomes_a_link_is_closed(sharing):
    """Ann could write /pub by other means, and let the guest collection lead to what she may not read."""
    await sharing.allow("rw")
    (sharing.root / "secret" / "x").mkdir()
    (sharing.root / "secret" / "x" / "s").write_bytes(b"x")
    for moved in ("pub/x", "pub"):
        place, away = sharing.root / moved, sharing.root / "away"
        place.rename(away)
        place.symlink_to(sharing.root / "secret")
        for who in (sharing.bob, sharing.ann):
            for operation, path in (("ls", "/"), ("stat", "/s"), ("stat", "/"), ("mkdir", "/n"), ("rename", "/s")):
                assert await sharing.ask(who, operation, path) == 403, (operation, path)
        assert await sharing.copied(sharing.guest, "/s", sharing.sink, "/stolen") == "PERMISSION_DENIED"
        assert sorted(each.name for each in (sharing.root / "secret").iterdir()) == ["s", "x"]
        place.unlink()
        away.rename(place)
    assert await sharing.ask(sharing.bob, "ls", "/") == 200


async def test_only_what_one_may_read_is_shared_and_no_share_is_shared_again(sharing):
    await sharing.allow("rw")
    for who, host, path, status in (
        (sharing.ann, sharing.host, "/secret", 403),
        (sharing.ann, sharing.host, "/pub/../secret", 403),
        (sharing.ann, sharing.host, "/", 403),
        (sharing.ann, sharing.host, "/../", 400),
        (sharing.bob, sharing.host, "/pub/x", 404),
        (sharing.bob, sharing.guest, "/d", 400),
        (sharing.ann, sharing.guest, "/", 400),
        (sharing.ann, sharing.sink, "/", 400),  # it does not allow sharing
        (sharing.admin, sharing.host, "/pub", 201),  # the owner of the collection
    ):
        assert (await sharing.share(who, host, path)).status_code == status, path
    assert (await sharing.share(sharing.ann, sharing.host, "/pub", "x of ann")).status_code == 409
    curator = await somebody(sharing.broker, "carl", "admin")  # an admin's role does not count: a rule has to name carl
    assert (await sharing.share(curator, sharing.host, "/pub", "of carl")).status_code == 403


async def test_the_numbers_of_guest_collections_and_of_their_rules_are_limited(sharing, monkeypatch):
    monkeypatch.setattr("broker.services.collections.collections.MOST_SHARED", 2)
    monkeypatch.setattr("broker.services.collections.collections.MOST_RULES", 2)
    assert [(await sharing.share(sharing.ann, sharing.host, "/pub", f"{at}")).status_code for at in range(2)] == [
        201,
        409,
    ]
    await sharing.allow("r", "/a")
    await sharing.change(await sharing.allow("r", "/b"), "rw")
    rule = {"DATA_TYPE": "access", "principal_type": "identity", "principal": "bob", "path": "/c/", "permissions": "r"}
    answer = await sharing.ann.post(f"{GLOBUS}/endpoint/{sharing.guest}/access", json=rule)
    assert (answer.status_code, "has 2 access rules" in answer.text) == (409, True)
    rules = (await sharing.ann.get(f"{GLOBUS}/endpoint/{sharing.guest}/access_list")).json()["DATA"]
    assert [(each["path"], each["permissions"]) for each in rules if each["principal_type"] == "identity"] == [
        ("/a/", "r"),
        ("/b/", "rw"),
    ]
    for name in "abc":
        path = {"principal_type": "identity", "principal": "bob", "path": f"/{name}/", "permissions": "r"}
        assert (await sharing.admin.post("/broker/v1/collections/to/rules", json=path)).status_code == 201
    assert (await sharing.ann.delete(f"{GLOBUS}/endpoint/{sharing.guest}")).status_code == 200
    assert (await sharing.share(sharing.ann, sharing.host, "/pub", "1")).status_code == 201


async def test_guests_have_no_more_than_the_sharer_has_now(sharing):
    await sharing.allow("rw")
    rule = await _let_ann(sharing.admin, "r")
    assert await sharing.ask(sharing.bob, "ls", "/") == 200
    for who in (sharing.bob, sharing.ann):
        assert await sharing.ask(who, "mkdir", "/n") == 403
    assert await sharing.copied(sharing.sink, "/x", sharing.guest, "/y") == "403"
    await sharing.change_host(sharing=False)
    assert await sharing.ask(sharing.bob, "ls", "/") == 403
    await sharing.change_host(sharing=True)
    await sharing.admin.delete(f"/broker/v1/collections/from here/rules/{rule}")
    for who in (sharing.bob, sharing.ann):
        assert await sharing.ask(who, "ls", "/") == 403
    role = {"principal_type": "role", "principal": "reader", "path": "/pub/", "permissions": "rw"}
    assert (await sharing.admin.post("/broker/v1/collections/from here/rules", json=role)).status_code == 201
    assert await sharing.ask(sharing.bob, "ls", "/") == 403


@pytest.mark.sampled(3)
@pytest.mark.parametrize("taken", ["rule", "share", "grant of the sharer"])
async def test_access_ends_at_once_in_the_middle_of_a_task(sharing, taken):
    rule = await sharing.allow("r")
    await sharing.change_host(rate=RATE)
    (sharing.root / "pub" / "x" / "big").write_bytes(os.urandom(BIG))
    items = [{"source_path": "/big", "destination_path": "/got"}]
    number = (await sharing.submit(sharing.guest, sharing.sink, items)).json()["task_id"]

    async def begun() -> bool:
        return (await sharing.bob.get(f"{GLOBUS}/task/{number}")).json()["bytes_transferred"] > 0

    await until(begun)
    if taken == "rule":
        place = f"{GLOBUS}/endpoint/{sharing.guest}/access/{rule}"
        assert (await sharing.ann.delete(place)).status_code == 200
    elif taken == "share":
        assert (await sharing.ann.delete(f"{GLOBUS}/endpoint/{sharing.guest}")).status_code == 200
    else:
        (known,) = (await sharing.admin.get("/broker/v1/collections/from here/rules")).json()["rules"]
        await sharing.admin.delete(f"/broker/v1/collections/from here/rules/{known['id']}")
    task = await sharing.over(number)
    assert task["status"] == "FAILED"
    assert task["bytes_transferred"] < BIG
    assert await sharing.ask(sharing.bob, "ls", "/") in (403, 404)


async def test_a_new_name_or_description_interrupts_no_task(sharing):
    rule = await sharing.allow("r")
    items = [{"source_path": "/x/1", "destination_path": "/got"}]
    number = (await sharing.submit(sharing.guest, sharing.sink, items)).json()["task_id"]
    database = sharing.broker.factory.database

    async def rights() -> object:
        async with database.read() as connection:
            columns = (tasks.c[name] for name in CANDIDATE)
            found = await connection.execute(select(*columns).where(tasks.c.id == number))
            return (await OwnerRights.of(connection, candidate(found.one()))).shared

    before = await rights()
    place = f"{GLOBUS}/endpoint/{sharing.guest}"
    for change in ({"description": "new"}, {"display_name": "new"}):
        assert (await sharing.ann.put(place, json={"DATA_TYPE": "endpoint", **change})).status_code == 200
    assert await rights() == before
    await sharing.change(rule, "rw")
    assert await rights() != before


async def test_only_the_owner_and_admins_rename_a_guest_collection_and_only_to_a_free_name(sharing):
    await sharing.allow("rw")
    guest, host = f"{GLOBUS}/endpoint/{sharing.guest}", f"{GLOBUS}/endpoint/{sharing.host}"

    async def put(who: httpx.AsyncClient, place: str, **fields: object) -> int:
        return (await who.put(place, json={"DATA_TYPE": "endpoint", **fields})).status_code

    assert await put(sharing.ann, guest, display_name="mine") == 200
    assert await put(sharing.admin, guest, display_name="mine", description="of Ann") == 200
    assert await put(sharing.bob, guest, display_name="stolen") == 403
    assert await put(await somebody(sharing.broker, "eve"), guest, display_name="stolen") == 404
    for name in ("from here", "to"):
        assert await put(sharing.ann, guest, display_name=name, description="lost") == 409
    for name in ("", " ", None, "a/b", "a:b", "x\n", "n" * 129, str(uuid4()), uuid4().hex):
        assert await put(sharing.ann, guest, display_name=name) == 400, name
    assert await put(sharing.ann, guest, display_name="more", public=True) == 400
    assert await put(sharing.ann, guest) == 400
    assert await put(sharing.admin, host, display_name="elsewhere") == 400
    known = (await sharing.bob.get(guest)).json()
    assert (known["display_name"], known["description"]) == ("mine", "of Ann")
    assert (await sharing.share(sharing.ann, sharing.host, "/pub", "x of ann")).status_code == 201
    assert await put(sharing.ann, guest, display_name="x of ann") == 409


async def test_a_sharer_gets_no_rights_of_owners_and_learns_no_location(sharing):
    async with sharing.broker.factory.database.read() as connection:
        stored = CollectionStore(connection)
        assert not await stored.owns("ann")
        assert sharing.guest not in {str(each.collection.id) for each in await stored.folders()}
    mine = (await sharing.ann.get("/broker/v1/collections")).json()["collections"]
    (guest,) = [each for each in mine if each["id"] == sharing.guest]
    assert not {"base", "credential", "endpoint", "share"} & guest.keys()
    body = {"name": "x of ann", "kind": "gridftp", "endpoint": "from", "base": "/"}
    assert (await sharing.admin.put("/broker/v1/collections/x of ann", json=body)).status_code == 409
    assert (await sharing.bob.delete(f"{GLOBUS}/endpoint/{sharing.guest}")).status_code == 404
    await sharing.allow("rw")
    assert (await sharing.bob.delete(f"{GLOBUS}/endpoint/{sharing.guest}")).status_code == 403
    assert (await sharing.ann.delete(f"{GLOBUS}/endpoint/{sharing.host}")).status_code == 403
    await sharing.admin.delete("/broker/v1/collections/from here")
    assert (await sharing.ann.get(f"{GLOBUS}/endpoint/{sharing.guest}")).status_code == 404
