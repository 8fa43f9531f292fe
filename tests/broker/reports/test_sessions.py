"""Login and logout at the reports: no other way in, and no redirect to another site."""

import time

import httpx
import pytest

from broker.config.settings import Settings
from broker.models.callers import NewToken
from tests.broker.conftest import HERE, running
from tests.broker.oauth.conftest import PKCE
from tests.broker.reports.conftest import Sitting
from tests.support.browser import Page


async def test_a_login_leads_back_to_the_page_that_was_asked_for(sitting, root):
    page = await sitting.login(root, "/reports/audit?before=1000")
    assert (page.status, page.url) == (200, f"{HERE}/reports/audit?before=1000")
    assert "Audit log" in page.text
    assert "root" in page.text
    assert any("code_challenge_method=S256" in url for url in sitting.seen)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example/",
        "//evil.example",
        "/reports\\evil",
        "/v2/api/clients",
        "/reports/../x/../y",
        "javascript:alert(1)",
        "/reportsevil",
        "/reports/audit#x",
        "/reports/audit\r\nX: y",
        "/reports/audit?" + "x" * 5000,
        "@evil.example",
        "",
    ],
)
async def test_a_login_never_redirects_to_another_site(sitting, root, wanted):
    page = Page(await sitting.client.get("/reports/login", params={"to": wanted}))
    page = await sitting.send(page, token=root)
    assert page.status == 200
    assert page.url.startswith(f"{HERE}/reports/")
    assert all(url.startswith(f"{HERE}/") for url in sitting.seen)


async def test_the_cookie_is_kept_from_scripts_and_other_sites_and_only_its_hash_is_stored(sitting, root):
    await sitting.login(root)
    cookie = next(each for each in sitting.client.cookies.jar if each.name == "coget-session")
    assert cookie.has_nonstandard_attr("HttpOnly")
    assert cookie.get_nonstandard_attr("SameSite") == "lax"
    assert 43_000 < (cookie.expires or 0) - time.time() <= 43_200
    nobody = sitting.broker.with_headers({"Authorization": f"Bearer {cookie.value}"})
    assert (await nobody.get("/broker/v1/whoami")).status_code == 401


async def test_behind_tls_the_cookie_is_bound_to_the_host(database):
    async with running(Settings(database, public_url="https://broker.example")) as broker:
        token = (await broker.factory.tokens.issue("tests", NewToken(subject="root", role="admin"))).token
        sitting = Sitting(broker)
        sitting.client.base_url = httpx.URL("https://broker.example")
        await sitting.login(token)
        cookie = next(each for each in sitting.client.cookies.jar if each.name == "__Host-coget-session")
        assert cookie.secure
        assert cookie.path == "/"


async def test_logging_out_ends_the_session_and_the_login(sitting, root):
    page = await sitting.login(root)
    session = sitting.cookie("coget-session")
    left = Page(await sitting.client.post("/reports/logout", data=page.fields))
    assert "You have logged out" in left.text
    assert "token" in (await sitting.open("/reports/audit")).fields
    sitting.client.cookies.set("coget-session", session, domain="broker.example")
    assert "token" in (await sitting.open("/reports/audit")).fields


async def test_switching_the_user_ends_the_session(sitting, root):
    await sitting.login(root)
    other = Page(await sitting.client.get("/reports/login"))
    await sitting.send(other, "leave")
    assert "token" in (await sitting.open("/reports/audit")).fields


async def test_a_session_ends_with_the_token_of_its_login(sitting, admin, root):
    await sitting.login(root)
    tokens = (await admin.get("/broker/v1/tokens")).json()["tokens"]
    (number,) = [each["id"] for each in tokens if each["subject"] == "root" and each["kind"] == "token"]
    assert (await admin.delete(f"/broker/v1/tokens/{number}")).status_code == 204
    assert "token" in (await sitting.open("/reports/audit")).fields


async def test_a_session_ends_with_the_login(sitting, root, monkeypatch):
    await sitting.login(root)
    later = time.time() + 43_201
    monkeypatch.setattr("broker.services.auth.logins.time.time", lambda: later)
    assert "token" in (await sitting.open("/reports/audit")).fields


async def test_a_form_of_another_site_does_not_log_out(sitting, root):
    await sitting.login(root)
    for forged in ({}, {"form": ""}, {"form": "x"}, {"form": "\u00e4"}):
        assert (await sitting.client.post("/reports/logout", data=forged)).status_code in (400, 403)
    other = Sitting(sitting.broker)
    page = await other.login(root)
    assert (await sitting.client.post("/reports/logout", data=page.fields)).status_code == 403
    assert (await sitting.open("/reports/audit")).url == f"{HERE}/reports/audit"


async def test_a_login_works_only_in_the_browser_that_began_it(sitting, root):
    page = await sitting.open("/reports/audit")
    sitting.client.follow_redirects = False
    answer = await sitting.client.post(page.action, data={**page.fields, "token": root, "decision": "allow"})
    callback = answer.headers["Location"]
    assert "/reports/login/done?" in callback
    victim = Sitting(sitting.broker)
    assert (await victim.open(callback)).status == 401
    await victim.open("/reports/audit")
    assert (await victim.open(callback)).status == 401
    assert not [each for each in victim.client.cookies.jar if each.name == "coget-session"]
    for changed in (callback.replace("audit", "other"), callback.replace("iss=http", "iss=https")):
        assert (await sitting.client.get(changed)).status_code == 401
    assert (await sitting.client.get(callback)).headers["Location"] == "/reports/audit"
    assert (await sitting.client.get(callback)).status_code == 401
    assert (await sitting.client.get("/reports/audit")).status_code == 303  # the code was shown twice: all of it ended


async def test_no_other_program_can_use_our_own_client(broker, sitting):
    page = await sitting.open("/reports/audit")
    own = httpx.URL(page.url).params["client_id"]
    asked = {"client_id": own, "response_type": "code", **PKCE}
    for place in ("http://localhost:1234", f"{HERE}/v2/web/auth-code", f"{HERE}/reports/login/done/x"):
        answer = await sitting.client.get("/v2/oauth2/authorize", params={**asked, "redirect_uri": place})
        assert answer.status_code == 400
    client, _ = await broker.factory.clients.make("tests", "native", None)
    asked = {**asked, "client_id": client.id, "redirect_uri": f"{HERE}/reports/login/done"}
    assert (await sitting.client.get("/v2/oauth2/authorize", params=asked)).status_code == 400


async def test_denying_the_login_gives_no_session(sitting):
    page = await sitting.open("/reports/audit")
    assert (await sitting.send(page, "deny")).status == 403


async def test_reports_require_a_login_even_with_anonymous_reading(database):
    async with running(Settings(database, anonymous=True)) as broker:
        assert "token" in (await Sitting(broker).open("/reports")).fields
