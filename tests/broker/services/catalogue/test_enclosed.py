"""Replicas inside collections: readable with grants, or if the collection's owner has opened them."""

import os
import socket
from typing import NamedTuple
from uuid import uuid4

import alembic.command
import httpx
import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from broker.cli import broker as command
from broker.storage import migration
from broker.storage.database import addressed
from broker.storage.migration import differences
from broker.worker.policy import faults
from tests.broker.services.conftest import TASKS, World, grant, somebody
from tests.support.gridftp import GridFTPServer
from tests.support.waiting import until

B = "/broker/v1"
SECRET = os.urandom(4000)


class Place(NamedTuple):
    """A world with a catalogue for all, a private collection, and a curator who tries to read it by a task."""

    world: World
    eve: httpx.AsyncClient
    bob: httpx.AsyncClient
    host: str
    port: int
    root: str

    async def endpoint(self, client=None, name="mine", **changes):
        where = {"site": "LAB", "scheme": "ftp", "host": self.host, "port": self.port, "prefix": self.root}
        said = {"name": name, **where, **changes}
        return await (client or self.eve).put(f"{B}/endpoints/{name}", json=said)

    async def registered(self, client, path=None, endpoint="mine", name="eve:secret"):
        dataset = {"name": name, "size": len(SECRET)}
        assert (await client.put(f"{B}/datasets/{name}", json=dataset)).status_code == 200
        replica = {"dataset": name, "endpoint": endpoint, **({"path": path} if path else {})}
        answer = await client.put(f"{B}/replicas", json=replica)
        assert answer.status_code == 200, answer.text

    async def reads(self, client, name="eve:secret"):
        """Return whether a task of the caller can read the file from the catalogue."""
        to = f"/{uuid4()}"
        items = [{"source": "/" + name.replace(":", "/"), "destination": to}]
        said = {"submission_id": str(uuid4()), "source": "datasets", "destination": "to", "items": items}
        sent = await client.post(TASKS, json=said)
        assert sent.status_code == 202, sent.text
        return await self.arrived(sent.json()["id"], to)

    async def arrived(self, number, to):
        task = await self.over(number)
        there = (self.world.sink / to.strip("/")).exists()
        assert there is (task["status"] == "SUCCEEDED"), task
        assert there or task["bytes_transferred"] == 0
        return there

    async def over(self, number):
        """Return the finished task."""

        async def ended():
            task = (await self.world.admin.get(f"{TASKS}/{number}")).json()
            return task if task["completed_at"] is not None else None

        return await until(ended)

    async def told(self, client, name="eve:secret"):
        """Return what a caller learns about replicas, by each route."""
        found = {}
        answer = await client.get(f"{B}/datasets/{name}")
        found["dataset"] = bool(answer.json()["replicas"])
        found["resolve"] = "secret" in (await client.get(f"{B}/replicas/resolve", params={"name": name})).text.replace(
            name, ""
        )
        many = (await client.post(f"{B}/replicas/resolve", json={"names": [name]})).text.replace(name, "")
        found["resolve many"] = "secret" in many
        accept = {"Accept": "application/metalink4+xml"}
        document = await client.get(f"{B}/replicas/resolve", params={"name": name}, headers=accept)
        found["metalink"] = "ftp://" in document.text
        found["plan"] = (await client.post(f"{B}/plans", json={"name": name})).status_code == 200
        found["export"] = "mine" in (await client.get(f"{B}/export", params={"prefix": name})).text
        found["access"] = (await client.get(f"/ga4gh/drs/v1/objects/{name}/access/mine")).status_code == 200
        return found


