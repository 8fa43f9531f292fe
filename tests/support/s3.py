"""S3 servers of the tests: moto, which keeps its buckets in memory, and the environment in which coget uses a server.

Any web server is an S3 server for readers, as far as it can ignore signatures: tests of speed, and of servers that die,
use nginx.
"""

import os
import subprocess
import sys
from typing import Any

import pytest

from tests.support.ending import guarded, kill_group
from tests.support.listening import reserved, wait_until_listening
from tests.support.waiting import PATIENCE

__all__ = ["KEYS", "Moto", "use_s3"]

KEYS = {"AWS_ACCESS_KEY_ID": "AKIACOGETTESTS", "AWS_SECRET_ACCESS_KEY": "secret-of-the-tests"}


def use_s3(monkeypatch: pytest.MonkeyPatch, endpoint: str, **more: str) -> None:
    """Let coget use this server with the tests' keys, and nothing of the user's own settings."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    settings = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    alone = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_ENDPOINT_URL": endpoint}
    for name, value in {**settings, **alone, **KEYS, **more}.items():
        monkeypatch.setenv(name, value)


class Moto:
    """A running S3 server."""

    def __init__(self) -> None:
        self._reserved = reserved("127.0.0.1")
        self.port = self._reserved.getsockname()[1]
        program = "import sys; from moto.server import main; main(sys.argv[1:])"
        command = [sys.executable, "-c", program, "-H", "127.0.0.1", "-p", str(self.port)]
        self._process = guarded(
            subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )
        if not wait_until_listening(self._process, "127.0.0.1", self.port, PATIENCE):
            self.close()
            raise RuntimeError("moto did not start")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> Any:
        """Return a client of botocore, with which tests create buckets and objects."""
        import botocore.session

        session = botocore.session.Session()
        session.set_credentials(KEYS["AWS_ACCESS_KEY_ID"], KEYS["AWS_SECRET_ACCESS_KEY"])
        return session.create_client("s3", region_name="us-east-1", endpoint_url=self.url)

    def close(self) -> None:
        """End the server. May be called twice."""
        kill_group(self._process)
        self._reserved.close()

    def __enter__(self) -> "Moto":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
