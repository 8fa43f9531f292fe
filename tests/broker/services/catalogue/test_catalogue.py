"""Sites, endpoints, datasets and replicas: input and lookup."""

import asyncio
import json
import time

import httpx
import pytest

from broker.config.settings import Settings
from broker.storage.places import PlaceStore as Stored
from tests.broker.conftest import running, stock

A = "run1:2024/a.root"
RESOLVE = "/broker/v1/replicas/resolve"


async def _lines(client: httpx.AsyncClient, names: list[str], **more: str) -> list[dict]:
    answer = await client.post(RESOLVE, json={"names": names, **more})
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_a_dataset_is_found_at_all_its_endpoints(stocked):
    found, end = await _lines(stocked, [A])
    assert end == {"end": True, "count": 1}
    assert (found["name"], found["size"], found["checksums"]) == (A, 1_000_000_000, {"adler32": "01020304"})
    assert [replica["rank"] for replica in found["replicas"]] == [1, 2, 3]
    assert {replica["url"] for replica in found["replicas"]} == {
        "ftp://cern-1.example/data/2024/a.root",
        "gsiftp://cern-2.example/2024/a.root",
        "https://fnal-1.example/store/2024/a.root",
    }
    assert all(replica["rationale"] for replica in found["replicas"])


async def test_the_nearest_replica_comes_first_while_no_rate_is_known(stocked):
    found, _ = await _lines(stocked, [A], sink="FNAL")
    assert found["replicas"][0]["site"] == "FNAL"
    assert "0 km" in found["replicas"][0]["rationale"]
    found, _ = await _lines(stocked, [A], sink="CERN")
    assert [replica["site"] for replica in found["replicas"]] == ["CERN", "CERN", "FNAL"]


async def test_the_line_of_an_unknown_name_has_an_error(stocked):
    first, second, end = await _lines(stocked, ["nothing", A])
    assert first["error"]["code"] == "not_found"
    assert "nothing" in first["error"]["message"]
    assert second["error"] is None
    assert end["count"] == 2


async def test_thousands_of_names_are_one_request(stocked):
    lines = "".join(
        json.dumps({"name": f"many:{i:05}", "size": i, "replicas": [{"endpoint": "cern-1"}, {"endpoint": "fnal-1"}]})
        + "\n"
        for i in range(3000)
    )
    report = await stocked.post("/broker/v1/import", content=lines)
    assert report.json() == {"end": True, "read": 3000, "kept": 3000, "changed": 6000, "refused": 0}
    *found, end = await _lines(stocked, [f"many:{i:05}" for i in range(3000)])
    assert end["count"] == 3000
    assert [each["size"] for each in found] == list(range(3000))
    assert all(len(each["replicas"]) == 2 for each in found)


async def test_more_than_ten_thousand_names_are_refused(stocked):
    answer = await stocked.post(RESOLVE, json={"names": ["x"] * 10_001})
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "invalid"


async def test_a_bad_replica_is_handed_out_no_more_until_a_curator_looked(broker, stocked):
    user = await broker.client("transfer")
    url = "ftp://cern-1.example/data/2024/a.root"
    body = {"dataset": A, "url": url, "reason": "adler32 is 0badbeef"}
    marked = await user.post("/broker/v1/replicas/bad", json=body)
    assert (marked.status_code, marked.json()["state"]) == (200, "BAD")
    found, _ = await _lines(stocked, [A])
    assert url not in {replica["url"] for replica in found["replicas"]}
    (bad,) = (await stocked.get("/broker/v1/replicas", params={"state": "BAD"})).json()["replicas"]
    assert (bad["endpoint"], bad["reason"]) == ("cern-1", "a-transfer: adler32 is 0badbeef")
    await stocked.put("/broker/v1/replicas", json={"dataset": A, "endpoint": "cern-1"})
    found, _ = await _lines(stocked, [A])
    assert url in {replica["url"] for replica in found["replicas"]}
    (entry,) = [
        entry for entry in (await stocked.get("/broker/v1/audit")).json()["entries"] if entry["action"] == "mark bad"
    ]
    assert (entry["subject"], A in entry["thing"]) == ("a-transfer", True)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"size": 5}, "1000000000 bytes"), ({"checksums": {"adler32": "00000001"}}, "adler32 01020304")],
)
async def test_size_and_checksums_of_a_dataset_cannot_be_changed(stocked, change, message):
    answer = await stocked.put(f"/broker/v1/datasets/{A}", json={"name": A, **change})
    assert answer.status_code == 409
    assert message in answer.json()["error"]["message"]
    assert answer.json()["error"]["remedy"]


