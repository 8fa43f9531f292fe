"""Tokens from a login at an identity provider: they end when the provider's claims are old or have changed."""

import hashlib
from base64 import urlsafe_b64encode

import pytest
import sqlalchemy as sa

from broker.errors import OAuthRefused
from broker.models.callers import Caller
from broker.models.oauth import Code
from broker.services.auth.grants import IssuedTokens
from broker.services.auth.logins import WORD
from tests.broker.conftest import Broker

VERIFIER = "v" * 43
BACK = "http://localhost/back"
SCOPE = "urn:globus:auth:scope:transfer.api.globus.org:all"


async def given(broker: Broker, role: str, number: str) -> IssuedTokens:
    """Return the tokens that a program gets by a login with this role."""
    secret = await broker.factory.logins.by_provider(Caller(subject="ann", role=role), "Ann", None)
    challenge = urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
    code = await broker.factory.grants.code(secret, Code(number, BACK, (SCOPE,), challenge, None, True))
    client = await broker.factory.clients.known(number)
    return await broker.factory.grants.redeem(client, code, BACK, VERIFIER)


@pytest.fixture
async def number(broker: Broker) -> str:
    client, _ = await broker.factory.clients.make("tests", "native", None)
    return client.id


async def test_tokens_expire_with_the_login_at_the_provider(broker, number):
    first = await given(broker, "admin", number)
    client = await broker.factory.clients.known(number)
    await broker.factory.grants.refresh(client, first.tokens[0].refresh_token, "")
    async with broker.factory.database.read() as connection:
        rows = await connection.execute(sa.text("SELECT login_at, expires_at FROM tokens WHERE kind = 'refresh'"))
        assert [until - at for at, until in rows] == [pytest.approx(WORD)] * 2


@pytest.mark.parametrize(("then", "good"), [("reader", False), ("admin", True), ("transfer", False)])
async def test_a_login_with_another_role_ends_the_tokens_of_earlier_ones(broker, number, then, good):
    first = await given(broker, "admin", number)
    await given(broker, then, number)
    client = await broker.factory.clients.known(number)
    answer = first.tokens[0]
    who = await broker.with_headers({"Authorization": f"Bearer {answer.access_token}"}).get("/broker/v1/whoami")
    assert who.status_code == (200 if good else 401)
    if good:
        await broker.factory.grants.refresh(client, answer.refresh_token, "")
        return
    with pytest.raises(OAuthRefused):
        await broker.factory.grants.refresh(client, answer.refresh_token, "")


async def test_losing_all_roles_revokes_the_tokens_of_a_login(broker, number):
    answer = (await given(broker, "admin", number)).tokens[0]
    await broker.factory.logins.end_all("bob")
    client = await broker.factory.clients.known(number)
    answer = (await broker.factory.grants.refresh(client, answer.refresh_token, "")).tokens[0]
    await broker.factory.logins.end_all("ann")
    who = await broker.with_headers({"Authorization": f"Bearer {answer.access_token}"}).get("/broker/v1/whoami")
    assert who.status_code == 401
    with pytest.raises(OAuthRefused):
        await broker.factory.grants.refresh(client, answer.refresh_token, "")


async def test_tokens_that_an_admin_issued_are_no_matter_of_the_provider(broker, number):
    client = await broker.client("admin")
    await broker.factory.logins.by_provider(Caller(subject="a-admin", role="reader"), None, None)
    assert (await client.get("/broker/v1/whoami")).json()["role"] == "admin"
