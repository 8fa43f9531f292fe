"""A real OpenSSH server with SFTP on loopback, which runs as the user of the tests."""

import getpass
import os
import shutil
import subprocess
from pathlib import Path
from typing import Self

from tests.support.listening import reserved, wait_until_listening
from tests.support.waiting import PATIENCE

__all__ = ["SSHD"]

SECONDS = PATIENCE


class SSHD:
    """A server whose host keys can be replaced; the end of the `with` block ends it.

    :param folder: directory for its keys and its log
    :param home: home directory in which a key is created that the server accepts
    """

    def __init__(self, folder: Path, home: Path) -> None:
        self._folder = folder
        folder.mkdir()
        (home / ".ssh").mkdir(mode=0o700, parents=True)
        self._keygen(home / ".ssh" / "id_ed25519", "ed25519")
        shutil.copy(home / ".ssh" / "id_ed25519.pub", folder / "authorized")
        for kind in ("ed25519", "rsa"):
            self._keygen(folder / kind, kind)
        self._reserved = reserved("127.0.0.1")
        self.port = self._reserved.getsockname()[1]
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # normally created by its systemd unit

    @staticmethod
    def _keygen(path: Path, kind: str) -> None:
        bits = ["-b", "2048"] if kind == "rsa" else []  # larger keys take seconds to generate
        subprocess.run(["ssh-keygen", "-q", "-t", kind, *bits, "-N", "", "-f", path], check=True)

    def url(self, path: Path, host: str = "127.0.0.1") -> str:
        return f"sftp://{getpass.getuser()}@{host}:{self.port}{path}"

    def key(self, kind: str) -> str:
        """Return a host key as a line of known_hosts, without host names."""
        return " ".join((self._folder / f"{kind}.pub").read_text().split()[:2])

    def exchange(self) -> None:
        """Replace the host keys, and restart the server."""
        for kind in ("ed25519", "rsa"):
            for path in (self._folder / kind, self._folder / f"{kind}.pub"):
                path.unlink()
            self._keygen(self._folder / kind, kind)
        self._end()
        self._start()

    def __enter__(self) -> Self:
        self._start()
        return self

    def _start(self) -> None:
        program = shutil.which("sshd") or "/usr/sbin/sshd"
        options = {
            "ListenAddress": "127.0.0.1",
            "AuthorizedKeysFile": self._folder / "authorized",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "PermitRootLogin": "yes",
            "PidFile": "none",
            "Subsystem": "sftp internal-sftp",
        }
        words = [f"-o{name}={value}" for name, value in options.items()]
        keys = [f"-h{self._folder / kind}" for kind in ("ed25519", "rsa")]
        command = [program, "-D", "-e", "-f", "/dev/null", "-p", str(self.port), *keys, *words]
        self._log = (self._folder / "log").open("ab")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        if not wait_until_listening(self._process, "127.0.0.1", self.port, SECONDS):
            self.__exit__()
            raise RuntimeError(f"sshd did not start: {(self._folder / 'log').read_text()}")

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait(SECONDS)
        self._log.close()

    def __exit__(self, *_: object) -> None:
        self._end()
        self._reserved.close()
