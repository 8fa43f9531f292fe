"""Tokens of a real OpenID provider, got as a person's browser gets them, at a broker that is told of it by its file."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.support.broker import BrokerProcess
from tests.support.ending import kill_group
from tests.support.listening import wait_until_listening
from tests.support.nginx import free_port

HERE, SECONDS, BACK = "127.0.0.1", 30, "http://localhost/back"
GROUPS = {"ann": ["/lab", "/lab/production"], "bob": ["/elsewhere"]}
CONFIG = """
[[issuer]]
url = "{}"
audience = ["coget-broker"]
roles = {{ "/lab" = "reader", "/lab/production" = "transfer" }}
"""


class Provider:
    """A running provider, whose tokens last for so many seconds."""

    def __init__(self, seconds: int) -> None:
        port = free_port(HERE)
        self.url = f"http://{HERE}:{port}"
        users = [json.dumps({"sub": sub, "groups": groups}) for sub, groups in GROUPS.items()]
        said = [word for user in users for word in ("--user-claims", user)]
        program = Path(sys.executable).with_name("oidc-provider-mock")
        command = [program, "-H", HERE, "-p", str(port), f"--token-max-age={seconds}", *said]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
        assert wait_until_listening(self.process, HERE, port, SECONDS)

    def token(self, subject: str, audience: str = "coget-broker") -> str:
        """Log in, and be sent back with a code for which it gives a token."""
        with httpx.Client(base_url=self.url, timeout=SECONDS) as browser:
            asked = {"client_id": audience, "redirect_uri": BACK, "response_type": "code", "scope": "openid"}
            sent = browser.post("/oauth2/authorize", params=asked, data={"sub": subject})
            (code,) = parse_qs(urlsplit(sent.headers["Location"]).query)["code"]
            wanted = {"grant_type": "authorization_code", "code": code, "redirect_uri": BACK}
            return browser.post("/oauth2/token", data=wanted, auth=(audience, "secret")).json()["id_token"]


@pytest.fixture(scope="module")
def providers() -> Iterator[tuple[Provider, Provider]]:
    """One whose tokens last, and one whose tokens are old when they come."""
    started = Provider(600), Provider(-60)
    yield started
    for each in started:
        kill_group(each.process)


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


def test_its_token_for_somebody_else_and_one_that_expired_are_refused(broker, providers):
    for token in (providers[0].token("ann", "another-service"), providers[1].token("ann")):
        answer = _whoami(broker, token)
        assert (answer.status_code, answer.json()["error"]["message"]) == (401, "the token is not valid here")
