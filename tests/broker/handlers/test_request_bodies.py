"""Bodies of requests: nothing twice, no number that is true, no name with blanks around it; and ids of objects.

Numbers that JSON does not have, or that nothing can count to, are refused, and never a defect.
"""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from broker.config.settings import Settings
from tests.broker.conftest import Broker, running
from tests.support.broker import broker_in
from tests.support.waiting import PATIENCE, until, wait_until

JSON = {"Content-Type": "application/json"}
TWICE = [
    ("PUT", "/broker/v1/sites/X", b'{"name": "X", "name": "X"}'),
    ("PUT", "/broker/v1/sites/X", b'{"name": "X", "n\\u0061me": "Y"}'),
    ("POST", "/broker/v1/tokens", b'{"subject": "x", "role": "reader", "role": "admin"}'),
    ("POST", "/broker/v1/transfers", b'[{"source": "ftp://a", "source": "ftp://b"}]'),
    ("POST", "/v0.10/transfer", b'{"DATA": [{"source_path": "/a", "source_path": "/b"}]}'),
    ("POST", "/v2/api/clients", b'{"client": {"name": "a", "name": "b"}}'),
]
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


@pytest.mark.parametrize(("method", "path", "body"), TWICE)
async def test_a_body_with_a_repeated_name_is_refused(admin, method, path, body):
    answer = await admin.request(method, path, content=body, headers=JSON)
    assert answer.status_code == (400 if path.startswith("/v0.10") else 422), answer.text
    assert "twice" in answer.text


async def test_a_line_of_an_import_with_a_repeated_name_is_refused(stocked):
    lines = b'{"name": "new:a", "size": 1, "size": 2}\n{"name": "new:b", "size": NaN}\n{"name": "new:c", "size": 1}\n'
    answer = [json.loads(line) for line in (await stocked.post("/broker/v1/import", content=lines)).text.splitlines()]
    assert [each.get("line") for each in answer[:-1]] == [1, 2], answer
    assert "twice" in str(answer[0])
    known = (await stocked.get("/broker/v1/datasets?prefix=new:")).json()["datasets"]
    assert [each["name"] for each in known] == ["new:c"]


@pytest.mark.parametrize("body", [b"[" * 16_000, b'{"client":' * 1_600])
async def test_deep_nesting_is_refused_and_is_no_defect(admin, body):
    for method, path in (("POST", "/v2/api/clients"), ("PUT", "/broker/v1/sites/X"), ("POST", "/v0.10/transfer")):
        answer = await admin.request(method, path, content=body, headers=JSON)
        assert answer.status_code in (400, 422), answer.text


@pytest.mark.parametrize("word", [b"NaN", b"Infinity", b"-Infinity"])
async def test_numbers_that_json_does_not_have_are_refused(admin, word):
    answer = await admin.put("/broker/v1/sites/X", content=b'{"name": "X", "latitude": %s}' % word, headers=JSON)
    assert answer.status_code in (400, 422)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/broker/v1/sites/X", {"name": "X", "latitude": True, "longitude": 1}),
        ("/broker/v1/datasets/x", {"name": "x", "size": True}),
        ("/broker/v1/collections/x", {"name": "x", "kind": "catalogue", "concurrency": True}),
        ("/broker/v1/collections/x", {"name": "x", "kind": "catalogue", "rate": True}),
    ],
)
async def test_true_is_no_number(admin, path, body):
    answer = await admin.put(path, json=body)
    assert answer.status_code == 422
    assert "a number is expected" in answer.text


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig"])
async def test_bodies_are_utf_8(admin, encoding):
    content = '{"name": "X"}'.encode(encoding)
    assert (await admin.put("/broker/v1/sites/X", content=content, headers=JSON)).status_code in (400, 422)
    assert (await admin.get("/broker/v1/sites/X")).status_code == 404


async def _catalogue(admin) -> str:
    assert (await admin.put("/broker/v1/collections/all", json={"name": "all", "kind": "catalogue"})).status_code == 200
    return str((await admin.get("/broker/v1/collections/all")).json()["id"])


