"""Collections that a caller may not see: answers are the same as for an unknown id."""

import time
from uuid import uuid4

import pytest

from tests.broker.services.conftest import grant, somebody

B = "/broker/v1"
NOW = time.time()
SERVER = "gsiftp://dtn.hidden.example:2811"
FILED = "gsiftp://dtn.hidden.example"


@pytest.fixture
async def hidden(broker, admin):
    """The id of a collection that only admins know, with transfers from its server and to its site."""
    assert (await admin.put(f"{B}/sites/SECRETLAB", json={"name": "SECRETLAB"})).status_code == 200
    where = {"scheme": "gsiftp", "host": "dtn.hidden.example", "prefix": "/data"}
    endpoint = {"name": "dtn", "site": "SECRETLAB", "capacity": 4e7, **where}
    assert (await admin.put(f"{B}/endpoints/dtn", json=endpoint)).status_code == 200
    made = await admin.put(f"{B}/collections/tape", json={"name": "tape", "endpoint": "dtn", "base": "/secret"})
    folder = {"name": "scratch", "kind": "local", "site": "SECRETLAB", "base": "/scratch"}
    assert (await admin.put(f"{B}/collections/scratch", json=folder)).status_code == 200
    rows = [observed(f"h{i}", SERVER, "SECRETLAB", NOW - 4000 + i) for i in range(30)]
    assert (await admin.post(f"{B}/transfers", json=rows)).status_code == 200
    await broker.settled()
    return made.json()["id"]


def observed(number, source, sink, ended=NOW - 60):
    return {"id": number, "source": source, "sink": sink, "started": ended - 10, "ended": ended, "bytes": 10**9}


def asks(number):
    """Return requests that name a collection by its id, in each possible way."""
    source = f"globus://{number}"
    pair = {"source": source, "sink": number}
    file = {"bytes": 1000, "at": ["a"], "to": ["b"]}
    hosts = {"hosts": {"a": {"url": source}, "b": {"url": "ftp://other.example"}}, "files": {"f": file}}
    yield "GET", "/forecasts", {"params": {**pair, "size": 1000}}
    yield "GET", "/forecasts", {"params": {"source": number, "sink": "CERN"}}
    yield "GET", "/forecasts", {"params": {"source": SERVER, "sink": number}}
    yield "GET", "/forecasts", {"params": {"source": source, "sink": source, "direction": "write"}}
    yield "POST", "/forecasts", {"json": {"forecasts": [pair, {"source": "ftp://x.example", "sink": number}]}}
    yield "GET", "/transfers", {"params": {"source": source}}
    yield "GET", "/transfers", {"params": {"sink": number}}
    yield "GET", "/transfers", {"params": {"source": number}}
    yield "GET", "/transfers/export", {"params": pair}
    yield "POST", "/plans", {"json": hosts}
    yield "GET", "/reports/pair", {"params": pair}
    yield "GET", "/reports/pair/scores.csv", {"params": pair}


def told(answer, number):
    said = answer.json() if "json" in answer.headers["content-type"] else answer.text
    return answer.status_code, str(_timeless(said)).replace(number, "ID")


def _timeless(said):
    if isinstance(said, dict):
        return {name: _timeless(each) for name, each in said.items() if name not in ("at", "newest_age")}
    if isinstance(said, float):
        return f"{said:.4g}"
    return [_timeless(each) for each in said] if isinstance(said, list) else said


@pytest.mark.parametrize("role", ["reader", "transfer", "curator"])
async def test_a_hidden_collection_is_answered_as_none(broker, hidden, role):
    eve, none = await somebody(broker, "eve", role), str(uuid4())
    for (method, path, of_hidden), (_, _, of_none) in zip(asks(hidden), asks(none), strict=True):
        first = told(await eve.request(method, f"{B}{path}", **of_hidden), hidden)
        second = told(await eve.request(method, f"{B}{path}", **of_none), none)
        assert first == second, (method, path, of_hidden)
        assert first[0] < 500
        assert "SECRETLAB" not in first[1]


async def test_who_may_see_a_collection_is_told_by_its_id(broker, admin, hidden):
    await grant(admin, "tape", "ann", "r")
    for client in (admin, await somebody(broker, "ann", "reader")):
        known = (await client.get(f"{B}/forecasts", params={"source": f"globus://{hidden}", "sink": hidden})).json()
        assert (known["source"], known["sink"], known["observations"]) == (
            SERVER.removesuffix(":2811"),
            "SECRETLAB",
            30,
        )
        rows = (await client.get(f"{B}/transfers", params={"source": f"globus://{hidden}"})).json()["transfers"]
        assert len(rows) == 30