async def test_a_checksum_can_be_added_to_a_dataset(stocked):
    sha = "ab" * 32
    reply = await stocked.put(f"/broker/v1/datasets/{A}", json={"name": A, "checksums": {"sha256": sha}})
    assert reply.json()["checksums"] == {"adler32": "01020304", "sha256": sha}
    assert reply.json()["size"] == 1_000_000_000


async def test_an_unread_endpoint_is_not_handed_out(stocked):
    endpoint = (await stocked.get("/broker/v1/endpoints/cern-1")).json()
    await stocked.put("/broker/v1/endpoints/cern-1", json={**endpoint, "read_priority": 0})
    found, _ = await _lines(stocked, [A])
    assert {replica["endpoint"] for replica in found["replicas"]} == {"cern-2", "fnal-1"}


async def test_priorities_rank_before_all_else(stocked):
    endpoint = (await stocked.get("/broker/v1/endpoints/fnal-1")).json()
    for name in ("cern-1", "cern-2"):
        known = (await stocked.get(f"/broker/v1/endpoints/{name}")).json()
        await stocked.put(f"/broker/v1/endpoints/{name}", json={**known, "read_priority": 5})
    await stocked.put("/broker/v1/endpoints/fnal-1", json={**endpoint, "read_priority": 2})
    found, _ = await _lines(stocked, [A], sink="CERN")
    assert found["replicas"][0]["endpoint"] == "fnal-1"


async def test_pages_of_datasets_follow_each_other(stocked):
    lines = "\n".join(json.dumps({"name": name}) for name in ("b:1", "b:2", "b:10", "bb:1", "plain", "b:x/y"))
    await stocked.post("/broker/v1/import", content=lines)
    names, after = [], None
    while True:
        params = {"limit": 2, **({"after": after} if after else {})}
        page = (await stocked.get("/broker/v1/datasets", params=params)).json()
        names += [dataset["name"] for dataset in page["datasets"]]
        after = page["next"]
        if after is None:
            break
    assert names == ["plain", "b:1", "b:10", "b:2", "b:x/y", "bb:1", A]
    page = (await stocked.get("/broker/v1/datasets", params={"prefix": "b:1"})).json()
    assert [dataset["name"] for dataset in page["datasets"]] == ["b:1", "b:10"]


async def test_sites_and_endpoints_in_use_are_not_removed(stocked):
    assert (await stocked.delete("/broker/v1/sites/CERN")).status_code == 409
    assert (await stocked.delete("/broker/v1/endpoints/cern-1")).status_code == 409
    assert (await stocked.delete(f"/broker/v1/datasets/{A}")).status_code == 204
    assert (await stocked.get(f"/broker/v1/datasets/{A}")).status_code == 404
    for name in ("cern-1", "cern-2"):
        assert (await stocked.delete(f"/broker/v1/endpoints/{name}")).status_code == 204
    assert (await stocked.delete("/broker/v1/sites/CERN")).status_code == 204
    assert (await stocked.delete("/broker/v1/sites/CERN")).status_code == 404


async def test_an_endpoint_of_a_collection_is_not_removed(stocked):
    where = {"site": "CERN", "scheme": "gsiftp", "host": "dtn.example", "prefix": "/"}
    assert (await stocked.put("/broker/v1/endpoints/dtn", json={"name": "dtn", **where})).status_code == 200
    collection = {"name": "tape", "endpoint": "dtn"}
    assert (await stocked.put("/broker/v1/collections/tape", json=collection)).status_code == 200
    refused = await stocked.delete("/broker/v1/endpoints/dtn")
    assert refused.status_code == 409
    assert "it has replicas or collections" in refused.json()["error"]["message"]
    assert (await stocked.delete("/broker/v1/collections/tape")).status_code == 204
    assert (await stocked.delete("/broker/v1/endpoints/dtn")).status_code == 204


async def test_a_replica_can_be_forgotten(stocked):
    where = {"dataset": A, "endpoint": "cern-1"}
    assert (await stocked.delete("/broker/v1/replicas", params=where)).status_code == 204
    assert (await stocked.delete("/broker/v1/replicas", params=where)).status_code == 404


async def test_the_metalink_names_the_replicas_best_first(stocked):
    headers = {"Accept": "application/metalink4+xml"}
    answer = await stocked.post(RESOLVE, json={"names": [A, "nothing"], "sink": "FNAL"}, headers=headers)
    assert answer.headers["content-type"] == "application/metalink4+xml"
    assert '<url priority="1">https://fnal-1.example/store/2024/a.root</url>' in answer.text
    assert '<hash type="adler32">01020304</hash>' in answer.text
    assert "nothing" not in answer.text


