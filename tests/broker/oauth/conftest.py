"""A program in which users log in, and their browser."""

import base64
import hashlib
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx
import pytest

from broker.models.callers import NewToken
from tests.broker.conftest import HERE, Broker
from tests.support.browser import Page

BACK = "http://localhost:4321"
ALL = "urn:globus:auth:scope:transfer.api.globus.org:all"
GROUPS = "urn:globus:auth:scope:groups.api.globus.org:all"
VERIFIER = "v" * 50
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
PKCE = {"code_challenge": CHALLENGE, "code_challenge_method": "S256"}


class Program:
    """A program in which users log in, and their browser."""

    def __init__(self, broker: Broker, number: str, secret: str | None) -> None:
        self.broker = broker
        self.number = number
        self.secret = secret
        self.browser = broker.with_headers({})
        self.own = broker.with_headers({})

    def url(self, **changes: str | None) -> str:
        """Return the URL to which it sends the browser."""
        usual = {"client_id": self.number, "redirect_uri": BACK, "response_type": "code", "state": "s1"}
        query = {**usual, "scope": f"openid email {ALL}", "access_type": "offline", **({} if self.secret else PKCE)}
        return "/v2/oauth2/authorize?" + urlencode({k: v for k, v in {**query, **changes}.items() if v is not None})

    async def page(self, **changes: str | None) -> Page:
        return Page(await self.browser.get(self.url(**changes)))

    async def sent(self, page: Page, decision: str = "allow", **fields: str) -> httpx.Response:
        assert page.action, page.text
        return await self.browser.post(page.action, data={**page.fields, **fields, "decision": decision})

    async def code(self, token: str, **changes: str | None) -> str:
        """Return the code that the browser brings back."""
        page = await self.page(**changes)
        answer = await self.sent(page, **({"token": token} if "token" in page.fields else {}))
        assert answer.status_code == 303, answer.text
        brought = dict(parse_qsl(urlsplit(answer.headers["Location"]).query))
        assert (brought["state"], brought["iss"]) == ("s1", HERE)
        return brought["code"]

    async def ask(self, path: str = "token", **form: str) -> httpx.Response:
        """Send a request with the program's credentials."""
        who = (self.number, self.secret) if self.secret else None
        data = form if self.secret else {"client_id": self.number, **form}
        return await self.own.post(f"/v2/oauth2/{path}", data=data, auth=who)

    async def redeem(self, code: str, **changes: str) -> httpx.Response:
        proof = {} if self.secret else {"code_verifier": VERIFIER}
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": BACK, **proof, **changes}
        return await self.ask(**form)

    async def login(self, token: str, **changes: str | None) -> dict[str, dict[str, Any]]:
        """Return its tokens by resource server."""
        answer = await self.redeem(await self.code(token, **changes))
        assert answer.status_code == 200, answer.text
        return by_server(answer.json())


def by_server(reply: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["resource_server"]: each for each in (reply, *reply["other_tokens"])}


@pytest.fixture
async def program(broker: Broker) -> Program:
    client, secret = await broker.factory.clients.register("a program", "192.0.2.1")
    return Program(broker, client.id, secret)


@pytest.fixture
async def native(broker: Broker) -> Program:
    client, secret = await broker.factory.clients.make("tests", "native", None)
    assert secret is None
    return Program(broker, client.id, None)


@pytest.fixture
async def ann(broker: Broker) -> str:
    return (await broker.factory.tokens.issue("tests", NewToken(subject="ann", role="transfer", site="CERN"))).token


async def whoami(broker: Broker, token: str) -> httpx.Response:
    return await broker.with_headers({"Authorization": f"Bearer {token}"}).get("/broker/v1/whoami")


async def userinfo(broker: Broker, token: str) -> httpx.Response:
    return await broker.with_headers({"Authorization": f"Bearer {token}"}).get("/v2/oauth2/userinfo")
