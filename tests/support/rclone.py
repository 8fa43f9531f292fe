"""`rclone serve` of Debian: real servers of several protocols."""

import os
import subprocess
from pathlib import Path

from tests.support.loopback_server import LoopbackServer, installed

__all__ = ["PASSWORD", "PROTOCOLS", "Rclone"]

PROTOCOLS = {"http": "http", "webdav": "dav", "sftp": "sftp"}
"""Schemes of coget by rclone's protocols."""
PASSWORD = "password-of-the-tests"
"""The password of SFTP servers."""


class Rclone(LoopbackServer):
    """One server.

    :param protocol: one of `PROTOCOLS`
    :param home: home directory; its known_hosts file gets the host key of an SFTP server
    """

    def __init__(self, root: Path, run: Path, protocol: str, home: Path) -> None:
        command = [installed("rclone", "rclone"), "serve", protocol]
        super().__init__(root, run, "127.0.0.1", 0)
        self.scheme = PROTOCOLS[protocol]
        if protocol == "sftp":
            self._make_known(home)
            command += ["--user", "me", "--pass", PASSWORD, "--key", str(run / "key")]
        config = ["--config", os.devnull, "--cache-dir", str(run / "cache")]
        self._start([*command, *config, "--addr", f"{self.host}:{self.port}", str(root)])

    def _make_known(self, home: Path) -> None:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.run / "key"], check=True)
        key = " ".join((self.run / "key.pub").read_text().split()[:2])
        (home / ".ssh").mkdir(parents=True)
        (home / ".ssh" / "known_hosts").write_text(f"[{self.host}]:{self.port} {key}\n")

    def url(self, path: str, scheme: str | None = None) -> str:
        if self.scheme == "sftp":  # whose paths are literal
            return f"sftp://me:{PASSWORD}@{self.host}:{self.port}/{path}"
        return super().url(path, scheme)
