"""The login page: its forms and redirects, and the requests that it refuses."""

from urllib.parse import parse_qsl, urlsplit

import pytest

from broker.config.settings import Settings
from tests.broker.conftest import HERE, running
from tests.broker.oauth.conftest import ALL, BACK, CHALLENGE, Program
from tests.support.browser import Page

EVIL = [
    "https://evil.example/",
    "//evil.example",
    "http://localhost.evil.example:80",
    "http://localhost@evil.example",
    "http://evil.example\\@localhost",
    "http://evil.example#@localhost",
    "http://user:pw@localhost:1",
    "http://localhost:99999999",
    "http://localhost:x",
    "http://localhost\r\nX: y",
    "http://localhost:80;script-src",
    "http://localhost /",
    "http://[::1].evil.example",
    "javascript:alert(1)",
    "data:text/html,x",
    "http://127.1/",
    "http://0x7f000001/",
    "http://LOCALHOST.:80\t",
    "",
    f"{HERE}/v2/web/auth-code/../x",
    f"{HERE}.evil.example/v2/web/auth-code",
    "http://localhost:80/" + "x" * 3000,
]


@pytest.mark.parametrize("uri", EVIL)
async def test_no_browser_is_sent_elsewhere(program, uri):
    for answer in (
        await program.browser.get(program.url(redirect_uri=uri)),
        await program.browser.get(program.url(redirect_uri=uri, response_type="token")),
        await program.browser.post(program.url(redirect_uri=uri), data={"decision": "deny"}),
        await program.browser.get(program.url(redirect_uri=uri).replace("/v2/oauth2/authorize", "/v2/web/login")),
    ):
        assert answer.status_code == 400
        assert "Location" not in answer.headers
        assert answer.headers["Content-Type"].startswith("text/html")


@pytest.mark.parametrize(
    "uri", ["http://localhost:1", "http://127.0.0.1:65535/x/y?z=1", "http://localhost", f"{HERE}/v2/web/auth-code"]
)
async def test_codes_go_to_this_machine_or_are_shown(program, ann, uri):
    page = await program.page(redirect_uri=uri)
    answer = await program.sent(page, token=ann)
    assert answer.headers["Location"].startswith(uri.removeprefix(HERE))
    if not uri.startswith(HERE):
        assert uri.split("?")[0].rstrip("/xy") in page.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_type": None}, "unsupported_response_type"),
        ({"scope": "openid admin"}, "invalid_scope"),
        ({"scope": f"{ALL}[["}, "invalid_scope"),
        ({"scope": "]" + ALL}, "invalid_scope"),
        ({"scope": ALL + "[" * 1000 + "]" * 1000}, "invalid_scope"),
        ({"scope": "urn:globus:auth:scope:evil.example:all"}, "invalid_scope"),
        ({"scope": ALL + "\u00e4"}, "invalid_scope"),
        ({"code_challenge": CHALLENGE, "code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": CHALLENGE, "code_challenge_method": None}, "invalid_request"),
        ({"code_challenge": "short", "code_challenge_method": "S256"}, "invalid_request"),
        ({"nonce": "n" * 2000}, "invalid_request"),
        ({"prompt": "none"}, "login_required"),
    ],
)
async def test_a_refused_request_reports_its_error_to_the_program(program, changes, error):
    answer = await program.browser.get(program.url(**changes))
    assert answer.status_code == 303
    brought = dict(parse_qsl(urlsplit(answer.headers["Location"]).query))
    assert answer.headers["Location"].startswith(BACK + "?")
    assert (brought["error"], brought["state"]) == (error, "s1")


async def test_a_public_client_has_to_send_a_challenge(native):
    answer = await native.browser.get(native.url(code_challenge=None, code_challenge_method=None))
    assert "error=invalid_request" in answer.headers["Location"]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "client_id=x",
        "client_id=%00",
        "a=1&a=2",
        "&".join(f"a{i}=1" for i in range(99)),
        "x=" + "y" * 20_000,
        "%ff=1",
    ],
)
async def test_an_invalid_request_shows_an_error_page(program, query):
    answer = await program.browser.get(f"/v2/oauth2/authorize?{query}")
    assert answer.status_code in (400, 413)
    assert 'role="alert"' in answer.text


async def test_denying_returns_access_denied_to_the_program(program, ann):
    answer = await program.sent(await program.page(), "deny", token=ann)
    assert "error=access_denied" in answer.headers["Location"]


async def test_the_second_login_asks_for_no_token_and_still_asks(program, ann):
    await program.code(ann)
    page = await program.page(prompt="login")
    assert "token" not in page.fields
    assert "ann@localhost" in page.text
    assert (await program.sent(page)).status_code == 303
    other = await program.sent(page, "leave")
    assert "token" in Page(other).fields
    assert "token" in (await program.page()).fields