async def test_one_of_two_conflicting_imports_of_a_dataset_is_kept(stocked):
    for turn in range(5):
        names = [f"race{turn}:{i:03}" for i in range(50)]
        one = "\n".join(json.dumps({"name": name, "size": 1, "checksums": {"md5": "1" * 32}}) for name in names)
        two = "\n".join(json.dumps({"name": name, "size": 2, "checksums": {"md5": "2" * 32}}) for name in names[::-1])
        answers = await asyncio.gather(*(stocked.post("/broker/v1/import", content=text) for text in (one, two)))
        assert all(answer.status_code == 200 for answer in answers), [answer.text for answer in answers]
        page = await stocked.get("/broker/v1/datasets", params={"prefix": f"race{turn}:"})
        for dataset in page.json()["datasets"]:
            assert dataset["checksums"] == {"md5": str(dataset["size"]) * 32}
        kept = [json.loads(answer.text.splitlines()[-1])["kept"] for answer in answers]
        assert sum(kept) == 50


async def test_an_unmeasured_replica_is_tried_first_now_and_then(database):
    async with running(Settings(database, explore=1)) as broker:
        client = await broker.client("admin")
        await stock(client.put)
        now = time.time()
        for name in ("cern-1", "cern-2"):
            transfer = {
                "id": name,
                "source": name,
                "sink": "CERN",
                "started": now - 20,
                "ended": now - 10,
                "bytes": 10**9,
            }
            await client.post("/broker/v1/transfers", json=transfer)
        await client.post("/broker/v1/forecasts", json={"forecasts": [{"source": "cern-1", "sink": "CERN"}]})
        await broker.settled()
        answers = []
        for _ in range(4):
            found, _end = await _lines(client, [A], sink="CERN")
            answers.append(found["replicas"])
            await broker.settled()
        tried = [replicas[0]["endpoint"] for replicas in answers if "first, to measure" in replicas[0]["rationale"]]
        assert tried == ["fnal-1"]  # not again before its transfer can have been reported
        measured = {each["endpoint"]: each["measured"] for each in answers[-1]}
        assert measured == {"cern-1": True, "cern-2": True, "fnal-1": False}


async def test_bad_replicas_of_one_dataset_are_on_pages_too(stocked):
    for name in ("cern-1", "cern-2", "fnal-1"):
        await stocked.post("/broker/v1/replicas/bad", json={"dataset": A, "endpoint": name, "reason": "r"})
    found, where = [], {}
    while True:
        page = (await stocked.get("/broker/v1/replicas", params={"limit": 1, **where})).json()
        found += [replica["endpoint"] for replica in page["replicas"]]
        if page["next"] is None:
            break
        where = {"after": page["next"], "after_endpoint": page["next_endpoint"]}
    assert found == ["cern-1", "cern-2", "fnal-1"]


async def test_an_import_without_a_state_does_not_restore_a_bad_replica(stocked):
    await stocked.post("/broker/v1/replicas/bad", json={"dataset": A, "endpoint": "cern-1", "reason": "r"})
    line = {"name": A, "replicas": [{"endpoint": "cern-1"}, {"endpoint": "cern-2"}]}
    report = (await stocked.post("/broker/v1/import", content=json.dumps(line))).json()
    assert (report["kept"], report["changed"]) == (1, 0)
    (bad,) = (await stocked.get("/broker/v1/replicas")).json()["replicas"]
    assert bad["endpoint"] == "cern-1"


async def test_a_change_is_seen_at_once_though_it_was_made_while_others_read(broker, admin, monkeypatch):
    """A read from before the change is not cached after it, whichever ends first."""
    place = {"name": "late", "site": "NEW", "scheme": "ftp", "host": "late.example"}
    read, go_on, reading = Stored.sites, asyncio.Event(), asyncio.Event()

    async def slowly(self):
        found = await read(self)
        if not go_on.is_set():
            reading.set()
            await go_on.wait()
        return found

    broker.factory.places.look_again()
    monkeypatch.setattr(Stored, "sites", slowly)
    early = asyncio.create_task(broker.factory.places.map())
    await reading.wait()
    monkeypatch.setattr(Stored, "sites", read)
    assert (await admin.put("/broker/v1/sites/NEW", json={"name": "NEW"})).status_code == 200
    assert (await admin.put("/broker/v1/endpoints/late", json=place)).status_code == 200
    assert "late" in (await broker.factory.places.map()).by_name
    go_on.set()
    await early
    assert "late" in (await broker.factory.places.map()).by_name
    assert (await admin.get("/broker/v1/forecasts", params={"source": "late", "sink": "NEW"})).status_code == 200