@pytest.mark.parametrize("wrong", [{"sync_level": True}, {"verify_checksum": 1}, {"encrypt_data": 0}])
async def test_globus_documents_are_checked_but_may_have_unknown_fields(admin, wrong):
    number = await _catalogue(admin)
    usual = {"submission_id": number, "source_endpoint": number, "destination_endpoint": number, "unheard": [1]}
    document = {**usual, "DATA": [{"source_path": "/a", "destination_path": "/b", "unheard": True}]}
    answer = await admin.post("/v0.10/transfer", json={**document, **wrong})
    assert (answer.status_code, "expected" in answer.json()["message"]) == (400, True)
    answer = await admin.post("/v0.10/transfer", json=document)
    assert "expected" not in answer.json()["message"]


@pytest.mark.parametrize("name", ["x ", " x", "x\u00a0", "\tx", "x\n"])
async def test_names_have_no_blanks_around_them(admin, broker: Broker, name):
    body = {"name": name, "kind": "catalogue"}
    answer = await admin.put(f"/broker/v1/collections/{name.strip()}", json=body)
    assert answer.status_code == 422
    answer = await broker.with_headers({}).post("/v2/api/clients", json={"client": {"name": name}})
    assert answer.status_code == 422
    number = await _catalogue(admin)
    made = await admin.post("/v0.10/bookmark", json={"name": name, "endpoint_id": number, "path": "/"})
    assert made.status_code == 400 or made.json()["name"] == "x"


async def test_an_id_with_access_in_it_is_found(stocked):
    for name in ("run1:a/access/cern-1", "run1:a/access/b/access/c", "run1:a"):
        dataset = {"name": name, "size": 1, "checksums": {"adler32": "01020304"}}
        assert (await stocked.put(f"/broker/v1/datasets/{name}", json=dataset)).status_code == 200
        assert (
            await stocked.put("/broker/v1/replicas", json={"dataset": name, "endpoint": "cern-1"})
        ).status_code == 200
    objects = "/ga4gh/drs/v1/objects/"
    for name in ("run1:a%2Faccess%2Fcern-1", "run1:a/access/b/access/c", "run1:a%2Faccess%2Fb%2Faccess%2Fc"):
        answer = await stocked.get(f"{objects}{name}")
        assert (answer.status_code, answer.json().get("id")) == (200, name.replace("%2F", "/")), answer.text
    for name in ("run1:a", "run1:a%2Faccess%2Fcern-1", "run1:a/access/b/access/c"):
        answer = await stocked.get(f"{objects}{name}/access/cern-1")
        assert set(answer.json()) == {"url"}, answer.text
    assert (await stocked.get(f"{objects}run1:a/access/none")).status_code == 404
    assert json.loads((await stocked.get(f"{objects}run1:a")).text)["id"] == "run1:a"


async def test_a_site_is_changed_only_if_it_is_the_same(stocked):
    first = await stocked.get("/broker/v1/sites/CERN")
    assert first.json() == {"name": "CERN", "latitude": 46.2, "longitude": 6.05}
    moved, tag = {**first.json(), "latitude": 1.0}, first.headers["ETag"]
    found = [await stocked.put("/broker/v1/sites/CERN", json=moved, headers={"If-Match": tag}) for _ in range(2)]
    assert [each.status_code for each in found] == [200, 412]
    assert (await stocked.get("/broker/v1/sites/none")).status_code == 404


async def test_one_of_several_changes_of_the_same_state_is_made(database, broker, stocked):
    """The rule also holds for several processes on one database that have all read the catalogue before."""
    if broker.factory.database.sqlite:
        pytest.skip("one process serves SQLite")
    path = "/broker/v1/endpoints/cern-1"
    first = await stocked.get(path)
    async with running(Settings(database)) as second:
        other = await second.client("admin")
        for turn in range(5):
            tag = (await stocked.get(path)).headers["ETag"]
            await other.get(path)
            puts = [
                client.put(path, json={**first.json(), "max_streams": 1 + 8 * turn + i}, headers={"If-Match": tag})
                for i, client in enumerate([stocked, other] * 4)
            ]
            found = [each.status_code for each in await asyncio.gather(*puts)]
            assert sorted(found) == [200] + [412] * 7
            assert (await stocked.get(path)).json()["max_streams"] == 1 + 8 * turn + found.index(200)