@pytest.fixture
async def place(world, monkeypatch):
    monkeypatch.setattr(faults, "FIRST_PAUSE", 0.01)  # a task fails after its third attempt
    admin = world.admin
    where = (await admin.get(f"{B}/endpoints/from")).json()
    assert (
        await admin.put(f"{B}/collections/datasets", json={"name": "datasets", "kind": "catalogue"})
    ).status_code == 200
    open_to_all = {"principal_type": "all_authenticated_users"}
    assert (await admin.post(f"{B}/collections/datasets/rules", json=open_to_all)).status_code == 201
    for name in ("eve", "bob"):
        await grant(admin, "to", name, "rw")
    for path in ("secret", "pub/secret"):
        (world.source / path).parent.mkdir(exist_ok=True)
        (world.source / path).write_bytes(SECRET)
    eve, bob = await somebody(world.broker, "eve", "curator"), await somebody(world.broker, "bob")
    made = Place(world, eve, bob, where["host"], where["port"], where["prefix"])
    assert (await made.endpoint()).status_code == 200
    return made


async def test_a_curator_reads_no_private_collection_by_the_catalogue(place):
    await place.registered(place.eve)
    for client in (place.eve, place.bob):
        assert not await place.reads(client)
    assert await place.reads(place.world.ann)
    assert await place.reads(place.world.admin)


async def test_nor_by_the_globus_api(place):
    await place.registered(place.eve)
    collections = (await place.world.admin.get(f"{B}/collections")).json()["collections"]
    number = {each["name"]: each["id"] for each in collections}
    for client, reads in ((place.eve, False), (place.world.ann, True)):
        to = f"/{uuid4()}"
        item = {"DATA_TYPE": "transfer_item", "source_path": "/eve/secret", "destination_path": to, "recursive": False}
        said = {
            "DATA_TYPE": "transfer",
            "submission_id": (await client.get("/v0.10/submission_id")).json()["value"],
            "source_endpoint": number["datasets"],
            "destination_endpoint": number["to"],
            "DATA": [item],
        }
        sent = await client.post("/v0.10/transfer", json=said)
        assert sent.status_code == 202, sent.text
        task = sent.json()["task_id"]
        assert await place.arrived(task, to) is reads


async def test_nor_into_a_folder_of_workers(place, tmp_path):
    """Open replicas are read; closed replicas are never asked, however good their forecasts are."""
    admin = place.world.admin
    (tmp_path / "folder").mkdir()
    said = {"name": "folder", "kind": "local", "base": f"{tmp_path}/folder"}
    assert (await admin.put(f"{B}/collections/folder", json=said)).status_code == 200
    await grant(admin, "folder", "eve", "rw")
    await place.registered(place.eve)
    for opened in (False, True):
        items = [{"source": "/eve/secret", "destination": "/x"}]
        task = {"submission_id": str(uuid4()), "source": "datasets", "destination": "folder", "items": items}
        sent = await place.eve.post(TASKS, json=task)
        assert sent.status_code == 202, sent.text
        task = await place.over(sent.json()["id"])
        assert (task["status"], (tmp_path / "folder" / "x").exists()) == ("SUCCEEDED" if opened else "FAILED", opened)
        if not opened:
            assert task["error"]["code"] == "PERMISSION_DENIED"
            assert "eve may read no replica of eve:secret" in task["error"]["message"]
            await grant(admin, "from here", "eve", "r")


VARIANTS = [
    {"scheme": "ftp", "prefix": "/", "path": "{root}/secret"},
    {"prefix": "/", "path": "/{root}//secret"},
    {"prefix": "{root}//", "path": "secret"},
    {"host": "127.1"},
    {"host": "0x7f000001"},
    {"host": "localhost"},
    {"host": "LocalHost"},
]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("variant", VARIANTS)
async def test_however_its_place_is_written(place, variant):
    said = {name: value.format(root=place.root.rstrip("/")) for name, value in variant.items()}
    path = said.pop("path", None)
    assert (await place.endpoint(place.world.admin, "mine", **said)).status_code == 200
    await place.registered(place.eve, path)
    assert not await place.reads(place.eve)
    assert await place.reads(place.world.ann)


