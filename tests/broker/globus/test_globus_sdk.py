"""The broker's answers beside the SDK's recordings of Globus: all fields, in the same types.

The recordings come with the SDK (`globus_sdk.testing`). Each request is repeated here with our own ids; a
failure proves that the broker refuses in the right form.
"""

import json
import time
from uuid import UUID, uuid4

import pytest

from broker.models.tasks import Details
from broker.models.work import PlannedWork, WorkResult
from broker.storage.work import WorkStore
from broker.storage.workers import WorkerStore
from tests.support.globus import Globus

DUMP = """
import importlib, pkgutil
from types import ModuleType
sys.modules["responses"] = ModuleType("responses")  # which plays recordings; here they are only read
sys.modules["responses"].RequestsMock = object
from globus_sdk.testing.data import transfer
found = {}
for module in pkgutil.iter_modules(transfer.__path__):
    responses = getattr(importlib.import_module(f"{transfer.__name__}.{module.name}"), "RESPONSES", None)
    for case in responses.cases() if responses else ():
        each = responses.lookup(case)
        if each.path.startswith("/v0.10/"):
            found[f"{module.name} {case}"] = {"method": each.method, "status": each.status, "json": each.json}
print(json.dumps(found))
"""
CALLS = {
    "cancel_task default": ("/task/{active}/cancel", None),
    "endpoint_manager_task_list default": ("/endpoint_manager/task_list?filter_task_id={task}", None),
    "endpoint_manager_task_successful_transfers default": (
        "/endpoint_manager/task/{task}/successful_transfers",
        None,
    ),
    "get_endpoint default": ("/endpoint/{near}", None),
    "get_submission_id default": ("/submission_id", None),
    "operation_mkdir default": ("/operation/endpoint/{disk}/mkdir", {"path": "/new"}),
    "operation_rename default": ("/operation/endpoint/{disk}/rename", {"old_path": "/a", "new_path": "/b"}),
    "operation_stat default": ("/operation/endpoint/{disk}/stat?path=/a", None),
    "operation_stat not_found": ("/operation/endpoint/{disk}/stat?path=/none", None),
    "operation_stat permission_denied": ("/operation/endpoint/{catalogue}/mkdir", {"path": "/x"}),
    "submit_delete default": ("/delete", {"endpoint": "{near}", "DATA": [{"path": "/x"}]}),
    "submit_transfer default": ("/transfer", {"DATA": [{"source_path": "/x", "destination_path": "/y"}]}),
    "submit_transfer failure": ("/transfer", {"DATA": []}),
    "task_list default": ("/task_list?filter=task_id:{task}", None),
    "update_endpoint default": ("/endpoint/{near}", {"description": "new"}),
}
LEFT_OUT = ("set_subscription_id", "set_subscription_admin_verified")
"""Recordings about subscriptions, which exist only between Globus and its customers."""
NULLABLE = {"expire_time", "last_key", "next_marker", "organization", "subject", "destination_local_user"} | {
    f"{end}_local_user_status" for end in ("source", "destination")
}
"""Fields that we never send, or not here."""
METHODS = {"operation_stat permission_denied": "POST"}
"""Requests of recordings that the catalogue always refuses, because it expects another method."""


@pytest.fixture(scope="module")
def recordings(tmp_path_factory) -> dict:
    return Globus(tmp_path_factory.mktemp("home"), "http://127.0.0.1:9").sdk(DUMP)


@pytest.fixture
async def ids(stocked, broker, tmp_path):
    """Collections, an active task, and one that has transferred a file."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "a").touch()
    bodies = {
        "near": {"endpoint": "cern-1"},
        "disk": {"kind": "local", "base": str(tmp_path / "disk")},
        "catalogue": {"kind": "catalogue"},
    }
    for name, body in bodies.items():
        assert (await stocked.put(f"/broker/v1/collections/{name}", json={"name": name, **body})).status_code == 200
    known = {each["name"]: each["id"] for each in (await stocked.get("/broker/v1/collections")).json()["collections"]}
    for name in ("active", "task"):
        known[name] = (await stocked.post("/v0.10/transfer", json=_transfer(known))).json()["task_id"]
    async with broker.factory.database.write() as connection:
        works = WorkStore(connection)
        await WorkerStore(connection).enrol("tests", "", "here")
        await works.add(known["task"], [PlannedWork("copy", "/x", "/y", 4, Details(), 0)])
        leased = await works.lease(known["task"], "tests", ("copy",), True, 1, 1, time.time() + 1e6)
        await works.complete("tests", [WorkResult(each, "succeeded", "md5:00") for each in leased], time.time())
    assert (await stocked.post(f"/v0.10/task/{known['task']}/cancel")).json()["code"] == "Canceled"
    return known


def _transfer(known: dict) -> dict:
    ends = {"source_endpoint": known["near"], "destination_endpoint": known["near"]}
    return {"submission_id": str(uuid4()), **ends, "DATA": [{"source_path": "/x", "destination_path": "/y"}]}


def test_every_recording_is_asked_for(recordings):
    assert {name for name in recordings if not name.startswith(LEFT_OUT)} == set(CALLS)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CALLS)
async def test_an_answer_has_all_that_globuss_has(recordings, stocked, ids, name):
    recorded, (path, body) = recordings[name], CALLS[name]
    if body is not None and path in ("/transfer", "/delete"):
        body = {**_transfer(ids), **body}
    text = json.dumps(body)
    for key, value in ids.items():
        text = text.replace(f"{{{key}}}", value)
    method = METHODS.get(name, recorded["method"])
    content = None if body is None else text
    json_type = {"Content-Type": "application/json"}
    answer = await stocked.request(method, "/v0.10" + path.format(**ids), content=content, headers=json_type)
    assert answer.status_code // 100 == recorded["status"] // 100, answer.text
    if answer.status_code >= 400:
        assert (answer.status_code, answer.json()["code"]) == (recorded["status"], recorded["json"]["code"])
    assert different(recorded["json"], answer.json()) == []


def different(recorded, ours, where="") -> list[str]:
    """Return the fields that are missing in our answer or have another type."""
    if isinstance(recorded, dict) and isinstance(ours, dict):
        missing = [f"{where}.{key} is missing" for key in recorded.keys() - ours.keys()]
        both = recorded.keys() & ours.keys()
        return missing + [
            text for key in sorted(both) for text in different(recorded[key], ours[key], f"{where}.{key}")
        ]
    if isinstance(recorded, list) and isinstance(ours, list):
        assert ours or not recorded, f"{where} is empty"
        return different(recorded[0], ours[0], f"{where}[0]") if recorded else []
    if recorded is None or (ours is None and where.rpartition(".")[2] in NULLABLE):
        return []
    if kind(recorded) != kind(ours):
        return [f"{where} is {ours!r}, not like {recorded!r}"]
    return []


def kind(value) -> str:
    """Return the JSON type; ids and times count as types of their own."""
    if isinstance(value, str):
        try:
            return f"uuid {bool(UUID(value))}"
        except ValueError:
            return "time" if value[4:5] == value[7:8] == "-" and value[:4].isdecimal() else "text"
    return type(value).__name__
