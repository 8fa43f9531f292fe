"""Emulators of Azure and of Google Cloud Storage, which `make test-servers` installs below COGET_SERVERS."""

import base64
import hashlib
import hmac
import os
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.support.loopback_server import LoopbackServer

__all__ = ["ACCOUNT", "ACCOUNT_KEY", "Azurite", "Cloud", "FakeGCS"]

ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account of every Azurite, which its documentation names."""
VERSION = "2021-08-06"


def program(path: str) -> str:
    """Return the path of an emulator. Skip the test if it is not installed."""
    found = Path(os.environ.get("COGET_SERVERS", "build/servers"), path).absolute()
    if not found.exists():
        pytest.skip(f"{found.name} is not installed: make test-servers does")
    return str(found)


class Cloud(LoopbackServer, ABC):
    """An emulator with a bucket or container "open", which anybody may read."""

    scheme = "http"

    @property
    @abstractmethod
    def environment(self) -> dict[str, str]:
        """The environment in which coget reads from it."""

    @property
    @abstractmethod
    def credentials(self) -> dict[str, str]:
        """Valid credentials."""

    @abstractmethod
    def put(self, path: str, content: bytes) -> None:
        """Store an object at BUCKET/KEY."""


class Azurite(Cloud):
    """An Azurite, also with a container "closed"."""

    def __init__(self, run: Path) -> None:
        command = program("node_modules/.bin/azurite-blob")
        super().__init__(run / "root", run, "127.0.0.1", 0)
        place = ["--blobHost", self.host, "--blobPort", str(self.port)]
        self._start(
            [command, *place, "--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        )
        self._send("/open", {"restype": "container"}, {"x-ms-blob-public-access": "container"})
        self._send("/closed", {"restype": "container"}, {})

    @property
    def environment(self) -> dict[str, str]:
        return {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_ENDPOINT": self.url(ACCOUNT)}

    @property
    def credentials(self) -> dict[str, str]:
        return {"AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY}

    def put(self, path: str, content: bytes) -> None:
        self._send(f"/{quote(path)}", {}, {"x-ms-blob-type": "BlockBlob"}, content)

    def _send(self, path: str, query: dict[str, str], headers: dict[str, str], content: bytes = b"") -> None:
        now = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers = {"x-ms-date": now, "x-ms-version": VERSION, **headers}
        lines = ["PUT", "", "", str(len(content) or ""), *[""] * 8]
        lines += [f"{name}:{value}" for name, value in sorted(headers.items())]
        lines += [f"/{ACCOUNT}/{ACCOUNT}{path}", *(f"{name}:{value}" for name, value in sorted(query.items()))]
        digest = hmac.new(base64.b64decode(ACCOUNT_KEY), "\n".join(lines).encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        httpx.put(self.url(ACCOUNT) + path, params=query, headers=headers, content=content).raise_for_status()


class FakeGCS(Cloud):
    """A fake-gcs-server."""

    def __init__(self, run: Path) -> None:
        command = program("bin/fake-gcs-server")
        super().__init__(run / "root", run, "127.0.0.1", 0)
        place = [
            "-scheme",
            "http",
            "-host",
            self.host,
            "-port",
            str(self.port),
            "-public-host",
            f"{self.host}:{self.port}",
        ]
        self._start([command, *place, "-backend", "memory"])
        httpx.post(self.url("storage/v1/b"), json={"name": "open"}).raise_for_status()

    @property
    def environment(self) -> dict[str, str]:
        return {"GOOGLE_BASE_URL": f"http://{self.host}:{self.port}"}

    @property
    def credentials(self) -> dict[str, str]:
        return {"GOOGLE_BEARER_TOKEN": "a-token-of-the-tests"}

    def put(self, path: str, content: bytes) -> None:
        bucket, _, key = path.partition("/")
        place = self.url(f"upload/storage/v1/b/{bucket}/o")
        httpx.post(place, params={"uploadType": "media", "name": key}, content=content).raise_for_status()
