"""Authorization codes: valid once, and only for the client that requested them."""

import asyncio
import time

import pytest

from tests.broker.oauth.conftest import (
    CHALLENGE,
    VERIFIER,
    by_server,
    whoami,
)


async def test_a_code_is_good_once_and_its_reuse_revokes_its_tokens(broker, program, ann):
    code = await program.code(ann)
    tokens = by_server((await program.redeem(code)).json())["transfer.api.globus.org"]
    assert (await whoami(broker, tokens["access_token"])).status_code == 200
    answer = await program.redeem(code)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
    assert (await whoami(broker, tokens["access_token"])).status_code == 401
    refused = await program.ask(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    assert refused.json()["error"] == "invalid_grant"


async def test_concurrent_uses_of_a_code_get_one_set_of_tokens_that_is_revoked(broker, program, ann):
    code = await program.code(ann)
    answers = await asyncio.gather(*(program.redeem(code) for _ in range(8)))
    (good,) = [answer.json() for answer in answers if answer.status_code == 200]
    assert (await whoami(broker, by_server(good)["transfer.api.globus.org"]["access_token"])).status_code == 401


@pytest.mark.parametrize(
    "changes",
    [
        {"redirect_uri": "http://localhost:4322"},
        {"redirect_uri": ""},
        {"code_verifier": "w" * 50},
        {"code_verifier": ""},
        {"code_verifier": CHALLENGE},
    ],
)
async def test_a_code_is_bound_to_its_request(native, ann, changes):
    code = await native.code(ann)
    answer = await native.redeem(code, **changes)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
    assert (await native.redeem(code)).json()["error"] == "invalid_grant"


async def test_a_code_is_worth_nothing_to_another_client(program, native, ann):
    code = await program.code(ann)
    assert (await native.redeem(code)).json()["error"] == "invalid_grant"
    assert (await program.redeem(code)).status_code == 200


async def test_a_verifier_without_challenge_is_refused(program, ann):
    code = await program.code(ann)
    assert (await program.redeem(code, code_verifier=VERIFIER)).json()["error"] == "invalid_grant"


async def test_a_code_expires_and_so_do_tokens(broker, program, ann, monkeypatch):
    code = await program.code(ann)
    now = time.time()
    monkeypatch.setattr("broker.services.auth.grants.time.time", lambda: now + 301)
    assert (await program.redeem(code)).json()["error"] == "invalid_grant"
    tokens = (await program.login(ann))["transfer.api.globus.org"]
    assert tokens["expires_in"] == 172_800
    monkeypatch.setattr("broker.services.auth.grants.time.time", lambda: now + 301 + 172_801)
    assert (await whoami(broker, tokens["access_token"])).status_code == 401
    fresh = (await program.ask(grant_type="refresh_token", refresh_token=tokens["refresh_token"])).json()
    assert (await whoami(broker, fresh["access_token"])).status_code == 200
    monkeypatch.setattr("broker.services.auth.grants.time.time", lambda: now + 200 * 86_400)
    answer = await program.ask(grant_type="refresh_token", refresh_token=fresh["refresh_token"])
    assert answer.json()["error"] == "invalid_grant"
