"""Numbers in bodies that are not JSON or out of range: refused without an internal error."""

import json

import pytest

NUMBERS = ["Infinity", "-Infinity", "NaN", "1e999", "-1e999", "9" * 4301, "-" + "9" * 4301, "-1", str(2**63), "1" * 400]
TRANSFER = {"id": "x", "source": "ftp://h", "sink": "S", "started": 1.0, "ended": 2.0, "bytes": 5}
MORE = {"busy_seconds": 1.0, "setup_seconds": 1.0, "ranges": 1, "streams": 1, "concurrency": 0}
BODIES = [
    ("POST", "/broker/v1/transfers", [{**TRANSFER, **MORE}], [*MORE, "started", "ended", "bytes"]),
    ("PUT", "/broker/v1/datasets/x:y", {"name": "x:y", "size": 5}, ["size"]),
    ("POST", "/broker/v1/forecasts", {"forecasts": [{"source": "ftp://h", "sink": "", "size": 5}]}, ["size"]),
    ("POST", "/broker/v1/tokens", {"subject": "x", "days": 5}, ["days"]),
    ("POST", "/broker/v1/import", {"name": "x:y", "size": 5}, ["size"]),
    ("PUT", "/broker/v1/sites/CERN", {"name": "CERN", "latitude": 1.0}, ["latitude"]),
]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(("method", "path", "body", "names"), BODIES, ids=[path for _, path, _, _ in BODIES])
async def test_numbers_that_are_none(stocked, method, path, body, names, number):
    for name in names:
        if name == "latitude" and number == "-1":
            continue
        text = json.dumps(body)
        (value,) = [each[name] for each in (body if isinstance(body, list) else body.get("forecasts", [body]))]
        changed = text.replace(f'"{name}": {json.dumps(value)}', f'"{name}": {number}')
        assert changed != text
        headers = {"Content-Type": "application/json"}
        answer = await stocked.request(method, path, content=changed, headers=headers)
        if path.endswith("/import"):
            assert answer.status_code == 200
            assert json.loads(answer.text.splitlines()[-1])["kept"] == 0
        else:
            assert answer.status_code in (400, 422), f"{name} = {number}: {answer.status_code} {answer.text[:200]}"
            assert answer.json()["error"]["code"] in ("invalid", "malformed")


@pytest.mark.parametrize("body", ["[" * 100_000, '{"a":' * 50_000, "9" * 5000, "Infinity", "[NaN]"])
async def test_documents_that_are_none(stocked, body):
    for path in ("/broker/v1/transfers", "/broker/v1/forecasts", "/broker/v1/plans", "/broker/v1/replicas/resolve"):
        answer = await stocked.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 422), f"{path}: {answer.status_code} {answer.text[:200]}"