async def test_by_another_name_of_its_server(place, tmp_path):
    """The workers resolve names."""
    name = socket.gethostname()
    admin = place.world.admin
    with GridFTPServer(tmp_path / "named", socket.gethostbyname(name)) as server:
        (server.root / "secret").write_bytes(SECRET)
        where = {"host": server.host, "port": server.port, "prefix": f"{server.root}/"}
        assert (await place.endpoint(admin, "numeric", **where)).status_code == 200
        assert (
            await admin.put(f"{B}/collections/by number", json={"name": "by number", "endpoint": "numeric"})
        ).is_success
        assert (await place.endpoint(admin, "mine", **{**where, "host": name})).status_code == 200
        await place.registered(place.eve)
        assert not await place.reads(place.eve)
        await grant(admin, "by number", "eve", "r")
        assert await place.reads(place.eve)


async def test_what_is_hidden_is_told_to_nobody_else(place):
    await place.registered(place.eve)
    ann, bob = place.world.ann, place.bob
    assert set((await place.told(ann)).values()) == {True}
    assert set((await place.told(bob)).values()) == {False}
    bad = {"dataset": "eve:secret", "endpoint": "mine", "reason": "x"}
    other = await bob.post(f"{B}/replicas/bad", json={**bad, "endpoint": "none"})
    hidden = await bob.post(f"{B}/replicas/bad", json=bad)
    assert (hidden.status_code, hidden.text.replace("mine", "none")) == (other.status_code, other.text)
    assert hidden.status_code == 404
    assert (await place.eve.put(f"{B}/replicas", json={**bad, "state": "BAD"})).status_code == 200
    wanting = [(await each.get(f"{B}/replicas")).json()["replicas"] for each in (bob, place.eve)]
    assert [len(each) for each in wanting] == [0, 1]
    assert "eve:secret" not in (await bob.get(f"{B}/reports/replicas")).text
    assert "eve:secret" in (await place.eve.get(f"{B}/reports/replicas")).text


async def test_grants_are_asked_for_the_path_and_when_work_begins(place):
    admin = place.world.admin
    rule = {"principal_type": "identity", "principal": "bob", "path": "/pub/", "permissions": "r"}
    made = await admin.post(f"{B}/collections/from here/rules", json=rule)
    await place.registered(place.eve)
    await place.registered(place.eve, "pub/secret", name="eve:public")
    assert not await place.reads(place.bob)
    assert await place.reads(place.bob, "eve:public")
    assert (await admin.delete(f"{B}/collections/from here/rules/{made.json()['id']}")).status_code == 204
    assert not await place.reads(place.bob, "eve:public")


async def test_a_link_in_what_is_granted_opens_nothing_else(place):
    """A curator registers a file behind a link: its path is granted, the link's target is not."""
    root = place.world.source
    (root / "pub" / "plain").write_bytes(SECRET)
    (root / "pub" / "out").symlink_to(root / "secret")
    (root / "pub" / "up").symlink_to("..")
    rule = {"principal_type": "identity", "principal": "bob", "path": "/pub/", "permissions": "r"}
    assert (await place.world.admin.post(f"{B}/collections/from here/rules", json=rule)).status_code == 201
    for path, reads in (("pub/plain", True), ("pub/out", False), ("pub/up/secret", False)):
        name = f"eve:{path.replace('/', '-')}"
        await place.registered(place.eve, path, name=name)
        assert await place.reads(place.bob, name) is reads, path
        assert await place.reads(place.world.admin, name), path


async def url_of(place, client, name="eve:secret"):
    found = (await client.get(f"{B}/replicas/unconfirmed")).json()["replicas"]
    return next((each["url"] for each in found if each["dataset"] == name), None)


async def confirmed(client, url, name="eve:secret"):
    return (await client.post(f"{B}/replicas/confirm", json={"dataset": name, "url": url})).status_code


async def test_its_owner_or_an_admin_opens_a_replica(place):
    """Neither a curator nor a user who may read it can open it; the owner can, with any role that may submit tasks."""
    await place.registered(place.eve)
    owner = await somebody(place.world.broker, "a-admin", "transfer")
    url = await url_of(place, owner)
    assert url
    for client in (place.eve, place.bob, place.world.ann):
        assert (await client.get(f"{B}/replicas/unconfirmed")).json()["replicas"] == []
    assert await confirmed(place.eve, url) == await confirmed(place.world.ann, url) == 403
    assert await confirmed(place.bob, url) == await confirmed(place.bob, url + "x") == 404
    assert await confirmed(owner, url + "x") == 404
    assert not await place.reads(place.bob)
    assert await confirmed(owner, url) == 204
    assert await url_of(place, owner) is None
    assert await place.reads(place.bob)
    assert set((await place.told(place.bob)).values()) == {True}
    audit = (await place.world.admin.get(f"{B}/audit")).json()["entries"]
    assert any(each["action"] == "confirm replica" and each["subject"] == "a-admin" for each in audit)


