"""Grants are checked again when work begins, and a user has one rule per path."""

import os
import time
from pathlib import Path
from uuid import uuid4

import alembic.command
import httpx
import pytest
import sqlalchemy as sa

from broker.models.callers import NewToken
from broker.models.identities import identity
from broker.schema.access import tokens as tokens_table
from broker.schema.tasks import tasks
from broker.storage import migration
from broker.storage.database import addressed
from broker.storage.grants import GrantStore
from broker.storage.migration import differences, upgrade
from broker.storage.tokens import TokenStore
from tests.broker.oauth.conftest import Program, by_server
from tests.broker.services.conftest import TASKS, World, grant, somebody


async def _rules(admin: httpx.AsyncClient, name: str) -> list[dict[str, str]]:
    return (await admin.get(f"/broker/v1/collections/{name}/rules")).json()["rules"]


async def _paused(world: World, number: str, paused: bool) -> None:
    kind = "admin_pause" if paused else "admin_resume"
    body = {"task_id_list": [number], "message": "a moment"}
    assert (await world.admin.post(f"/v0.10/endpoint_manager/{kind}", json=body)).status_code == 200


async def _waiting(world: World, client: httpx.AsyncClient) -> str:
    """A task that no worker has begun."""
    monitored = {"message": "a moment", "endpoint_id": await _number(world)}
    rule = (await world.admin.post("/v0.10/endpoint_manager/pause_rule", json=monitored)).json()["id"]
    (world.source / "x").write_bytes(os.urandom(1000))
    answer = await client.post(TASKS, json=world.submission("/x"))
    assert answer.status_code == 202, answer.text
    number = str(answer.json()["id"])
    await _paused(world, number, True)
    assert (await world.admin.delete(f"/v0.10/endpoint_manager/pause_rule/{rule}")).status_code == 200
    return number


async def _number(world: World) -> str:
    return (await world.admin.get("/broker/v1/collections/from here")).json()["id"]


async def _fails(world: World, number: str, message: str) -> None:
    await _paused(world, number, False)
    while (task := (await world.admin.get(f"{TASKS}/{number}")).json())["completed_at"] is None:
        assert time.time() < task["deadline"]
    assert (task["status"], task["error"]["code"]) == ("FAILED", "PERMISSION_DENIED")
    assert message in task["error"]["message"]
    events = (await world.admin.get(f"{TASKS}/{number}/events")).json()["events"]
    assert "PERMISSION_DENIED" in {each["code"] for each in events}
    assert task["bytes_transferred"] == 0
    assert not (world.sink / "copy" / "x").exists()


@pytest.mark.parametrize("left", [None, "/other/", "r"])
@pytest.mark.parametrize("name", ["from here", "to"])
async def test_a_grant_that_was_taken_back_moves_no_bytes(world, name, left):
    if name == "from here" and left == "r":
        pytest.skip("reading is all that was granted there")
    number = await _waiting(world, world.ann)
    (rule,) = await _rules(world.admin, name)
    assert (await world.admin.delete(f"/broker/v1/collections/{name}/rules/{rule['id']}")).status_code == 204
    if left:
        other = {"principal_type": "identity", "principal": "ann", "permissions": "rw"}
        other |= {"path": left} if left != "r" else {"permissions": "r"}
        assert (await world.admin.post(f"/broker/v1/collections/{name}/rules", json=other)).status_code == 201
    await _fails(world, number, "ann may not")


async def test_a_token_that_was_revoked_moves_no_bytes(world):
    issued = await world.broker.factory.tokens.issue("tests", NewToken(subject="ann", role="transfer"))
    ann = world.broker.with_headers({"Authorization": f"Bearer {issued.token}"})
    number = await _waiting(world, ann)
    assert (await world.admin.delete(f"/broker/v1/tokens/{issued.id}")).status_code == 204
    await _fails(world, number, "token")


