"""Tokens from another server: a second broker with tokens of another form, queried over HTTP."""

import asyncio
import base64
import json
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from broker.config.identity_providers import IntrospectionSettings, Issuer
from broker.config.settings import Settings, configured
from broker.errors import Invalid
from broker.models.callers import NewToken
from broker.models.subjects import Foreign
from broker.storage.database import addressed
from broker.storage.migration import upgrade
from tests.broker.conftest import Broker, running
from tests.support import broker as support
from tests.support.scripted import raw_server
from tests.support.waiting import PATIENCE

TRANSFER = "urn:globus:auth:scope:transfer.api.globus.org:all"
ROLES = {TRANSFER: "transfer"}
ELSEWHERE = """#!{python}
import sys
from broker.services.auth import tokens
tokens.PREFIX = "elsewhere_"
from broker.cli import main
sys.argv[0] = "coget-broker"
main()
"""


class Server(NamedTuple):
    """An authorization server, and a client of it that may query it."""

    process: support.BrokerProcess
    client: str
    secret: str

    @property
    def endpoint(self) -> str:
        return f"{self.process.url}/v2/oauth2/token/introspect"

    def settings(self, **change: object) -> IntrospectionSettings:
        """Return our broker's settings for it."""
        return IntrospectionSettings(self.endpoint, self.client, self.secret, ROLES, (self.client,))._replace(**change)

    def token(self, scope: str = TRANSFER) -> str:
        """Return a token that it issues."""
        form = {"grant_type": "client_credentials", "scope": scope}
        answer = self.process.client().post("/v2/oauth2/token", data=form, auth=(self.client, self.secret))
        token = answer.raise_for_status().json()["access_token"]
        assert token.startswith("elsewhere_")
        return token

    def revoke(self, token: str) -> None:
        who = (self.client, self.secret)
        self.process.client().post("/v2/oauth2/token/revoke", data={"token": token}, auth=who).raise_for_status()

    def asked(self) -> int:
        """Return the number of queries about a token."""
        lines = self.process.client().get("/metrics").text.splitlines()
        counts = [line for line in lines if line.startswith("coget_broker_requests_total") and "introspect" in line]
        return int(sum(float(line.split()[-1]) for line in counts))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("elsewhere")
    program = folder / "coget-broker"
    program.write_text(ELSEWHERE.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    database = f"sqlite:///{folder}/elsewhere.sqlite"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(support, "PROGRAM", program)
        process = support.BrokerProcess(database, folder)
    with process:
        words = [program, "client", "create", "robot", "--role", "reader", "--database", database]
        made = subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE)
        yield Server(process, *made.stdout.split())


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    database = f"sqlite:///{tmp_path / 'b.sqlite'}"
    upgrade(addressed(database))
    return Settings(database)


@pytest.fixture
async def broker(server: Server, settings: Settings) -> AsyncIterator[Broker]:
    async with running(settings._replace(introspection=server.settings())) as started:
        yield started


async def _asked(broker: Broker, token: str) -> tuple[int, dict]:
    answer = await broker.with_headers({"Authorization": f"Bearer {token}"}).get("/broker/v1/whoami")
    return answer.status_code, answer.json()


async def test_a_token_of_another_server_counts_with_the_roles_of_its_scopes(broker, server):
    status, caller = await _asked(broker, server.token())
    issuer = Foreign.read(caller["subject"]).issuer
    assert (status, caller["role"], issuer) == (200, "transfer", f"{server.endpoint}#{server.process.url}")
    status, refused = await _asked(broker, server.token("openid"))
    assert (status, "has no role here" in refused["error"]["message"]) == (403, True)


async def test_it_accepts_only_its_own_issuer(server, settings):
    other = server.settings(issuer="https://iam.example/")
    async with running(settings._replace(introspection=other)) as broker:
        assert (await _asked(broker, server.token()))[0] == 401
    known = server.settings(issuer=server.process.url)
    async with running(settings._replace(introspection=known)) as broker:
        status, caller = await _asked(broker, server.token())
        assert (status, Foreign.read(caller["subject"]).issuer) == (200, server.process.url)


async def test_unknown_tokens_are_refused(broker, server, caplog):
    before, message = server.asked(), "the token is unknown, expired or revoked"
    for token in ("elsewhere_nonsense", "x", "a.b.c", "a" * 4000):
        status, answer = await _asked(broker, token)
        assert (status, answer["error"]["message"]) == (401, message)
        assert token not in caplog.text or len(token) < 4
    assert server.asked() == before + 4