@pytest.mark.parametrize("who", ["admin", "owner"])
async def test_what_they_register_is_open(place, who):
    owner = await somebody(place.world.broker, "a-admin", "curator")
    await place.registered(place.world.admin if who == "admin" else owner)
    assert await place.reads(place.bob)
    await place.registered(place.eve)  # registered again, it is at the old place
    assert await place.reads(place.bob)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", ["path", "prefix", "port", "host", "registered again"])
async def test_what_is_moved_is_closed(place, how):
    """A replica is closed after any move, by any user and to any place in the collection."""
    await place.registered(place.eve, "pub/secret")
    assert await confirmed(place.world.admin, await url_of(place, place.world.admin)) == 204
    assert await place.reads(place.bob)
    if how == "path":
        await place.registered(place.eve, "secret")
    elif how == "registered again":
        assert (await place.eve.delete(f"{B}/replicas?dataset=eve:secret&endpoint=mine")).status_code == 204
        await place.registered(place.eve, "pub/secret")
    else:
        changes = {
            "prefix": {"prefix": f"{place.root}pub/"},
            "port": {"port": 1},
            "host": {"host": "127.1"},
        }
        assert (await place.endpoint(place.world.admin, **changes[how])).status_code == 200
        if how == "port":
            assert (await place.endpoint()).status_code == 200
    assert not await place.reads(place.bob)
    assert await url_of(place, place.world.admin) is not None


async def test_a_collection_made_later_closes_what_curators_registered(place):
    admin = place.world.admin
    assert (await admin.delete(f"{B}/collections/from here")).status_code == 204
    await place.registered(place.eve)
    await place.registered(admin, name="root:secret", path="secret")
    assert await place.reads(place.bob)
    said = {"name": "later", "endpoint": "from"}
    assert (await admin.put(f"{B}/collections/later", json=said)).status_code == 200
    assert not await place.reads(place.bob)
    assert await place.reads(place.bob, "root:secret")


async def test_who_moves_a_collections_endpoint_opens_nothing(place):
    """The old folder of the collection stays closed until an admin moves its endpoint."""
    await place.registered(place.eve)
    for prefix in ("/nowhere/", "/elsewhere/"):
        assert (await place.endpoint(place.eve, "from", prefix=prefix)).status_code == 200
    assert not await place.reads(place.eve)
    admin = place.world.admin
    for other in ({"max_streams": 7}, {"delegate": True}, {"data_hosts": ["pool.example"]}):
        assert (await place.endpoint(admin, "from", prefix="/elsewhere/", **other)).status_code == 200
        assert not await place.reads(place.eve), f"only {other} was changed"
    assert (await place.endpoint(admin, "from", prefix="/new/")).status_code == 200
    assert await place.reads(place.eve)


async def test_an_import_opens_nothing_either(place):
    await place.registered(place.eve)
    line = b'{"name": "eve:secret", "size": 4000, "replicas": [{"endpoint": "mine"}]}\n'
    assert (await place.eve.post(f"{B}/import", content=line)).json()["kept"] == 1
    assert not await place.reads(place.bob)
    assert (await place.world.admin.post(f"{B}/import", content=line)).json()["kept"] == 1
    assert await place.reads(place.bob)


