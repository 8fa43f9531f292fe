"""Collections: made by admins, visible to users with grants."""

import time
from uuid import uuid4

import pytest

from broker.models.callers import Caller, NewToken
from broker.models.collections import AccessRule, Collection, NewCollection
from broker.models.identities import identity
from broker.services.catalogue.enclosing import Readable
from broker.storage.collections import CollectionStore

OWN = "/broker/v1/collections"
GLOBUS = "/v0.10"


@pytest.fixture
async def disk(tmp_path):
    """A directory of this machine, as a collection's base."""
    base = tmp_path / "disk"
    (base / "data" / "inner").mkdir(parents=True)
    (base / "data" / "a.txt").write_bytes(b"x" * 10)
    (base / "secret").mkdir()
    (base / "secret" / "s.txt").touch()
    return base


@pytest.fixture
async def collection(admin, disk):
    """The id of a collection without grants."""
    made = await admin.put(f"{OWN}/disk", json={"name": "disk", "kind": "local", "base": str(disk)})
    assert made.status_code == 200, made.text
    return made.json()["id"]


async def somebody(broker, subject, role="transfer"):
    issued = await broker.factory.tokens.issue("tests", NewToken(subject=subject, role=role))
    return broker.with_headers({"Authorization": f"Bearer {issued.token}"})


async def ls(client, collection, path="/"):
    return await client.get(f"{GLOBUS}/operation/endpoint/{collection}/ls", params={"path": path})


async def test_an_admin_makes_changes_and_removes_collections(stocked, disk):
    body = {"name": "cern data", "endpoint": "cern-1", "base": "/store", "concurrency": 4}
    made = (await stocked.put(f"{OWN}/cern data", json=body)).json()
    assert (made["kind"], made["base"], made["owner"]) == ("gridftp", "/store/", "a-admin")
    changed = (await stocked.put(f"{OWN}/cern data", json={**body, "base": "/other/"})).json()
    assert changed == {**made, "base": "/other/"}
    assert (await stocked.get(f"{OWN}/cern data")).json() == changed
    assert (await stocked.get(OWN)).json() == {"collections": [changed]}
    assert (await stocked.delete(f"{OWN}/cern data")).status_code == 204
    assert (await stocked.get(f"{OWN}/cern data")).status_code == 404
    entries = (await stocked.get("/broker/v1/audit")).json()["entries"]
    assert [entry["action"] for entry in entries[:3]] == ["remove collection", "put collection", "put collection"]


async def test_users_do_not_see_the_location_of_a_collection(stocked, broker):
    body = {"name": "c", "endpoint": "cern-1", "base": "/store", "credential": "robot", "concurrency": 4}
    (made,) = [(await stocked.put(f"{OWN}/c", json=body)).json()]
    rule = {"principal_type": "identity", "principal": "ann", "path": "/", "permissions": "rw"}
    assert (await stocked.post(f"{OWN}/c/rules", json=rule)).status_code == 201
    ann = await somebody(broker, "ann")
    (seen,) = (await ann.get(OWN)).json()["collections"]
    shown = ("id", "name", "kind", "site", "description", "owner", "created_at")
    assert seen == {name: made[name] for name in shown}
    document = (await ann.get(f"{GLOBUS}/endpoint/{made['id']}")).text
    assert "robot" not in document
    assert "/store" not in document


@pytest.mark.parametrize(
    "change",
    [
        {"endpoint": "none-such"},
        {"endpoint": None},
        {"kind": "local"},
        {"kind": "s3"},
        {"base": "relative"},
        {"base": "/a/../b"},
        {"name": "<img src=x onerror=alert(1)>"},
        {"concurrency": 0},
        {"rate": -1},
    ],
)
async def test_an_invalid_collection_is_refused(stocked, change):
    answer = await stocked.put(f"{OWN}/c", json={"name": "c", "endpoint": "cern-1", **change})
    assert answer.status_code in (404, 422), answer.text
    assert (await stocked.get(OWN)).json() == {"collections": []}


