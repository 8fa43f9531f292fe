"""Tokens: valid within their scopes, and ended with the login that they came from."""

import asyncio
import time
from urllib.parse import parse_qsl, urlsplit

import pytest

from broker.config.settings import Settings
from broker.models.callers import NewToken
from broker.models.identities import identity
from broker.models.oauth import PAGES, TRANSFER
from tests.broker.conftest import HERE, running
from tests.broker.oauth.conftest import (
    ALL,
    BACK,
    GROUPS,
    Program,
    by_server,
    userinfo,
    whoami,
)


async def test_a_token_is_accepted_only_within_its_scopes(broker, program, ann):
    tokens = await program.login(ann, scope=f"openid email {ALL} {GROUPS}")
    transfer, auth, groups = (
        tokens[server]["access_token"]
        for server in ("transfer.api.globus.org", "auth.globus.org", "groups.api.globus.org")
    )
    assert (await whoami(broker, transfer)).json() == {"subject": "ann", "role": "transfer", "site": "CERN"}
    assert (await userinfo(broker, auth)).json() == {
        "sub": str(identity("ann")),
        "preferred_username": "ann@localhost",
        "email": None,
    }
    for token in (auth, groups):
        assert (await whoami(broker, token)).status_code == 401
    for token in (transfer, groups):
        assert (await userinfo(broker, token)).status_code == 401
    only = await program.login(ann, scope="urn:globus:auth:scope:auth.globus.org:view_identity_set")
    answer = await userinfo(broker, only["auth.globus.org"]["access_token"])
    assert (answer.status_code, answer.json()["error"]) == (403, "insufficient_scope")


async def test_tokens_made_during_a_revocation_are_revoked_too(broker, admin, program, ann):
    for _ in range(5):
        refresh = (await program.login(ann))["transfer.api.globus.org"]["refresh_token"]
        login = max(each.id for each in await broker.factory.tokens.all() if each.kind == "login")
        asked = [program.ask(grant_type="refresh_token", refresh_token=refresh) for _ in range(6)]
        ended = admin.delete(f"/broker/v1/tokens/{login}")
        *answers, status = await asyncio.gather(*asked, ended)
        assert status.status_code == 204
        for answer in answers:
            if answer.status_code == 200:
                assert (await whoami(broker, answer.json()["access_token"])).status_code == 401


async def test_tokens_do_not_outlive_the_pasted_token(broker, program):
    issued = await broker.factory.tokens.issue("tests", NewToken(subject="ann", days=0.5))
    tokens = (await program.login(issued.token))["transfer.api.globus.org"]
    assert tokens["expires_in"] <= 43_200
    fresh = (await program.ask(grant_type="refresh_token", refresh_token=tokens["refresh_token"])).json()
    assert fresh["expires_in"] <= 43_200