async def test_a_page_of_many_unconfirmed_replicas(place):
    lines = b"".join(
        b'{"name": "eve:f%d", "size": 1, "replicas": [{"endpoint": "mine"}]}\n' % number for number in range(120)
    )
    await place.eve.post(f"{B}/import", content=lines)
    found, params = [], {"limit": 50}
    while True:
        page = (await place.world.admin.get(f"{B}/replicas/unconfirmed", params=params)).json()
        found += page["replicas"]
        if page["next"] is None:
            break
        params |= {"after": page["next"], "after_endpoint": page["next_endpoint"]}
    assert sorted(each["dataset"] for each in found) == sorted(f"eve:f{number}" for number in range(120))
    assert {(each["registered_by"], *each["collections"]) for each in found} == {("eve", "from here")}
    named = [{"dataset": each["dataset"], "url": each["url"]} for each in found]
    assert (await place.world.admin.post(f"{B}/replicas/confirm", json=named)).status_code == 204
    assert (await place.world.admin.get(f"{B}/replicas/unconfirmed")).json()["replicas"] == []
    wrong = [{"dataset": "eve:f1", "url": "ftp://none.example/x"}]
    assert (await place.world.admin.post(f"{B}/replicas/confirm", json=wrong)).status_code == 404


def _run(*words):
    done = CliRunner().invoke(command, [*words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_an_upgrade_lists_what_lies_in_collections(empty_database):
    """The upgrade closes them: their creator is unknown."""
    address = addressed(empty_database)
    with migration._connected(address) as connection:
        alembic.command.upgrade(migration._config(connection), "0013")
        for statement in (
            "INSERT INTO sites (id, name) VALUES (1, 'x')",
            "INSERT INTO endpoints (id, name, site_id, scheme, host, port, prefix, read_priority, write_priority)"
            " VALUES (1, 'dtn', 1, 'ftp', 'dtn.example', NULL, '/data/', 1, 0),"
            " (2, 'again', 1, 'gsiftp', 'DTN.example', 2811, '/', 1, 0),"
            " (3, 'far', 1, 'ftp', 'far.example', 9, '/', 1, 0)",
            "INSERT INTO collections (id, name, kind, endpoint_id, base, site, owner, description, credential,"
            " rate_until, created_at)"
            f" VALUES ('{uuid4()}', 'my tape', 'gridftp', 1, '/tape/', '', 'ann', '', '', 0, 0)",
            "INSERT INTO datasets (id, scope, name, created_at) VALUES (1, 'cms', 'a', 0), (2, '', 'tape/b', 0)",
            "INSERT INTO replicas (dataset_id, endpoint_id, path, state, changed_at, reason) VALUES"
            " (1, 1, 'tape/a b', 'AVAILABLE', 0, ''), (2, 1, NULL, 'BAD', 0, ''),"
            " (2, 2, 'data/tape', 'AVAILABLE', 0, ''),"
            " (1, 2, NULL, 'AVAILABLE', 0, ''), (1, 3, 'data/tape/x', 'AVAILABLE', 0, '')",
        ):
            connection.execute(sa.text(statement))
        connection.commit()
    words = ("--database", empty_database)
    said = _run("upgrade", *words)
    differences(address)
    lines = [
        "cms:a  ftp://dtn.example/data/tape/a%20b  in my tape  registered by: not known",
        "tape/b  gsiftp://DTN.example/data/tape  in my tape  registered by: not known",
        "tape/b  ftp://dtn.example/data/tape/b  in my tape  registered by: not known",
    ]
    found = [line for line in said.splitlines() if "registered by" in line]
    assert "reads them with their own grants" in said
    assert sorted(found) == sorted(lines)
    assert _run("replica", "list", *words, "--in", "my tape").splitlines() == found
    assert _run("replica", "list", *words, "--in", "other") == ""
    _run("replica", "confirm", "cms:a", "ftp://dtn.example/data/tape/a%20b", *words)
    assert len(_run("replica", "list", *words).splitlines()) == 2
    _run("replica", "confirm", "--in", "my tape", *words)
    assert _run("replica", "list", *words) == ""
    assert "registered by" not in _run("upgrade", *words)
    wrong = CliRunner().invoke(command, ["replica", "confirm", "cms:a", "ftp://dtn.example/x", *words])
    assert "there is no replica of cms:a" in str(wrong.exception)


def test_an_upgrade_without_such_replicas_lists_none(empty_database):
    assert "replica" not in _run("upgrade", "--database", empty_database)