async def test_a_collection_without_a_grant_is_not_found(broker, admin, collection):
    ann = await somebody(broker, "ann")
    for path in (f"/endpoint/{collection}", f"/endpoint/{uuid4()}", f"/operation/endpoint/{collection}/ls"):
        answer = await ann.get(GLOBUS + path)
        assert (answer.status_code, answer.json()["code"]) == (404, "EndpointNotFound")
    assert (await ann.get(f"{GLOBUS}/endpoint_search")).json()["DATA"] == []
    assert (await ls(admin, collection)).status_code == 200


RULES = [
    {"principal_type": "identity", "principal": "ann"},
    {"principal_type": "identity", "principal": str(identity("ann"))},
    {"principal_type": "role", "principal": "transfer"},
    {"principal_type": "role", "principal": "reader"},
    {"principal_type": "all_authenticated_users"},
    {"principal_type": "anonymous"},
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: "-".join(rule.values())[:30])
async def test_a_rule_grants_a_path_and_what_is_below(broker, admin, collection, rule):
    answer = await admin.post(f"{OWN}/disk/rules", json={**rule, "path": "/data", "permissions": "r"})
    assert (answer.status_code, answer.json()["path"]) == (201, "/data/")
    ann = await somebody(broker, "ann")
    assert [entry["name"] for entry in (await ls(ann, collection, "/data/")).json()["DATA"]] == ["a.txt", "inner"]
    assert (await ls(ann, collection, "/data/inner")).status_code == 200
    for path in ("/", "/secret", "/data/../secret", "/database", "/~/secret"):
        refused = await ls(ann, collection, path)
        assert (refused.status_code, refused.json()["code"]) == (403, "EndpointPermissionDenied"), path
    written = await ann.post(f"{GLOBUS}/operation/endpoint/{collection}/mkdir", json={"path": "/data/new"})
    assert (written.status_code, written.json()["code"]) == (403, "EndpointPermissionDenied")
    assert [each["id"] for each in (await ann.get(f"{GLOBUS}/endpoint_search")).json()["DATA"]] == [collection]
    await admin.delete(f"{OWN}/disk/rules/{answer.json()['id']}")
    assert (await ls(ann, collection, "/data/")).status_code == 404


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"principal_type": "identity", "principal": "bob"}, "somebody else"),
        ({"principal_type": "role", "principal": "curator"}, "a role that she has not"),
    ],
)
async def test_a_rule_for_others_grants_nothing(broker, admin, collection, rule, why):
    assert (await admin.post(f"{OWN}/disk/rules", json=rule)).status_code == 201
    ann = await somebody(broker, "ann")
    assert (await ls(ann, collection)).status_code == 404, why


async def test_the_most_generous_of_several_rules_counts(broker, admin, collection):
    for permissions, path in (("rw", "/data/inner/"), ("r", "/")):
        rule = {"principal_type": "all_authenticated_users", "path": path, "permissions": permissions}
        await admin.post(f"{OWN}/disk/rules", json=rule)
    ann = await somebody(broker, "ann")
    mkdir = f"{GLOBUS}/operation/endpoint/{collection}/mkdir"
    assert (await ann.post(mkdir, json={"path": "/data/inner/new/"})).status_code == 202
    assert (await ann.post(mkdir, json={"path": "/data/new"})).status_code == 403
    assert (await ls(ann, collection, "/secret")).status_code == 200


@pytest.mark.parametrize(
    "rule",
    [
        {"principal_type": "role", "principal": "king"},
        {"principal_type": "identity"},
        {"principal_type": "anonymous", "principal": "ann"},
        {"principal_type": "identity", "principal": "<b>"},
        {"principal_type": "anonymous", "path": "/../x"},
        {"principal_type": "anonymous", "permissions": "w"},
    ],
)
async def test_an_invalid_rule_is_refused(admin, collection, rule):
    assert (await admin.post(f"{OWN}/disk/rules", json=rule)).status_code == 422