async def test_revoking_a_token_ends_all_logins_with_it(broker, admin, program, ann):
    tokens = (await program.login(ann))["transfer.api.globus.org"]
    listed = (await admin.get("/broker/v1/tokens")).json()["tokens"]
    issued = next(each["id"] for each in listed if each["subject"] == "ann" and each["kind"] == "token")
    assert [each["kind"] for each in listed if each["subject"] == "ann"] == ["login", "token"]
    assert (await admin.delete(f"/broker/v1/tokens/{issued}")).status_code == 204
    assert (await whoami(broker, tokens["access_token"])).status_code == 401
    answer = await program.ask(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    assert answer.json()["error"] == "invalid_grant"
    assert "token" in (await program.page()).fields


async def test_a_public_client_gets_a_new_refresh_token_each_time(broker, native, ann, monkeypatch):
    monkeypatch.setattr("broker.services.auth.grants.GRACE", -1.0)  # the time of grace is over
    first = (await native.login(ann))["transfer.api.globus.org"]
    second = (await native.ask(grant_type="refresh_token", refresh_token=first["refresh_token"])).json()
    assert second["refresh_token"] != first["refresh_token"]
    assert (await whoami(broker, second["access_token"])).status_code == 200
    answer = await native.ask(grant_type="refresh_token", refresh_token=first["refresh_token"])
    assert answer.json()["error"] == "invalid_grant"
    assert (await whoami(broker, second["access_token"])).status_code == 401


async def test_a_refresh_token_is_its_clients_and_has_no_more_scopes(program, native, ann):
    tokens = await program.login(ann)
    refresh = tokens["auth.globus.org"]["refresh_token"]
    assert (await native.ask(grant_type="refresh_token", refresh_token=refresh)).json()["error"] == "invalid_grant"
    fewer = (await program.ask(grant_type="refresh_token", refresh_token=refresh, scope="openid")).json()
    assert fewer["scope"] == "openid"
    for scope in (ALL, "openid profile"):
        answer = await program.ask(grant_type="refresh_token", refresh_token=refresh, scope=scope)
        assert answer.json()["error"] == "invalid_scope"
    access = tokens["auth.globus.org"]["access_token"]
    assert (await program.ask(grant_type="refresh_token", refresh_token=access)).json()["error"] == "invalid_grant"


async def test_without_offline_access_there_is_no_refresh_token(program, ann):
    tokens = await program.login(ann, access_type=None)
    assert all("refresh_token" not in token for token in tokens.values())


async def test_cookies_and_codes_are_no_tokens(broker, program, ann):
    code = await program.code(ann)
    cookie = next(each.value for each in program.browser.cookies.jar if each.name == "coget-login")
    refresh = by_server((await program.redeem(code)).json())["transfer.api.globus.org"]["refresh_token"]
    for secret in (code, cookie, refresh):
        assert (await whoami(broker, secret)).status_code == 401


async def test_tokens_are_looked_at_by_their_own_client(program, native, ann):
    token = (await program.login(ann, scope="openid profile email"))["auth.globus.org"]
    reply = (await program.ask("token/introspect", token=token["access_token"], include="session_info")).json()
    assert (reply["active"], reply["sub"], reply["username"]) == (True, str(identity("ann")), "ann@localhost")
    assert (reply["scope"], reply["client_id"], reply["iss"]) == ("openid profile email", program.number, HERE)
    assert reply["exp"] - reply["iat"] == 172_800
    assert list(reply["session_info"]["authentications"]) == [reply["sub"]]
    for kind in ("access_token", "refresh_token"):
        assert (await program.ask("token/validate", token=token[kind])).json() == {"active": True}
        for path in ("token/introspect", "token/validate"):
            assert (await native.ask(path, token=token[kind])).json() == {"active": False}
    for other in (ann, "nothing", "\u00e4"):
        assert (await program.ask("token/introspect", token=other)).json() == {"active": False}


async def test_a_description_of_a_token_has_the_user_name_once(program, ann):
    token = (await program.login(ann, scope="openid profile email"))["auth.globus.org"]
    described = (await program.ask("token/introspect", token=token["access_token"])).json()
    assert [name for name, value in described.items() if value == "ann@localhost"] == ["username"]


async def test_revoking_a_token_revokes_its_descendants_but_no_issued_token(broker, program, native, ann):
    token = (await program.login(ann))["transfer.api.globus.org"]
    answer = await native.ask("token/revoke", token=token["refresh_token"])
    assert (answer.status_code, answer.json()) == (200, {"active": False})
    assert (await whoami(broker, token["access_token"])).status_code == 401
    for other in (ann, "nothing", token["refresh_token"]):
        assert (await native.ask("token/revoke", token=other)).status_code == 200
    assert (await whoami(broker, ann)).status_code == 200


@pytest.mark.sampled(2)
@pytest.mark.parametrize("path", ["token", "token/revoke", "token/introspect", "token/validate"])
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{}"),
        ("application/x-www-form-urlencoded", b""),
        ("application/x-www-form-urlencoded", b"\xff\xfe=1"),
        ("application/x-www-form-urlencoded", b"grant_type=password&username=a&password=b"),
        ("application/x-www-form-urlencoded", b"token=" + b"x" * 100_000),
        ("application/x-www-form-urlencoded", b"token=a&token=b"),
        ("application/x-www-form-urlencoded", b"token=%ff"),
        ("application/x-www-form-urlencoded", b"token=%00"),
        ("text/plain", b"x"),
    ],
)
async def test_invalid_forms_are_refused_with_the_errors_of_the_standard(program, path, kind, body):
    who = (program.number, program.secret)
    answer = await program.own.post(f"/v2/oauth2/{path}", content=body, headers={"Content-Type": kind}, auth=who)
    assert answer.status_code in (200, 400, 413)
    if answer.status_code != 200:
        assert answer.json()["error"] in ("invalid_request", "unsupported_grant_type")
        assert answer.headers["Cache-Control"] == "no-store"


async def test_expired_tokens_are_deleted_before_the_tokens_that_issued_them(broker, program, ann, monkeypatch):
    await program.login(ann)
    grants, now = broker.factory.grants, time.time()
    for later in (1, 2, 3, 4):
        monkeypatch.setattr("broker.services.auth.grants.time.time", lambda days=later: now + 400 * 86_400 * days)
        robot, _ = await broker.factory.clients.make("tests", f"robot{later}", "reader")
        await grants.own(robot, "openid")
    tokens = await broker.factory.tokens.all()
    assert [each.kind for each in tokens if each.subject == "ann"] == ["token"]


