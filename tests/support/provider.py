"""A real OpenID provider in a separate process, whose users are in groups."""

import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx

from tests.support.ending import guarded, kill_group
from tests.support.listening import reserved, wait_until_listening
from tests.support.waiting import PATIENCE

__all__ = ["SECONDS", "Provider"]

HERE, SECONDS, BACK = "127.0.0.1", PATIENCE, "http://localhost/back"
GROUPS = {"ann": ["/lab", "/lab/production"], "bob": ["/elsewhere"]}


class Provider:
    """A running provider.

    :param seconds: lifetime of its tokens
    """

    def __init__(self, seconds: int) -> None:
        self._reserved = reserved(HERE)
        port = self._reserved.getsockname()[1]
        self.url = f"http://{HERE}:{port}"
        users = [json.dumps({"sub": sub, "groups": groups}) for sub, groups in GROUPS.items()]
        claims = [word for user in users for word in ("--user-claims", user)]
        program = Path(sys.executable).with_name("oidc-provider-mock")
        command = [program, "-H", HERE, "-p", str(port), f"--token-max-age={seconds}", *claims]
        self.process = guarded(subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True))
        assert wait_until_listening(self.process, HERE, port, SECONDS)

    def close(self) -> None:
        """End the provider, and release its port."""
        kill_group(self.process)
        self._reserved.close()

    def token(self, subject: str, audience: str = "coget-broker") -> str:
        """Log in as a user with the code flow; return the ID token."""
        with httpx.Client(base_url=self.url, timeout=SECONDS) as browser:
            asked = {"client_id": audience, "redirect_uri": BACK, "response_type": "code", "scope": "openid"}
            sent = browser.post("/oauth2/authorize", params=asked, data={"sub": subject})
            (code,) = parse_qs(urlsplit(sent.headers["Location"]).query)["code"]
            wanted = {"grant_type": "authorization_code", "code": code, "redirect_uri": BACK}
            return browser.post("/oauth2/token", data=wanted, auth=(audience, "secret")).json()["id_token"]