async def test_the_owner_grants_what_is_hers(broker, admin, collection, database):
    """Collections are made by admins; an owner keeps all rights to them, whatever their role is now."""
    owner = await somebody(broker, "a-admin", "transfer")
    rule = {"DATA_TYPE": "access", "principal_type": "identity", "principal": str(identity("ann")), "path": "/data/"}
    made = await owner.post(f"{GLOBUS}/endpoint/{collection}/access", json={**rule, "permissions": "rw"})
    assert (made.status_code, made.json()["code"]) == (201, "Created")
    ann = await somebody(broker, "ann")
    for method, path in (("GET", "access_list"), ("DELETE", f"access/{made.json()['access_id']}")):
        refused = await ann.request(method, f"{GLOBUS}/endpoint/{collection}/{path}")
        assert (refused.status_code, refused.json()["code"]) == (403, "PermissionDenied")


async def test_folders_of_another_site_are_not_looked_into_here(admin, disk):
    body = {"name": "far", "kind": "local", "base": str(disk), "site": "FNAL"}
    number = (await admin.put(f"{OWN}/far", json=body)).json()["id"]
    answer = await ls(admin, number)
    assert (answer.status_code, answer.json()["code"]) == (502, "EndpointError.Unreachable")
    assert str(disk) not in answer.text


NEIGHBOURS = ["169.254.169.254", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::]", "[ff02::1]"]


@pytest.mark.parametrize("host", NEIGHBOURS)
async def test_the_broker_connects_to_no_neighbour_of_its_machine(stocked, host):
    where = {"name": "inner", "site": "CERN", "scheme": "ftp", "host": host, "port": 80}
    assert (await stocked.put("/broker/v1/endpoints/inner", json=where)).status_code == 200
    number = (await stocked.put(f"{OWN}/inner", json={"name": "inner", "endpoint": "inner"})).json()["id"]
    answer = await ls(stocked, number)
    assert (answer.status_code, answer.json()["code"]) == (403, "EndpointPermissionDenied")
    assert "such addresses are refused" in answer.json()["message"]


async def test_lists_and_searches_load_no_rules_of_others(broker, admin, stocked):
    """A user may share 100 directories by 1000 rules each."""
    factory, ann, now = broker.factory, Caller(subject="ann", role="transfer"), time.time()
    async with factory.database.write() as connection:
        stored = CollectionStore(connection)
        for number in range(3):
            place = await stored.put(uuid4(), "eve", NewCollection(name=f"c{number}", endpoint="cern-1"), now)
            guest = Collection.model_construct(
                **dict.fromkeys(("base", "site", "credential", "description"), ""),
                id=uuid4(),
                name=f"g{number}",
                owner="eve",
                created_at=now,
                concurrency=None,
                rate=None,
                sharing=False,
            )
            await stored.share(guest, place, "/")
            for collection in (place, guest.id):
                for user in ["ann"] * number + ["bob", "carl", str(identity("dan"))]:
                    for path in ("/a/", "/b/"):
                        values = {"principal_type": "identity", "principal": user, "path": path}
                        rule = AccessRule(**values, permissions="r", id=uuid4())
                        await stored.add_rule(collection, rule, now)
            rule = AccessRule(principal_type="all_authenticated_users", path="/p/", permissions="rw", id=uuid4())
            await stored.add_rule(guest.id, rule, now)
        readable = await Readable.of(connection, ann)
    seen = {each.collection.name: each for each in await factory.collections.visible(ann)}
    assert seen.keys() == {"c1", "c2", "g0", "g1", "g2"}
    assert [seen[name].public for name in ("c1", "g1")] == [False, True]
    assert all(len(each.rules) <= 3 for each in seen.values())
    assert {rule.principal for rules in readable._rules.values() for rule in rules} == {"ann"}
    assert sum(map(len, readable._rules.values())) == 4
