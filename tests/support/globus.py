"""The real Globus clients, each in its own virtual environment, because the CLI requires another version of the SDK.

    globus = Globus(tmp_path / "home", broker.url)
    globus.as_client(number, secret)            # login A: by client credentials
    globus.remember(number, secret, tokens)     # login B: as if `globus login` had been run before
    globus.cli("login", BROWSER=...)            # login C: as users do
    assert globus.json("ls", f"{collection}:/")["DATA"]
    assert globus.sdk("print(json.dumps(TransferClient(authorizer=...).get_task(...).data))")

No token can leave this machine: HOME is a directory of the test, and GLOBUS_SDK_ENVIRONMENT names an environment that
the clients do not know. So each service whose address is not set fails, instead of using globus.org.
"""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support import programs
from tests.support.waiting import PATIENCE

__all__ = ["CLIENTS", "ENVIRONMENT", "Globus", "made"]

FOLDER = Path(__file__).parents[2] / "build" / "globus"
CLIENTS = {"cli": "globus-cli>=3.43", "sdk": "globus-sdk>=4.9,<5,!=4.10.0"}
"""Requirements of the clients; globus-sdk 4.10.0 requires a certifi that was never published."""
ENVIRONMENT = "broker"
SECONDS = PATIENCE
KEPT = ("PATH", "TMPDIR", "LANG", "LC_ALL", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
"""Variables of the tests' environment that clients get: none identifies a user or names a server."""
REMEMBER = """
import json, sys
from types import SimpleNamespace
from globus_cli.login_manager.storage import CLIStorage

document, storage = json.load(sys.stdin), CLIStorage()
storage.store_well_known_config("auth_client_data", document["client"])
storage.store_well_known_config("auth_user_data", {"sub": document["sub"]})
storage.store(SimpleNamespace(by_resource_server=document["tokens"]))
storage.close()
"""
SDK = "import json, os, sys\nimport globus_sdk\nfrom globus_sdk import *\n"


def made(name: str) -> Path:
    """Return the directory of a client's programs. Install the client if it or the required version is missing."""
    folder, wanted = FOLDER / name, CLIENTS[name]
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = folder / "ready"
        if not ready.exists() or ready.read_text() != wanted:
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted]
            done = subprocess.run(pip, check=False)
            if done.returncode:
                fail = pytest.fail if os.environ.get("CI") else pytest.skip
                fail(f"{wanted} cannot be installed: check the network, then run python -m tests.support.prepared")
            ready.write_text(wanted)
    return folder / "bin"


class ForkedCLI(programs.ForkedProcess):
    """A process of `globus`."""

    loaded_in = {name: os.environ[name] for name in KEPT if name in os.environ} | {
        "GLOBUS_SDK_ENVIRONMENT": ENVIRONMENT,
    }


class Globus:
    """A user whose clients use one broker.

    :param home: home directory of the user, where the clients store tokens
    :param url: URL of the broker
    """

    def __init__(self, home: Path, url: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        address = url.rstrip("/") + "/"
        self.environment = {name: os.environ[name] for name in KEPT if name in os.environ} | {
            "HOME": str(home),
            "GLOBUS_SDK_ENVIRONMENT": ENVIRONMENT,
            "GLOBUS_SDK_SERVICE_URL_TRANSFER": address,
            "GLOBUS_SDK_SERVICE_URL_AUTH": address,
            "GLOBUS_CLI_INTERACTIVE": "0",
            "NO_PROXY": "*",
        }

    def as_client(self, number: str, secret: str) -> Self:
        """Make the user a service with a client's credentials, which needs no login; return it."""
        self.environment |= {"GLOBUS_CLI_CLIENT_ID": number, "GLOBUS_CLI_CLIENT_SECRET": secret}
        return self

    def remember(self, number: str, secret: str, sub: str, tokens: Mapping[str, Mapping[str, Any]]) -> None:
        """Store the tokens of an earlier login in the CLI's home.

        :param number: id of the client that the CLI registered for itself
        :param secret: secret of this client
        :param sub: the user's identity
        :param tokens: tokens by resource server, in the form of the SDK's `by_resource_server`
        """
        document = {"client": {"client_id": number, "client_secret": secret}, "sub": sub, "tokens": tokens}
        done = self._run([made("cli") / "python", "-c", REMEMBER], json.dumps(document), {})
        assert done.returncode == 0, done.stderr

    def cli(
        self, *words: str, status: int = 0, stdin: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `globus`, and check its exit status."""
        start = ForkedCLI if programs.forks else subprocess.Popen
        done = self._run([made("cli") / "globus", *words], stdin, environment, start)
        assert done.returncode == status, f"globus {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def json(self, *words: str, **environment: str) -> Any:
        """Run `globus` with JSON output; return the parsed output."""
        return json.loads(self.cli(*words, "--format", "json", **environment).stdout)

    def sdk(self, script: str, *words: str, **environment: str) -> Any:
        """Run Python code that can use all names of `globus_sdk`; return its last line of output, parsed as JSON."""
        done = self._run([made("sdk") / "python", "-W", "error", "-c", SDK + script, *words], "", environment)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        lines = done.stdout.splitlines()
        return json.loads(lines[-1]) if lines else None

    def _run(
        self,
        command: list[Path | str],
        stdin: str,
        environment: Mapping[str, str],
        start: type[subprocess.Popen[str]] = subprocess.Popen,
    ) -> subprocess.CompletedProcess[str]:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        folder = self.environment["HOME"]
        with start(command, env=self.environment | environment, cwd=folder, text=True, **pipes) as process:
            try:
                out, err = process.communicate(stdin, timeout=SECONDS)
            finally:
                process.kill()
        return subprocess.CompletedProcess(command, process.returncode, out, err)
