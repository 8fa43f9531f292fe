"""A real nginx on loopback, with its own configuration; it reads no configuration of the machine."""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.ending import guarded, kill_group
from tests.support.listening import reserved, wait_until_listening
from tests.support.waiting import PATIENCE

__all__ = ["Nginx"]

START_SECONDS = PATIENCE
LIFE_SECONDS = 10 * int(PATIENCE)
CONF = """
daemon off; master_process off; worker_processes 1; pid {run}/nginx.pid; error_log {run}/error.log; {user}
events {{ worker_connections 64; }}
http {{
    access_log off; sendfile on; keepalive_timeout 60; types {{ }} default_type application/octet-stream;
    client_body_temp_path {run}/a; proxy_temp_path {run}/b; fastcgi_temp_path {run}/c;
    uwsgi_temp_path {run}/d; scgi_temp_path {run}/e;
    {zones}
    server {{ listen {host}:{port}{ssl}; root {root}; {certificates} {more} }}
}}
"""


class Nginx:
    """One running server, ready when constructed.

    :param root: directory that it serves
    :param run: directory for its configuration, logs and temporary files
    :param port: None for a free port, which stays reserved until `close`, also while the server is down
    :param certificate: files of certificate and key, for https
    :param more: directives for the server block
    :param zones: directives for the http block, such as zones for limits
    :param prefix: a command that replaces itself (exec) by the server's command
    :param life: seconds after which the server is killed in any case
    """

    def __init__(
        self,
        root: Path,
        run: Path,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        certificate: Sequence[Path] = (),
        more: str = "",
        zones: str = "",
        prefix: Sequence[str] = (),
        life: int = LIFE_SECONDS,
    ) -> None:
        program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            (pytest.fail if os.environ.get("CI") else pytest.skip)("nginx is not installed: apt-get install nginx")
        root.mkdir(parents=True, exist_ok=True)
        run.mkdir(parents=True, exist_ok=True)
        self._reserved = None if port else reserved(host)
        self.root, self.host = root, host
        self.port = self._reserved.getsockname()[1] if self._reserved else port
        self.scheme = "https" if certificate else "http"
        keys = "ssl_certificate {}; ssl_certificate_key {};".format(*certificate) if certificate else ""
        conf = CONF.format(
            run=run,
            host=host,
            port=self.port,
            root=root,
            more=more,
            zones=zones,
            ssl=" ssl" if certificate else "",
            certificates=keys,
            user="user root;" if os.geteuid() == 0 else "",
        )
        (run / "nginx.conf").write_text(conf)
        limit = ["timeout", "--signal=KILL", str(life)]
        command = [*prefix, *limit, program, "-p", str(run), "-c", str(run / "nginx.conf")]
        self._log = run / "stderr.log"
        with self._log.open("ab") as log:
            self._process = guarded(subprocess.Popen(command, stderr=log, start_new_session=True))
        self._wait()

    def _wait(self) -> None:
        if wait_until_listening(self._process, self.host, self.port, START_SECONDS):
            return
        self.close()
        raise RuntimeError(f"nginx did not start: {self._log.read_text()}")

    def url(self, path: str, scheme: str | None = None) -> str:
        """Return the URL of the file `path` below the root."""
        return f"{scheme or self.scheme}://{self.host}:{self.port}/{quote(path)}"

    def kill(self) -> None:
        """Kill the server with SIGKILL; then connections are reset, and the port is closed."""
        kill_group(self._process)

    def pause(self) -> None:
        """Stop the server with SIGSTOP: connections stay open, but nothing is answered."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused server."""
        os.killpg(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the server, and release its port. May be called twice."""
        self.kill()
        if self._reserved is not None:
            self._reserved.close()

    def __enter__(self) -> "Nginx":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