@pytest.mark.parametrize("role", ["transfer", "curator"])
async def test_reports_by_the_id_of_a_hidden_collection_name_no_server(broker, admin, hidden, role):
    """Neither stored reports nor later answers name the server."""
    eve = await somebody(broker, "eve", role)
    source = f"globus://{hidden}"
    assert (await eve.post(f"{B}/transfers", json=observed("mine", source, hidden))).status_code == 200
    mine = (await eve.get(f"{B}/transfers", params={"subject": "eve"})).json()["transfers"]
    assert [(each["source"], each["sink"]) for each in mine] == [(source, hidden)]
    decided = {
        "id": "d1", "at": NOW - 60, "kind": "download", "thing": "x", "sink": "HOME", "strategy": "fastest",
        "bytes": 1000, "moved": 1000, "outcome": "ok", "seconds": 10.0, "fetch_seconds": 9.0,
        "sources": [
            {"source": source, "url": source, "bytes": 1000, "seconds": 6.0, "start_seconds": 1.0,
             "flow_seconds": 5.0, "outcome": "ok"}
        ],
    }  # fmt: skip
    answer = await eve.post(f"{B}/decisions", json=decided)
    assert answer.status_code == 200, answer.text
    shown = (await eve.get(f"{B}/reports/decisions")).text + (await eve.get(f"{B}/reports/transfer?id=1")).text
    assert "hidden.example" not in shown
    await grant(admin, "tape", "eve", "r")
    assert (await eve.post(f"{B}/transfers", json=observed("later", source, hidden))).status_code == 200
    later = (await eve.get(f"{B}/transfers", params={"subject": "eve"})).json()["transfers"][0]
    assert (later["source"], later["sink"]) == (FILED, "SECRETLAB")


async def test_grantees_are_not_told_where_a_collection_is(world):
    """Neither documents nor errors show the folder at the server or the name of the credential."""
    (world.source / "file").write_bytes(b"x" * 1000)
    (world.source / "closed").write_bytes(b"x")
    (world.source / "inside").symlink_to("file")
    (world.source / "out").symlink_to(world.source.parent / "elsewhere")
    (world.source / "up").symlink_to("../sink")
    said = [(await world.ann.get(f"{B}/collections")).text]
    number = next(each["id"] for each in (await world.ann.get(f"{B}/collections")).json()["collections"])
    for path in ("", "/server_list", "/my_effective_pause_rule_list", "/role_list", "/access_list"):
        said.append((await world.ann.get(f"/v0.10/endpoint/{number}{path}")).text)
    said.append((await world.ann.get("/v0.10/endpoint_search?filter_fulltext=here")).text)
    numbers = {each["name"]: each["id"] for each in (await world.ann.get(f"{B}/collections")).json()["collections"]}
    for name in numbers.values():
        for path in ("/", "/none/", "/file", "/file/x", "/out", "/up", "/inside"):
            for what in ("ls", "stat"):
                answer = await world.ann.get(f"/v0.10/operation/endpoint/{name}/{what}", params={"path": path})
                said.append(answer.text)
        for path in ("/file", "/none/new", "/file/x"):
            body = {"DATA_TYPE": "mkdir", "path": path}
            said.append((await world.ann.post(f"/v0.10/operation/endpoint/{name}/mkdir", json=body)).text)
        body = {"DATA_TYPE": "rename", "old_path": "/none", "new_path": "/file/x"}
        said.append((await world.ann.post(f"/v0.10/operation/endpoint/{name}/rename", json=body)).text)
    tasks = []
    for paths, more in (
        (("/file",), {}),
        (("/none",), {}),
        (("/file/x",), {}),
        (("/out", "/up", "/inside"), {"options": {"recursive_symlinks": "keep"}}),
        (("/file", "/none"), {"options": {"skip_source_errors": True}}),
    ):
        sent = await world.ann.post(f"{B}/tasks", json=world.submission(*paths, **more))
        if sent.status_code == 202:
            tasks.append(sent.json()["id"])
        said.append(sent.text)
    for task in tasks:
        said.append(str(await world.over(task)))
        for path in ("", "/events", "/files", "/files?state=failed", "/files?state=skipped", "/progress"):
            said.append((await world.ann.get(f"{B}/tasks/{task}{path}")).text)
        for path in ("", "/event_list", "/successful_transfers", "/skipped_errors", "/pause_info"):
            said.append((await world.ann.get(f"/v0.10/task/{task}{path}")).text)
        said.append((await world.ann.get(f"{B}/reports/task?id={task}")).text)
    said.append((await world.ann.get(f"{B}/reports/tasks")).text)
    said.append((await world.ann.get(f"{B}/reports/decisions")).text)
    said += [(await world.ann.get(f"{B}/reports/transfer?id={i}")).text for i in range(1, 5)]
    wrong = [each for each in said if str(world.source.parent) in each or "robot" in each]
    assert not wrong, "\n".join(wrong)