@pytest.mark.parametrize(("length", "more"), [(100, {}), (100_000, {}), (100, {"If-Match": "*"})])
def test_an_aborted_upload_is_no_internal_error(tmp_path, length, more):
    with broker_in(tmp_path) as process:
        headers = {**JSON, "Authorization": f"Bearer {process.token}", "Content-Length": str(length)}
        connection = http.client.HTTPConnection(urlsplit(process.url).netloc, timeout=PATIENCE)
        connection.putrequest("PUT", "/broker/v1/sites/X")
        for name, value in {**headers, **more}.items():
            connection.putheader(name, value)
        connection.endheaders(b'{"name":')
        connection.close()
        answered = wait_until(lambda: [each for each in process.events() if each.get("method") == "PUT"])
    assert [each["status"] for each in answered] == [400]
    assert not [each for each in process.events() if each["level"] == "error"], process.log()


@pytest.mark.parametrize("length", [True, False], ids=["length", "chunked"])
async def test_a_slow_upload_delays_no_conditional_change_of_others(broker, stocked, length):
    """The ETag is compared when the whole body has arrived."""
    path, other = "/broker/v1/sites/CERN", await broker.client("curator")
    first = await stocked.get(path)
    body, changed = json.dumps(first.json()).encode(), {**first.json(), "latitude": 1.0}
    begun, rest = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield body[:5]
        begun.set()
        await rest.wait()
        yield body[5:]

    matching = {"If-Match": first.headers["ETag"]}
    headers = {**JSON, **matching, **({"Content-Length": str(len(body))} if length else {})}
    slow = asyncio.create_task(stocked.put(path, content=slowly(), headers=headers))
    await begun.wait()
    quick = asyncio.create_task(other.put(path, json=changed, headers=matching))
    try:
        await until(quick.done)
    finally:
        rest.set()
        answers = await asyncio.gather(quick, slow)
    assert [each.status_code for each in answers] == [200, 412]
    assert (await stocked.get(path)).json() == changed


@pytest.mark.parametrize("prefix", ["/broker/v1", "/v0.10/broker/v1"])
async def test_a_change_is_made_only_if_its_etag_matches(stocked, prefix):
    path = f"{prefix}/endpoints/cern-1"
    first = await stocked.get(path)
    body, tag = first.json(), first.headers["ETag"]
    for wrong in ('"other"', f"W/{tag}", tag.strip('"'), "", " ", ",", f'"{tag}"', '"*"'):
        assert (await stocked.put(path, json=body, headers={"If-Match": wrong})).status_code == 412
    both = [("If-Match", '"x"'), ("If-Match", f'W/{tag}, "y"')]
    assert (await stocked.put(path, json=body, headers=both)).status_code == 412
    changed = {**body, "read_priority": 7}
    assert (await stocked.put(path, json=changed, headers=[("If-Match", '"x"'), ("If-Match", tag)])).status_code == 200
    now = (await stocked.get(path)).headers["ETag"]
    assert (await stocked.put(path, json=changed, headers={"If-Match": f'"x", {now}'})).status_code == 200
    again = await stocked.put(path, json={**body, "read_priority": 8}, headers={"If-Match": tag})
    assert (again.status_code, again.json()["error"]["code"]) == (412, "outdated")
    assert (await stocked.get(path)).json()["read_priority"] == 7
    assert (await stocked.put(path, json=body, headers={"If-Match": "*"})).status_code == 200
    new = {**body, "name": "new"}
    assert (await stocked.put(f"{prefix}/endpoints/new", json=new, headers={"If-Match": "*"})).status_code == 412
    assert (await stocked.get(f"{prefix}/endpoints/new")).status_code == 404


@pytest.mark.sampled(3)
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
