"""Delays after wrong credentials, by address and credential: no user locks out others at the same address."""

import time

import httpx
import pytest

from broker.models.callers import NewToken
from tests.broker.conftest import Broker
from tests.broker.oauth.conftest import Program

W = "/broker/v1/whoami"


async def _ended(broker: Broker, subject: str) -> str:
    """A revoked token."""
    issued = await broker.factory.tokens.issue("tests", NewToken(subject=subject))
    await broker.factory.tokens.revoke("tests", issued.id)
    return issued.token


async def _asked(client: httpx.AsyncClient, token: str) -> int:
    return (await client.get(W, headers={"Authorization": f"Bearer {token}"})).status_code


async def test_made_up_tokens_are_limited_and_expired_ones_still_get_401(broker):
    """Programs request a new token after 401; after 429 they only wait."""
    client = broker.with_headers({})
    mine, others = await _ended(broker, "ann"), await _ended(broker, "bob")
    assert [await _asked(client, f"cogetb_{i}") for i in range(40)] == [401] * 30 + [429] * 10
    assert [await _asked(client, mine) for _ in range(40)] == [401] * 30 + [429] * 10
    assert await _asked(client, others) == 401
    good = await broker.factory.tokens.issue("tests", NewToken(subject="carl"))
    assert await _asked(client, good.token) == 200


async def test_a_token_that_has_expired_is_none_that_is_made_up(broker, monkeypatch):
    client = broker.with_headers({})
    issued = await broker.factory.tokens.issue("tests", NewToken(subject="ann", days=1))
    assert [await _asked(client, f"x{i}") for i in range(31)][-1] == 429
    later = time.time() + 2 * 86_400
    monkeypatch.setattr("broker.services.auth.tokens.time.time", lambda: later)
    assert await _asked(client, issued.token) == 401


async def _secret(program: Program, secret: str = "wrong", number: str = "") -> int:
    form = {"grant_type": "refresh_token", "refresh_token": "x"}
    answer = await program.own.post("/v2/oauth2/token", data=form, auth=(number or program.number, secret))
    return answer.status_code


async def test_guessing_a_programs_secret_delays_no_other_program(broker, program):
    client, secret = await broker.factory.clients.register("another", "192.0.2.1")
    other = Program(broker, client.id, secret)
    assert [await _secret(program) for _ in range(22)] == [401] * 20 + [429] * 2
    assert await _secret(other) == 401
    assert await _secret(program, str(program.secret)) == 400  # the right secret is heard, and the token is none
    unknown = [f"00000000-0000-4000-8000-{i:012}" for i in range(22)]
    assert [await _secret(program, number=each) for each in unknown] == [401] * 20 + [429] * 2
    assert await _secret(other) == 401


async def test_guesses_at_the_form_do_not_delay_expired_tokens(broker, program):
    mine = await _ended(broker, "ann")
    for i in range(11):
        answer = await program.sent(await program.page(), token=f"cogetb_{i}")
    assert answer.status_code == 429
    assert (await program.sent(await program.page(), token=mine)).status_code == 403


@pytest.mark.parametrize("kind", ["Basic eDp5", "Bearer", "Bearer x y", "x"])
async def test_malformed_tokens_are_limited_like_made_up_ones(broker, kind):
    client = broker.with_headers({"Authorization": kind})
    assert [(await client.get(W)).status_code for _ in range(31)] == [401] * 30 + [429]