async def test_a_task_fails_after_its_owner_loses_the_admin_role(world):
    chief = await world.broker.factory.tokens.issue("tests", NewToken(subject="chief", role="admin"))
    number = await _waiting(world, world.broker.with_headers({"Authorization": f"Bearer {chief.token}"}))
    assert (await world.admin.delete(f"/broker/v1/tokens/{chief.id}")).status_code == 204
    await _fails(world, number, "chief may not continue")


async def test_a_task_ends_with_its_client_even_long_after_its_token_expired(world):
    """Expired tokens are deleted, but not those of active tasks. No other token gets the number of a deleted one."""
    factory = world.broker.factory
    client, secret = await factory.clients.make("tests", "robot", "transfer")
    for name in ("from here", "to"):
        await grant(world.admin, name, "robot", "rw")
    tokens = by_server((await Program(world.broker, client.id, secret).ask(grant_type="client_credentials")).json())
    access = tokens["transfer.api.globus.org"]["access_token"]
    number = await _waiting(world, world.broker.with_headers({"Authorization": f"Bearer {access}"}))
    async with factory.database.write() as connection:
        store = GrantStore(connection)
        issued = int((await connection.execute(sa.select(tasks.c.token_id).where(tasks.c.id == number))).scalar_one())
        await store.forget(time.time() + 400 * 86_400)
        assert not await TokenStore(connection).ended(issued, time.time())
    await factory.clients.revoke("tests", client.id)
    await _fails(world, number, "robot may not continue")
    async with factory.database.write() as connection:
        newest = (await connection.execute(sa.select(sa.func.max(tokens_table.c.id)))).scalar_one()
        await GrantStore(connection).forget(time.time() + 400 * 86_400)
        assert issued not in set((await connection.execute(sa.select(tokens_table.c.id))).scalars())
    assert (await factory.tokens.issue("tests", NewToken(subject="bob"))).id > newest


async def test_a_task_whose_grants_stand_is_done(world):
    number = await _waiting(world, world.ann)
    await _paused(world, number, False)
    assert (await world.over(number))["status"] == "SUCCEEDED"


@pytest.mark.parametrize("seconds", [3.2e9, 1e10])
async def test_a_deadline_is_at_most_a_hundred_years_away(world, seconds):
    late = world.submission("/x", deadline=time.time() + seconds)
    answer = await world.ann.post(TASKS, json=late)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid")
    number = await _waiting(world, world.ann)
    for deadline in ("9999-12-31", "2999-01-01T00:00:00+00:00"):
        answer = await world.ann.put(f"/v0.10/task/{number}", json={"deadline": deadline})
        assert answer.status_code == 400


async def test_a_user_has_one_rule_for_a_path_under_all_names(world):
    known, unknown = identity("ann"), identity("zoe")
    for name in (str(known), str(known).upper(), f"urn:uuid:{known}", known.hex):
        await grant(world.admin, "to", name, "r")
        (rule,) = await _rules(world.admin, "to")
        assert (rule["principal"], rule["permissions"], rule["path"]) == ("ann", "r", "/")
    await grant(world.admin, "from here", str(unknown).upper(), "r")
    assert [each["principal"] for each in await _rules(world.admin, "from here")] == ["ann", str(unknown)]
    zoe = await somebody(world.broker, "zoe")
    seen = [each["name"] for each in (await zoe.get("/broker/v1/collections")).json()["collections"]]
    assert seen == ["from here"]
    await grant(world.admin, "from here", "zoe", "rw")
    assert [(each["principal"], each["permissions"]) for each in await _rules(world.admin, "from here")] == [
        ("ann", "r"),
        ("zoe", "rw"),
    ]


@pytest.mark.parametrize("path", ["/data", "data/", "/data/../data", "~/data", "//data/."])
async def test_the_path_of_a_rule_is_returned_in_normal_form(world, path):
    rule = {"principal_type": "all_authenticated_users", "path": path, "permissions": "r"}
    answer = await world.admin.post("/broker/v1/collections/to/rules", json=rule)
    assert (answer.status_code, answer.json()["path"]) == (201, "/data/")


