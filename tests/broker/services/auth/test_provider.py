"""Tokens of a real OpenID provider, obtained like a user's browser does, at a broker configured by its file."""

import re
from collections.abc import Iterator

import httpx
import pytest

from tests.support.broker import BrokerProcess
from tests.support.provider import SECONDS, Provider

CONFIG = """
[[issuer]]
url = "{}"
audience = ["coget-broker"]
roles = {{ "/lab" = "reader", "/lab/production" = "transfer" }}
"""


@pytest.fixture(scope="module")
def providers() -> Iterator[tuple[Provider, Provider]]:
    """Two providers: one with lasting tokens, one whose tokens have expired on arrival."""
    started = Provider(600), Provider(-60)
    yield started
    for each in started:
        each.close()


@pytest.fixture(scope="module")
def broker(providers: tuple[Provider, Provider], tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    (folder / "broker.toml").write_text("".join(CONFIG.format(each.url) for each in providers))
    with BrokerProcess(f"sqlite:///{folder / 'b.sqlite'}", folder, "", "--config", "broker.toml") as running:
        yield running


def _whoami(broker: BrokerProcess, token: str) -> httpx.Response:
    return httpx.get(f"{broker.url}/broker/v1/whoami", headers={"Authorization": f"Bearer {token}"}, timeout=SECONDS)


def test_its_token_gives_the_role_of_the_group(broker, providers):
    caller = _whoami(broker, providers[0].token("ann")).json()
    assert (caller["role"], re.sub("@.*", "", caller["subject"])) == ("transfer", "ann")
    stranger = _whoami(broker, providers[0].token("bob"))
    assert (stranger.status_code, stranger.json()["error"]["code"]) == (403, "forbidden")


def test_tokens_that_are_expired_or_for_another_audience_are_refused(broker, providers):
    for token in (providers[0].token("ann", "another-service"), providers[1].token("ann")):
        answer = _whoami(broker, token)
        assert (answer.status_code, answer.json()["error"]["message"]) == (401, "the token is not valid here")
