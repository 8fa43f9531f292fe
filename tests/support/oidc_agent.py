"""A real oidc-agent with one account, whose provider is a server of the test."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.ending import guarded, kill_group
from tests.support.waiting import PATIENCE, wait_until
from tests.support.web import Heard, answer

__all__ = ["ACCOUNT", "OIDCAgent", "provider"]

ACCOUNT = "wlcg"
LIFE_SECONDS = 10 * int(PATIENCE)


def provider(url: Callable[[], str], token: Callable[[], str], seconds: int) -> Callable[[Heard], bytes]:
    """Return a function that answers as an OpenID provider, which renews tokens.

    :param url: function that returns the provider's URL
    :param token: function that returns the next token
    :param seconds: lifetime of a token
    """

    def reply(heard: Heard) -> bytes:
        document: dict[str, object]
        if heard.startswith("POST"):
            document = {"access_token": token(), "expires_in": seconds, "token_type": "Bearer", "refresh_token": "r"}
        else:
            document = {"issuer": url(), "scopes_supported": ["openid"], "grant_types_supported": ["refresh_token"]}
            document |= {f"{name}_endpoint": f"{url()}/{name}" for name in ("token", "authorization", "registration")}
        return answer("200 OK", json.dumps(document).encode(), Content_Type="application/json", Connection="close")

    return reply


class OIDCAgent:
    """A running agent, ready when constructed.

    :ivar environment: variables with which its clients find it
    """

    def __init__(self, folder: Path) -> None:
        program = shutil.which("oidc-agent")
        if program is None:
            (pytest.fail if os.environ.get("CI") else pytest.skip)("oidc-agent is not installed: apt-get install it")
        folder.mkdir(mode=0o700)
        place = folder / "socket"
        self.environment = {"OIDC_SOCK": str(place), "OIDC_CONFIG_DIR": str(folder)}
        command = ["timeout", "--signal=KILL", str(LIFE_SECONDS), program, "--console", "-a", str(place)]
        self._process = guarded(
            subprocess.Popen(
                command, stdout=subprocess.DEVNULL, env={**os.environ, **self.environment}, start_new_session=True
            )
        )
        wait_until(lambda: self._process.poll() is not None or _listens(place))

    def add(self, issuer: str) -> None:
        """Create the account, as a user does once with a browser."""
        words = ["oidc-gen", "--manual", f"--iss={issuer}", "--client-id=coget", "--client-secret=s", "--scope=openid"]
        words += ["--rt-env", "--pw-env", "--confirm-default", "--prompt=none", "--no-url-call", ACCOUNT]
        secrets = {"OIDC_REFRESH_TOKEN": "r", "OIDC_ENCRYPTION_PW": "p"}
        environment = {**os.environ, **self.environment, **secrets}
        done = subprocess.run(
            words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def close(self) -> None:
        """End the agent."""
        kill_group(self._process)


def _listens(place: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(place)) == 0
