"""Pages and data of reports, over HTTP."""

import csv
import io

import pytest

from broker.reports.registry import REPORTS
from tests.broker.conftest import HERE

NAMES = sorted(REPORTS)


async def test_the_same_report_is_a_page_and_data(sitting, admin, root):
    await sitting.login(root)
    whole = (await sitting.client.get("/reports/audit.json")).json()
    assert whole == {**(await admin.get("/broker/v1/reports/audit")).json(), "at": whole["at"]}
    (table,) = whole["tables"]
    rows = list(csv.reader(io.StringIO((await admin.get("/broker/v1/reports/audit/changes.csv")).text)))
    assert rows[0] == [column["name"] for column in table["columns"]]
    assert [row[2:] for row in rows[1:]] == [row[2:] for row in table["rows"]]
    assert (await sitting.client.get("/reports/audit/changes.csv")).text.splitlines()[0] == ",".join(rows[0])


@pytest.mark.parametrize("name", [name for name in NAMES if REPORTS[name].admin])
async def test_reports_for_admins_are_refused_to_others(broker, sitting, ann, name):
    page = await sitting.login(ann, f"/reports/{name}")
    assert page.status == 403
    assert (await sitting.client.get(f"/reports/{name}.json")).status_code == 403
    transfer = await broker.client("transfer")
    assert (await transfer.get(f"/broker/v1/reports/{name}")).status_code == 403
    assert (await transfer.get(f"/broker/v1/reports/{name}/x.csv")).status_code == 403


async def test_invalid_parameters_are_named_on_a_page(sitting, root):
    await sitting.login(root)
    for query, named in (("before=x", "before"), ("nonsense=1", "nonsense"), ("subject=a%00b", "subject")):
        page = await sitting.open(f"/reports/audit?{query}")
        assert (page.status, page.headers["Content-Type"]) == (422, "text/html; charset=utf-8")
        assert named in page.text


@pytest.mark.parametrize("path", ["nothing", "audit/nothing.csv", "static/nothing.js", "audit/changes.exe"])
async def test_an_unknown_path_shows_a_page_with_status_404(sitting, root, path):
    await sitting.login(root)
    page = await sitting.open(f"/reports/{path}")
    assert (page.status, page.headers["Content-Type"]) == (404, "text/html; charset=utf-8")


async def test_empty_fields_of_a_form_are_left_out_of_the_address(sitting, root):
    await sitting.login(root)
    assert (await sitting.open("/reports/audit?before=")).url == f"{HERE}/reports/audit"


async def test_programs_need_a_token_and_a_cookie_is_none(sitting, root):
    await sitting.login(root)
    assert (await sitting.client.get("/broker/v1/reports/audit")).status_code == 401


async def test_files_of_pages_are_kept_for_ever_and_pages_never(sitting, root):
    page = await sitting.login(root)
    assert page.headers["Cache-Control"] == "no-store"
    script = page.text.partition('<script src="')[2].partition('"')[0]
    answer = await sitting.client.get(script)
    assert "immutable" in answer.headers["Cache-Control"]
    assert answer.headers["Content-Type"].startswith("text/javascript")
    policy = page.headers["Content-Security-Policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"} <= set(policy)
    assert "unsafe" not in page.headers["Content-Security-Policy"]


async def test_people_choose_sizes_and_days_by_their_names(sitting, root):
    await sitting.login(root)
    page = await sitting.open("/reports/forecasters?since=2026-11-01&until=1795305600&size_class=2&days=7")
    assert page.status == 200
    assert '<option value="2" selected>4 MB – 16 MB</option>' in page.text
    assert '<option value="">any</option>' in page.text
    assert 'name="since" value="2026-11-01"' in page.text
    assert 'name="until" value="2026-11-22"' in page.text
    assert (await sitting.open("/reports/forecasters?since=2026-13-01")).status == 422
