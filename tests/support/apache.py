"""A real Apache with WebDAV on loopback, with its own configuration; it reads no configuration of the machine."""

import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.ending import guarded, kill_group
from tests.support.listening import reserved, wait_until_listening
from tests.support.waiting import PATIENCE
from tests.support.xrootd import NOBODY

__all__ = ["Apache"]

START_SECONDS = PATIENCE
LIFE_SECONDS = 10 * int(PATIENCE)
MODULES = "/usr/lib/apache2/modules"
CONF = """
ServerRoot {run}
PidFile {run}/pid
ErrorLog {run}/error.log
DefaultRuntimeDir {run}
ServerName localhost
Listen {host}:{port}
StartServers 1
KeepAliveTimeout 60
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule dav_module {modules}/mod_dav.so
LoadModule dav_fs_module {modules}/mod_dav_fs.so
DavLockDB {run}/lock
DocumentRoot {root}
<Directory {root}>
  Dav On
  Require all granted
  <LimitExcept GET HEAD PROPFIND OPTIONS>
    Require all denied
  </LimitExcept>
</Directory>
"""


class Apache:
    """One running server, ready when constructed.

    :param root: directory that it serves
    :param run: directory for its configuration, logs and locks
    :param port: None for a free port, which stays reserved until `close`, also while the server is down
    """

    scheme = "dav"

    def __init__(self, root: Path, run: Path, *, host: str = "127.0.0.1", port: int | None = None) -> None:
        program = shutil.which("apache2", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(
                "apache2 is not installed: apt-get install apache2-bin"
            )
        root.mkdir(parents=True, exist_ok=True)
        run.mkdir(parents=True, exist_ok=True)
        run.chmod(0o777)
        self._reserved = None if port else reserved(host)
        self.root, self.host = root, host
        self.port = self._reserved.getsockname()[1] if self._reserved else port
        conf = CONF.format(run=run, root=root.resolve(), host=host, port=self.port, modules=MODULES)
        (run / "httpd.conf").write_text(conf)
        become = NOBODY.split() if os.geteuid() == 0 else []  # apache refuses to serve as root
        limit = ["timeout", "--signal=KILL", str(LIFE_SECONDS)]
        self._log = run / "error.log"
        command = [*limit, *become, program, "-D", "FOREGROUND", "-f", str(run / "httpd.conf")]
        self._process = guarded(subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd="/", start_new_session=True))
        if not wait_until_listening(self._process, self.host, self.port, START_SECONDS):
            self.close()
            raise RuntimeError(f"apache2 did not start: {self._log.read_text() if self._log.exists() else ''}")

    def url(self, path: str, scheme: str | None = None) -> str:
        """Return the URL of the file `path` below the root."""
        return f"{scheme or self.scheme}://{self.host}:{self.port}/{quote(path)}"

    def kill(self) -> None:
        """Kill the server with SIGKILL; then connections are reset, and the port is closed."""
        kill_group(self._process)

    def close(self) -> None:
        """End the server, and release its port. May be called twice."""
        self.kill()
        if self._reserved is not None:
            self._reserved.close()

    def __enter__(self) -> "Apache":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