def test_two_rules_of_one_user_are_merged_by_the_upgrade(tmp_path: Path):
    address = addressed(f"sqlite:///{tmp_path / 'old.sqlite'}")
    with migration._connected(address) as connection:
        alembic.command.upgrade(migration._config(connection), "0008")
    engine = sa.create_engine(address.replace("+aiosqlite", ""))
    names = ("ann", str(identity("ann")), str(identity("ann")).upper())
    with engine.begin() as connection:
        collection = "'c', 'c', 'local', '/', '', 'root', '', '', 0.0, 1.0"
        fields = "id, name, kind, base, site, owner, description, credential, rate_until, created_at"
        connection.execute(sa.text(f"INSERT INTO collections ({fields}) VALUES ({collection})"))
        for at, (name, permissions) in enumerate(zip(names, ("rw", "r", "rw"), strict=True)):
            values = f"'{uuid4()}', 'c', 'identity', '{name}', '/', '{permissions}', {at}.0"
            connection.execute(sa.text(f"INSERT INTO access_rules VALUES ({values})"))
        token = "'h', 'ann', 'admin', '', 1.0"
        connection.execute(sa.text(f"INSERT INTO tokens (hash, subject, role, site, created_at) VALUES ({token})"))
    assert not upgrade(address)
    differences(address)
    with engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT principal, permissions FROM access_rules")).all()
        notes = connection.execute(sa.text("SELECT thing FROM audit WHERE action = 'merge rules'")).scalars().all()
    engine.dispose()
    assert [tuple(row) for row in rows] == [("ann", "r")]
    assert len(notes) == 2


LINKS = [
    ("/d/file", "../others/secret", False),
    ("/d/folder", "../others", False),
    ("/d/whole", "..", False),
    ("/d/readable", "../open/a", False),  # a write below a link goes to the link's target
    ("/d/inner", "../mine/a", True),
]


@pytest.mark.parametrize("how", ["item", "keep"])
async def test_no_link_leads_outside_of_the_granted_paths(world, how):
    eve = await somebody(world.broker, "eve")
    await grant(world.admin, "from here", "eve", "r")
    for path, permissions in (("/mine/", "rw"), ("/open/", "r")):
        rule = {"principal_type": "identity", "principal": "eve", "permissions": permissions, "path": path}
        assert (await world.admin.post("/broker/v1/collections/to/rules", json=rule)).status_code == 201
    for name in ("d", "others", "open", "mine"):
        (world.source / name).mkdir()
        (world.sink / name).mkdir(exist_ok=True)
    for name in ("others/secret", "open/a", "mine/a"):
        (world.source / name).write_bytes(b"x")
        (world.sink / name).write_bytes(b"x")
    for path, target, _ in LINKS:
        (world.source / path[1:]).symlink_to(target)
    sent = await eve.get("/v0.10/submission_id")
    symlink = [
        {"DATA_TYPE": "transfer_symlink_item", "source_path": path, "destination_path": f"/mine/{path[3:]}"}
        for path, *_ in LINKS
    ]
    folder = {"source_path": "/d/", "destination_path": "/mine/", "recursive": True}
    document = {
        "submission_id": sent.json()["value"],
        "source_endpoint": await _number(world),
        "destination_endpoint": (await world.admin.get("/broker/v1/collections/to")).json()["id"],
        "DATA": symlink if how == "item" else [folder],
        "recursive_symlinks": "ignore" if how == "item" else "keep",
    }
    answer = await eve.post("/v0.10/transfer", json=document)
    assert answer.status_code == 202, answer.text
    number = answer.json()["task_id"]
    while (task := (await world.admin.get(f"{TASKS}/{number}")).json())["completed_at"] is None:
        assert time.time() < task["deadline"]
    made = {each.name for each in (world.sink / "mine").iterdir() if each.is_symlink()}
    assert made == {path[3:] for path, _, granted in LINKS if granted}, task
    assert task["error"]["code"] == "PERMISSION_DENIED"