async def test_an_answer_is_believed_for_a_moment(broker, server):
    token, before = server.token(), server.asked()
    answers = await asyncio.gather(*(_asked(broker, token) for _ in range(5)))
    assert {status for status, _ in answers} == {200}
    server.revoke(token)
    assert (await _asked(broker, token))[0] == 200
    assert before < server.asked() <= before + 5
    count = server.asked()
    known = broker.factory.tokens._introspection._known
    known.update({key: each._replace(until=time.time() - 1) for key, each in known.items()})
    assert (await _asked(broker, token))[0] == 401
    assert (await _asked(broker, token))[0] == 401
    assert server.asked() == count + 1


async def test_our_own_tokens_are_not_introspected(broker, server):
    before = server.asked()
    ours = await broker.factory.tokens.issue("tests", NewToken(subject="ann", role="reader"))
    assert (await _asked(broker, ours.token))[1]["subject"] == "ann"
    assert (await _asked(broker, "cogetb_wrong"))[0] == 401
    assert server.asked() == before


async def test_tokens_of_a_known_issuer_are_not_introspected(server, settings):
    known = Issuer("https://iam.example/", ("us",), {})
    parts = ({"alg": "RS256"}, {"iss": known.url})
    token = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    before = server.asked()
    async with running(settings._replace(introspection=server.settings(), issuers=(known,))) as broker:
        assert (await _asked(broker, f"{token}.AAAA"))[0] in (401, 503)
    assert server.asked() == before


async def test_a_token_for_another_audience_is_refused(server, settings):
    async with running(settings._replace(introspection=server.settings(audience=("others",)))) as broker:
        assert (await _asked(broker, server.token()))[0] == 401


@pytest.mark.parametrize(
    "change",
    [
        {"url": "http://127.0.0.1:9/"},
        {"client_secret": "wrong"},
        {"url": "http://broker.example/introspect"},  # in plain text
    ],
)
async def test_a_server_that_cannot_be_asked_is_no_refusal(server, settings, change):
    async with running(settings._replace(introspection=server.settings(**change))) as broker:
        status, answer = await _asked(broker, server.token())
        assert (status, answer["error"]["code"]) == (503, "unavailable")


async def test_a_server_that_does_not_answer_is_not_waited_for(server, settings, monkeypatch):
    monkeypatch.setattr("broker.services.auth.introspection.SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        async with running(settings._replace(introspection=server.settings(url=url))) as broker:
            assert (await _asked(broker, "x"))[0] == 503


async def test_a_token_that_lasts_longer_than_numbers_count_is_believed_for_a_moment(server, settings):
    reply = {"active": True, "exp": 10**400, "aud": [server.client], "sub": "ann", "scope": TRANSFER}

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps(reply).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()

    async with raw_server(answered) as port:
        lying = server.settings(url=f"http://127.0.0.1:{port}/")
        async with running(settings._replace(introspection=lying)) as broker:
            assert (await _asked(broker, "x"))[0] == 200


GOOD = '[introspection]\nurl = "https://a.example/i"\nclient_id = "us"\nclient_secret = "s"\nroles = { x = "reader" }\n'


def test_it_is_read_from_a_file(tmp_path):
    path = tmp_path / "broker.toml"
    path.write_text(GOOD)
    path.chmod(0o600)
    assert configured(Settings(), path).introspection == IntrospectionSettings(
        "https://a.example/i", "us", "s", {"x": "reader"}, ("us",)
    )
    path.write_text(GOOD + 'audience = ["b", "c"]\n')
    assert configured(Settings(), path).introspection.audience == ("b", "c")
    path.write_text(GOOD + 'issuer = "https://a.example/"\n')
    assert configured(Settings(), path).namers == (("https://a.example/i", "https://a.example/"),)


@pytest.mark.parametrize(
    "text",
    [
        "[introspection]\n",
        GOOD + "surprise = 1\n",
        GOOD + "audience = 3\n",
        GOOD + 'issuer = "iam.example"\n',
        GOOD + "issuer = 3\n",
        GOOD.replace("reader", "king"),
        GOOD.replace("https:", "file:"),
        GOOD.replace('"s"', "3"),
        GOOD.replace('{ x = "reader" }', '"reader"'),
    ],
)
def test_an_invalid_file_is_refused_by_name(tmp_path, text):
    path = tmp_path / "broker.toml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(Invalid, match=r"broker\.toml"):
        configured(Settings(), path)
