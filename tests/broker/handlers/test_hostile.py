"""Inputs that broke similar services, and fuzzing from our own OpenAPI document."""

import asyncio
import json

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from schemathesis import checks

from tests.support.effort import effort
from tests.support.waiting import until

CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
HOSTILE = [
    "x' OR 1=1--",
    '"><x',
    "<img src=x onerror=alert(1)>",
    "a/../b",
    "../../etc/passwd",
    "n\n",
    "n\r\nX-Header: y",
    "a\x00b",
    "\ud800",
    "%00",
    "a\\b",
    "--help",
    ".hidden",
    "",
    " ",
    "a//b",
    "a/",
    "x" * 600,
    "ａ",
    "a:b:c",
    "\u202egnp.exe",
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", HOSTILE)
async def test_names_are_held_to_one_rule_wherever_they_come(stocked, name):
    document = json.dumps({"name": name})
    bodies = {
        "/broker/v1/replicas/resolve": {"names": [name]},
        "/broker/v1/plans": {"name": name},
        "/broker/v1/replicas/bad": {"dataset": name, "endpoint": "cern-1", "reason": "r"},
    }
    for path, body in bodies.items():
        answer = await stocked.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 422), f"{path}: {answer.status_code}"
        assert answer.json()["error"]["code"] in ("invalid", "malformed")
    answer = await stocked.post("/broker/v1/import", content=document)
    assert json.loads(answer.text.splitlines()[-1])["kept"] == 0
    for place in ("sites", "endpoints"):
        body = {"name": name, "site": "CERN", "scheme": "ftp", "host": "h"} if place == "endpoints" else {"name": name}
        answer = await stocked.put(f"/broker/v1/{place}/x", content=json.dumps(body))
        assert answer.status_code in (400, 422)


@pytest.mark.parametrize("key", ["x' OR 1=1--", "source;DROP TABLE pairs", "__class__", "id"])
async def test_filter_keys_reach_no_statement(stocked, key):
    for path in ("/broker/v1/transfers", "/broker/v1/datasets", "/broker/v1/replicas"):
        answer = await stocked.get(path, params={key: "x"})
        assert answer.status_code == 200
    assert (await stocked.get("/broker/v1/datasets/run1:2024/a.root")).status_code == 200


@pytest.mark.parametrize(
    "change",
    [
        {"scheme": "file"},
        {"scheme": "javascript"},
        {"host": ""},
        {"host": "a b"},
        {"host": "h/../x"},
        {"host": "user:pw@h"},
        {"port": 0},
        {"port": 70_000},
        {"prefix": "no/slash"},
        {"prefix": "/a/../b"},
        {"prefix": "/a\n"},
        {"read_priority": -1},
        {"latitude": 91},
        {"capacity": 0},
        {"site": "none-such"},
        {"name": "other"},
    ],
)
async def test_an_invalid_endpoint_is_refused(stocked, change):
    usual = {"name": "new", "site": "CERN", "scheme": "ftp", "host": "h"}
    answer = await stocked.put("/broker/v1/endpoints/new", json={**usual, **change})
    assert answer.status_code in (404, 422), answer.text
    assert answer.json()["error"]["message"]
    assert (await stocked.get("/broker/v1/endpoints/new")).status_code == 404


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b'{"names": 1e999}', b"[" * 100_000])
async def test_a_body_that_is_not_json_is_refused_with_a_remedy(stocked, body):
    answer = await stocked.post("/broker/v1/replicas/resolve", content=body)
    assert answer.status_code in (400, 422), answer.text
    assert set(answer.json()["error"]) == {"code", "message", "remedy"}


async def test_unknown_paths_and_methods_have_the_same_shape(admin):
    assert (await admin.get("/broker/v1/none")).json()["error"]["code"] == "not_found"
    assert (await admin.patch("/broker/v1/sites")).json()["error"]["code"] == "method_not_allowed"


async def test_the_answer_to_a_defect_shows_no_internals(broker, admin, monkeypatch):
    async def fail(*_: object) -> None:
        raise RuntimeError("secret words")

    monkeypatch.setattr(type(broker.factory.places), "map", fail)
    answer = await admin.get("/broker/v1/sites")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "defect")
    assert "secret" not in answer.text


@pytest.mark.long
async def test_the_fuzzer_finds_no_defect(broker, admin):
    """All operations of our document, with generated inputs: no 5xx, and answers as documented."""
    server = uvicorn.Server(uvicorn.Config(broker.app, port=0, lifespan="off", log_config=None))
    serving = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        schema = schemathesis.openapi.from_dict((await admin.get("/openapi.json")).json())
        operations = [result.ok() for result in schema.get_all_operations()]
        assert len(operations) > 20
        for operation in operations:
            token = (await broker.client("admin")).headers["Authorization"]  # the fuzzer revokes some
            await asyncio.to_thread(_fuzz, operation, f"http://127.0.0.1:{port}", token)
    finally:
        server.should_exit = True
        await serving


def _fuzz(operation: schemathesis.APIOperation, url: str, token: str) -> None:
    @settings(max_examples=effort(1, 50), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def ask(case: schemathesis.Case) -> None:
        case.call_and_validate(base_url=url, headers={"Authorization": token}, checks=CHECKS)

    ask()
