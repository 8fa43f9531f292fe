"""GA4GH's Data Repository Service, as its clients read it."""

import re
from urllib.parse import quote

A = "run1:2024/a.root"


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