async def test_a_refresh_token_ends_with_all_that_came_of_the_ones_before(broker, native, ann):
    first = (await native.login(ann))[TRANSFER]
    given = [first]
    for _ in range(3):
        answer = await native.ask(grant_type="refresh_token", refresh_token=given[-1]["refresh_token"])
        given.append(answer.json())
    for each in given:
        assert (await whoami(broker, each["access_token"])).status_code == 200
    assert (await native.ask("token/revoke", token=given[-1]["refresh_token"])).status_code == 200
    for each in given:
        assert (await whoami(broker, each["access_token"])).status_code == 401


async def test_an_old_refresh_token_shown_again_ends_all_that_its_grant_gave(broker, native, ann):
    given = [(await native.login(ann))[TRANSFER]]
    for _ in range(2):
        answer = await native.ask(grant_type="refresh_token", refresh_token=given[-1]["refresh_token"])
        given.append(answer.json())
    again = await native.ask(grant_type="refresh_token", refresh_token=given[0]["refresh_token"])
    assert again.json()["error"] == "invalid_grant"
    for each in given:
        assert (await whoami(broker, each["access_token"])).status_code == 401


async def test_programs_that_share_a_refresh_token_get_the_same_successor(broker, native, ann):
    """A program whose answer was lost gets it, too; and all of them at the same moment."""
    first = (await native.login(ann))[TRANSFER]
    refresh = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"]}
    answers = await asyncio.gather(*(native.ask(**refresh) for _ in range(4)))
    given = [answer.json() for answer in answers]
    assert len({each["refresh_token"] for each in given}) == 1
    assert len({each["access_token"] for each in given}) == 4
    for each in given:
        assert (await whoami(broker, each["access_token"])).status_code == 200
    after = await native.ask(grant_type="refresh_token", refresh_token=given[0]["refresh_token"])
    assert after.status_code == 200


async def test_a_thief_with_a_used_refresh_token_gets_no_tokens_of_its_own(broker, native, ann, monkeypatch):
    """Within the grace, thief and owner hold the same token; the second one to use it later ends all."""
    first = (await native.login(ann))[TRANSFER]
    owner, thief = [
        (await native.ask(grant_type="refresh_token", refresh_token=first["refresh_token"])).json() for _ in range(2)
    ]
    assert thief["refresh_token"] == owner["refresh_token"]
    stolen = (await native.ask(grant_type="refresh_token", refresh_token=thief["refresh_token"])).json()
    monkeypatch.setattr("broker.services.auth.grants.GRACE", -1.0)
    noticed = await native.ask(grant_type="refresh_token", refresh_token=owner["refresh_token"])
    assert noticed.json()["error"] == "invalid_grant"
    refused = await native.ask(grant_type="refresh_token", refresh_token=stolen["refresh_token"])
    assert refused.json()["error"] == "invalid_grant"
    for each in (first, owner, thief, stolen):
        assert (await whoami(broker, each["access_token"])).status_code == 401


async def test_a_thief_cannot_follow_the_owner_through_the_grace(broker, native, ann):
    """A successor that was given again has no grace of its own."""
    given = [(await native.login(ann))[TRANSFER]]
    for generation in range(2):
        refresh = {"grant_type": "refresh_token", "refresh_token": given[-1]["refresh_token"]}
        owner, thief = [(await native.ask(**refresh)).json() for _ in range(2)]
        given.append(owner)
        assert thief.get("error") == (None if generation == 0 else "invalid_grant")
    refused = await native.ask(grant_type="refresh_token", refresh_token=given[-1]["refresh_token"])
    assert refused.json()["error"] == "invalid_grant"
    for each in given:
        assert (await whoami(broker, each["access_token"])).status_code == 401


async def test_the_grace_is_there_again_after_a_token_that_was_used_once(native, ann):
    token = (await native.login(ann))[TRANSFER]
    for uses in (2, 1, 2):
        refresh = {"grant_type": "refresh_token", "refresh_token": token["refresh_token"]}
        tokens = [(await native.ask(**refresh)).json() for _ in range(uses)]
        token = tokens[-1]
        assert {each["refresh_token"] for each in tokens} == {token["refresh_token"]}


async def test_a_used_refresh_token_gives_its_successor_again_only_a_few_times(broker, native, ann):
    first = (await native.login(ann))[TRANSFER]
    refresh = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"]}
    given = [(await native.ask(**refresh)).json() for _ in range(10)]
    assert [each.get("error") for each in given] == [*[None] * 9, "invalid_grant"]
    assert (await whoami(broker, given[0]["access_token"])).status_code == 401


async def test_a_refresh_token_of_a_public_client_is_never_called_active(native, ann):
    token = (await native.login(ann))[TRANSFER]
    for path in ("token/validate", "token/introspect"):
        assert (await native.ask(path, token=token["refresh_token"])).json() == {"active": False}
        assert (await native.ask(path, token=token["access_token"])).json()["active"] is True


