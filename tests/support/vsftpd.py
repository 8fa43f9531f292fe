"""A real vsftpd on loopback; with a certificate, it requires TLS, and that data connections resume a session.

It serves the whole file system to anonymous users, as the user who runs the tests.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.ending import guarded, kill_group
from tests.support.listening import reserved, wait_until_listening
from tests.support.waiting import PATIENCE

__all__ = ["Vsftpd"]

LIFE_SECONDS = 10 * int(PATIENCE)
CONF = """
listen=YES
background=NO
listen_address=127.0.0.1
listen_port={port}
run_as_launching_user=YES
seccomp_sandbox=NO
isolate=NO
isolate_network=NO
secure_chroot_dir={run}
xferlog_enable=NO
anonymous_enable=YES
no_anon_password=YES
anon_root={root}
anon_world_readable_only=NO
"""
TLS = """
ssl_enable=YES
implicit_ssl={implicit}
allow_anon_ssl=YES
force_anon_logins_ssl=YES
force_anon_data_ssl=YES
require_ssl_reuse=YES
ssl_ciphers=HIGH
rsa_cert_file={certificate}
rsa_private_key_file={key}
"""


class Vsftpd:
    """One running server, ready when constructed.

    :param root: directory with the files
    :param run: directory for its configuration
    :param certificate: files of certificate and key; none for connections without TLS
    :param implicit: whether connections begin with TLS
    :param port: port of a killed server that has not been closed yet, to start again in its place; 0: a free port
    """

    def __init__(
        self, root: Path, run: Path, certificate: Sequence[Path] = (), *, implicit: bool = False, port: int = 0
    ) -> None:
        program = shutil.which("vsftpd", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            (pytest.fail if os.environ.get("CI") else pytest.skip)("vsftpd is not installed: apt-get install vsftpd")
        root.mkdir(parents=True, exist_ok=True)
        run.mkdir(parents=True, exist_ok=True)
        self._reserved = None if port else reserved("127.0.0.1")
        self.root = root
        self.port = self._reserved.getsockname()[1] if self._reserved else port
        self.scheme = "ftp" if not certificate else "ftps" if implicit else "ftpes"
        text = CONF.format(port=self.port, run=run, root=root)
        if certificate:
            pem, key = certificate
            text += TLS.format(implicit="YES" if implicit else "NO", certificate=pem, key=key)
        conf = run / "vsftpd.conf"
        conf.write_text(text.replace("\n\n", "\n").lstrip())
        command = ["timeout", "--signal=KILL", str(LIFE_SECONDS), program, str(conf)]
        log = run / "stderr.log"
        with log.open("ab") as stderr:
            self._process = guarded(subprocess.Popen(command, stdout=stderr, stderr=stderr, start_new_session=True))
        if not wait_until_listening(self._process, "127.0.0.1", self.port, PATIENCE):
            self.close()
            raise RuntimeError(f"vsftpd did not start: {log.read_text()}")

    def url(self, path: str, scheme: str | None = None) -> str:
        """Return the URL of the file `path` below the root."""
        return f"{scheme or self.scheme}://127.0.0.1:{self.port}{quote(str(self.root / path))}"

    def kill(self) -> None:
        """Kill the server with SIGKILL; then connections are reset, and the port is closed."""
        kill_group(self._process)

    def close(self) -> None:
        """End the server, and release its port. May be called twice."""
        self.kill()
        if self._reserved is not None:
            self._reserved.close()

    def __enter__(self) -> "Vsftpd":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