async def test_a_form_counts_only_from_its_own_page(program, ann):
    page = await program.page()
    for forged in ("", "x", "\u00e4"):
        answer = await program.sent(page, token=ann, form=forged)
        assert answer.status_code == 403
    program.browser.cookies.clear()
    assert (await program.sent(page, token=ann)).status_code == 403


async def test_logins_are_in_the_audit_log_without_secrets(admin, program, ann):
    tokens = await program.login(ann)
    audit = await admin.get("/broker/v1/audit")
    assert ("ann", "log in") in {(entry["subject"], entry["action"]) for entry in audit.json()["entries"]}
    for token in tokens.values():
        assert token["access_token"] not in audit.text


async def test_the_page_is_plain_safe_and_usable_by_keyboard(broker, ann):
    client, secret = await broker.factory.clients.register('<script>alert("x")</script>', "192.0.2.1")
    program = Program(broker, client.id, secret)
    page = await program.page(state='"><script>')
    assert "<script" not in page.text
    policy = page.headers["Content-Security-Policy"]
    assert {"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"} <= set(policy.split("; "))
    assert page.headers["Referrer-Policy"] == "no-referrer"
    assert page.headers["Cache-Control"] == "no-store"
    assert page.labels == {"token"}
    assert 'id="token"' in page.text
    assert "tabindex" not in page.text
    cookies = [page.headers["set-cookie"]]
    answer = await program.sent(page, token=ann)
    cookies += [value for name, value in answer.headers.multi_items() if name == "set-cookie"]
    assert len(cookies) == 2
    for cookie in cookies:
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie


async def test_behind_tls_cookies_are_bound_to_the_host(database, tmp_path):
    async with running(Settings(database, public_url="https://broker.example")) as broker:
        client, secret = await broker.factory.clients.register("x", "192.0.2.1")
        page = await Program(broker, client.id, secret).page()
        assert page.headers["set-cookie"].startswith("__Host-coget-form=")
        assert "Secure" in page.headers["set-cookie"]
        known = (await broker.with_headers({}).get("/.well-known/openid-configuration")).json()
        assert known["issuer"] == "https://broker.example"
        assert known["token_endpoint"] == "https://broker.example/v2/oauth2/token"
        assert broker.factory.identities.domain == "broker.example"


async def test_only_a_token_that_was_issued_logs_in(program, ann, monkeypatch):
    monkeypatch.setattr(program.broker.factory.logins._guesses, "_most", 100)
    tokens = await program.login(ann)
    secrets = [token[kind] for token in tokens.values() for kind in ("access_token", "refresh_token")]
    cookie = next(each.value for each in program.browser.cookies.jar if each.name == "coget-login")
    other = Program(program.broker, program.number, program.secret)
    for wrong in (*secrets, cookie, "cogetb_x", "x" * 10_000, "a.b.c", "\u00e4"):
        page = await other.page()
        answer = await other.sent(page, token=wrong)
        assert answer.status_code == 403, wrong
        assert wrong not in answer.text
        assert "unknown, expired or revoked" in answer.text


async def test_guesses_of_tokens_and_secrets_are_slowed_down(program, ann):
    for _ in range(10):
        assert (await program.sent(await program.page(), token="cogetb_guess")).status_code == 403
    answer = await program.sent(await program.page(), token="cogetb_guess")
    assert (answer.status_code, int(answer.headers["Retry-After"]) > 0) == (429, True)
    assert (await program.sent(await program.page(), token=ann)).status_code == 303  # a right one never waits
    right, program.secret = program.secret, "guess"
    answers = [await program.ask(grant_type="refresh_token", refresh_token="x") for _ in range(21)]
    assert [answer.status_code for answer in answers] == [401] * 20 + [429]
    assert answers[-1].json()["error"] == "temporarily_unavailable"
    program.secret = right
    assert (await program.ask(grant_type="refresh_token", refresh_token="x")).json()["error"] == "invalid_grant"


async def test_a_code_is_shown_and_nothing_else(broker):
    nobody = broker.with_headers({})
    good = await nobody.get("/v2/web/auth-code", params={"code": "cogetb_abc-DEF_1"})
    assert (good.status_code, Page(good).words["code"]) == (200, "cogetb_abc-DEF_1")
    for code in ("<b>x</b>", "a b", "x" * 300, ""):
        answer = await nobody.get("/v2/web/auth-code", params={"code": code, "error_description": "<i>no</i>"})
        assert answer.status_code == 400
        assert "<b>" not in answer.text
        assert "<i>" not in answer.text