async def test_the_grace_of_a_refresh_token_ends_when_it_is_revoked(broker, native, ann):
    first = (await native.login(ann))[TRANSFER]
    refresh = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"]}
    second = (await native.ask(**refresh)).json()
    assert (await native.ask("token/revoke", token=second["refresh_token"])).status_code == 200
    assert (await native.ask(**refresh)).json()["error"] == "invalid_grant"


async def test_tokens_of_a_login_end_with_it(broker, program, ann):
    token = (await program.login(ann))[TRANSFER]["access_token"]
    assert (await whoami(broker, token)).status_code == 200
    await program.sent(await program.page(), "leave")
    assert (await whoami(broker, token)).status_code == 401


@pytest.mark.parametrize(
    "scope",
    [
        "urn:globus:auth:scope:transfer.api.globus.org:monitor_ongoing",
        "urn:globus:auth:scope:transfer.api.globus.org:gcp_install",
        "urn:globus:auth:scope:transfer.api.globus.org:All",
        "urn:globus:auth:scope:transfer.api.globus.org:all_",
        "urn:globus:auth:scope:auth.globus.org:manage_projects",
        "admin",
        f"{ALL} nothing",
    ],
)
async def test_an_unknown_scope_is_refused(broker, program, ann, scope):
    page = await program.browser.get(program.url(scope=scope))
    assert "error=invalid_scope" in page.headers["Location"]
    robot, secret = await broker.factory.clients.make("tests", "robot", "admin")
    answer = await Program(broker, robot.id, secret).ask(grant_type="client_credentials", scope=scope)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_scope")
    refresh = (await program.login(ann))[TRANSFER]["refresh_token"]
    answer = await program.ask(grant_type="refresh_token", refresh_token=refresh, scope=scope)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_scope")


async def test_the_client_of_our_pages_is_no_program(broker, ann):
    """The codes of this client come to the broker's own pages, and are useless to other readers."""
    pages = Program(broker, PAGES, None)
    for place in (BACK, f"{HERE}/v2/web/auth-code", "http://127.0.0.1:8642/reports/login/done"):
        assert (await pages.browser.get(pages.url(redirect_uri=place))).status_code == 400
    done = f"{HERE}/reports/login/done"
    code = await pages.code(ann, redirect_uri=done)
    answer = await pages.redeem(code, redirect_uri=done)
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")
    for path in ("token/introspect", "token/validate"):
        assert (await pages.ask(path, token=code)).status_code == 401


SPELT = (
    "/reports/login/done",
    "/reports/login/done?x=1",
    "/reports/login/done/",
    "/reports/login/done/x",
    "/Reports/Login/Done",
    "/reports//login/done",
    "//reports/login/done",
    "/reports/login/./done",
    "/x/../reports/login/done",
    "/reports/login/x/../done",
    "/reports/login%2Fdone",
    "/reports/login%252fdone",
    "/%72eports/login/don%65",
    "/reports;a=1/login/done;b",
    "/reports/login/%2e/done",
)
"""Ways to write the redirect URL of the broker's own pages."""


@pytest.mark.parametrize("host", ["localhost:8642", "127.0.0.1:8642", "localhost:1", "localhost", "127.0.0.1"])
async def test_no_other_program_is_answered_at_our_own_pages(database, host):
    """Refused for every host: the broker may have names and ports that it does not know."""
    async with running(Settings(database, public_url="http://localhost:8642")) as broker:
        client, secret = await broker.factory.clients.register("a program", "192.0.2.1")
        program = Program(broker, client.id, secret)
        for place in SPELT:
            answer = await program.browser.get(program.url(redirect_uri=f"http://{host}{place}"))
            assert (answer.status_code, "Location" in answer.headers) == (400, False), place
        for place in ("/reports/login", "/", "/login/done", "/callback?to=/reports/login/done"):
            assert (await program.browser.get(program.url(redirect_uri=f"http://{host}{place}"))).status_code == 200


async def test_a_code_of_another_program_begins_no_session(broker, program, ann):
    """Refused although the browser has started the login and brings the code to the right place."""
    begun = await program.browser.get("/reports/login?to=/reports")
    asked = dict(parse_qsl(urlsplit(begun.headers["Location"]).query))
    for challenge in ({}, {"code_challenge": asked["code_challenge"], "code_challenge_method": "S256"}):
        code = await program.code(ann, **challenge)
        query = {"code": code, "state": asked["state"], "iss": HERE}
        answer = await program.browser.get("/reports/login/done", params=query)
        assert answer.status_code == 401
        assert "session" not in str(program.browser.cookies)
