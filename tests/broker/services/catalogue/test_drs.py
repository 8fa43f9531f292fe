"""GA4GH's Data Repository Service, as read by its clients; a common one fetches a file with it."""

import hashlib
import re
import subprocess
import sys
from urllib.parse import quote, urlsplit

import pytest

from tests.support.broker import BrokerProcess
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE

A = "run1:2024/a.root"
GALAXY = """
import ipaddress, sys
from galaxy.files.sources.util import fetch_drs_to_file
token, *fetched = sys.argv[1:]
for uri, target in zip(fetched[::2], fetched[1::2], strict=True):
    fetch_drs_to_file(
        uri, target, None, force_http=True, headers={"Authorization": f"Bearer {token}"},
        fetch_url_allowlist=[ipaddress.ip_network("127.0.0.0/8")],
    )
"""


async def test_an_object_has_what_the_standard_asks_for(stocked):
    for name in (A, quote(A, safe="")):
        found = (await stocked.get(f"/ga4gh/drs/v1/objects/{name}")).json()
        assert (found["id"], found["name"], found["size"]) == (A, "a.root", 1_000_000_000)
        assert found["checksums"] == [{"type": "adler32", "checksum": "01020304"}]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", found["created_time"])
        assert found["self_uri"] == f"drs://broker.example/{quote(A, safe='')}"
        assert {method["type"] for method in found["access_methods"]} == {"ftp", "gsiftp", "https"}
    method = found["access_methods"][0]
    access = await stocked.get(f"/ga4gh/drs/v1/objects/{A}/access/{method['access_id']}")
    assert access.json() == method["access_url"]


async def test_errors_have_the_standards_shape(broker, stocked):
    missing = await stocked.get("/ga4gh/drs/v1/objects/none")
    assert (missing.status_code, set(missing.json())) == (404, {"msg", "status_code"})
    missing = await stocked.get(f"/ga4gh/drs/v1/objects/{A}/access/none")
    assert (missing.status_code, missing.json()["status_code"]) == (404, 404)
    await stocked.put("/broker/v1/datasets/unsized", json={"name": "unsized"})
    assert (await stocked.get("/ga4gh/drs/v1/objects/unsized")).status_code == 404
    nobody = await broker.with_headers({}).get(f"/ga4gh/drs/v1/objects/{A}")
    assert nobody.status_code == 401


async def test_everybody_may_know_what_the_service_is(broker):
    info = (await broker.with_headers({}).get("/ga4gh/drs/v1/service-info")).json()
    assert info["type"] == {"group": "org.ga4gh", "artifact": "drs", "version": "1.5.0"}


@pytest.fixture
def serving(empty_database, tmp_path):
    """A broker with a file that has a live and a dead replica; the file's content."""
    content = bytes(range(256)) * 4096
    with Nginx(tmp_path / "root", tmp_path / "run") as nginx, BrokerProcess(empty_database, tmp_path) as broker:
        (nginx.root / "2024").mkdir()
        (nginx.root / "2024" / "a.root").write_bytes(content)
        client = broker.client()
        for name, port, priority in (("gone", 9, 1), ("here", nginx.port, 2)):
            place = {"site": "X", "scheme": "http", "host": "127.0.0.1", "port": port, "read_priority": priority}
            client.put("/broker/v1/sites/X", json={"name": "X"}).raise_for_status()
            client.put(f"/broker/v1/endpoints/{name}", json={"name": name, **place}).raise_for_status()
            digest = {"sha256": hashlib.sha256(content).hexdigest()}
            known = {"name": A, "size": len(content), "checksums": digest, "replicas": [{"endpoint": name}]}
            client.post("/broker/v1/import", json=known).raise_for_status()
        yield broker, content


def test_galaxy_fetches_a_file_by_its_name(serving, tmp_path):
    broker, content = serving
    # In lower case it would be a compact identifier to Galaxy, which asks identifiers.org for it.
    host = f"LOCALHOST:{urlsplit(broker.url).port}"
    program = [sys.executable, "-W", "ignore", "-c", GALAXY]
    plain, quoted = tmp_path / "plain", tmp_path / "quoted"
    both = [f"drs://{host}/{A}", plain, f"drs://{host}/{quote(A, safe='')}", quoted]
    subprocess.run([*program, broker.token, *both], check=True, timeout=PATIENCE)
    assert plain.read_bytes() == quoted.read_bytes() == content
    refused = subprocess.run([*program, "nobody", *both], capture_output=True, text=True, timeout=PATIENCE)
    assert (refused.returncode, "401 Client Error" in refused.stderr) == (1, True)
