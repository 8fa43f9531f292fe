"""Buttons of reports: who has them, what they do, and protection against forms of other sites."""

import pytest

from broker.config.settings import Probing, Settings
from broker.models.callers import NewToken
from tests.broker.conftest import HERE, running
from tests.broker.reports.conftest import Sitting

ENDPOINTS = {"a": "ftp://a.example", "b": "ftp://b.example"}


@pytest.fixture
async def seated(database):
    """A browser session of an admin, at a broker that probes links between two endpoints."""
    async with running(Settings(database, probing=Probing(a_day=0))) as broker:
        admin = await broker.client("admin")
        for name in ENDPOINTS:
            assert (await admin.put(f"/broker/v1/sites/{name}", json={"name": name})).status_code == 200
            endpoint = {"name": name, "site": name, "scheme": "ftp", "host": f"{name}.example", "write_priority": 1}
            assert (await admin.put(f"/broker/v1/endpoints/{name}", json=endpoint)).status_code == 200
        yield await _at(broker, "admin")


async def _at(broker, role: str) -> Sitting:
    sitting = Sitting(broker)
    token = (await broker.factory.tokens.issue("tests", NewToken(subject=f"a-{role}", role=role))).token
    await sitting.login(token, "/reports/drift")
    return sitting


def _fields(text: str) -> dict[str, str]:
    """Return the fields of the first button's form."""
    form = text.partition('action="probes"')[2].partition("</form>")[0]
    return {field.partition('"')[0]: field.split('"')[2] for field in form.split(' name="')[1:]}


async def test_an_admin_can_request_the_measurement_of_a_link(seated):
    page = await seated.open("/reports/drift")
    fields = _fields(page.text)
    assert (fields["source"], fields["sink"], fields["back"]) == ("a", "b", "/reports/drift")
    answer = await seated.client.post("/reports/probes", data=fields)
    assert str(answer.url) == f"{HERE}/reports/drift"
    admin = await seated.broker.client("admin")
    (change,) = (await admin.get("/broker/v1/reports/audit", params={"action": "want probe"})).json()["tables"][0][
        "rows"
    ]
    assert change[2:] == ["a-admin", "want probe", "a to b"]


async def test_forged_forms_and_foreign_targets_are_refused(seated):
    fields = _fields((await seated.open("/reports/drift")).text)
    for changed in ({"form": ""}, {"form": "0" * 64}):
        assert (await seated.client.post("/reports/probes", data={**fields, **changed})).status_code == 403
    answer = await seated.client.post("/reports/probes", data={**fields, "back": "https://evil.example/"})
    assert str(answer.url).startswith(f"{HERE}/reports/")
    assert (await seated.client.post("/reports/probes", data={**fields, "source": "x"})).status_code == 404
    nobody = Sitting(seated.broker)
    page = await nobody.client.post("/reports/probes", data=fields)
    assert "to=%2Freports" in "".join(nobody.seen)
    assert 'name="token"' in page.text


async def test_others_have_no_button_and_may_not(seated):
    fields = _fields((await seated.open("/reports/drift")).text)
    reader = await _at(seated.broker, "transfer")
    page = await reader.open("/reports/drift")
    assert 'action="probes"' not in page.text
    own = page.text.partition('name="form" value="')[2].partition('"')[0]
    assert (await reader.client.post("/reports/probes", data={**fields, "form": own})).status_code == 403
