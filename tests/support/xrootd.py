"""A real, read-only xrootd for xrdcp, with which coget is compared; each server is a context manager."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.ending import guarded, kill_group
from tests.support.listening import wait_until_listening
from tests.support.waiting import PATIENCE

__all__ = ["XRootD"]

START_SECONDS = PATIENCE
STARTS = 3  # about one start in a hundred fails silently after five seconds
LIFE_SECONDS = 10 * int(PATIENCE)
CONF = """
all.role server
all.export / nolock r/o
oss.localroot {root}
all.adminpath {run}
all.pidpath {run}
xrd.port {port}
xrd.network nodnr
{more}
"""
HTTP = """
xrd.protocol http:{port} libXrdHttp.so
xrootd.chksum max 2 adler32
"""
# xrootd refuses to run as root. As nobody with this capability, it can read all files.
NOBODY = (
    "setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=+dac_read_search --ambient-caps=+dac_read_search"
)


class XRootD:
    """One running server, ready when constructed.

    :param root: directory that it serves
    :param run: directory for its configuration, logs and other files
    :param prefix: a command that replaces itself (exec) by the server's command
    :param http: whether it also speaks HTTP and WebDAV at its port
    :param life: seconds after which the server is killed in any case
    """

    def __init__(
        self,
        root: Path,
        run: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 1094,
        prefix: Sequence[str] = (),
        http: bool = False,
        life: int = LIFE_SECONDS,
    ) -> None:
        if not shutil.which("xrootd"):
            (pytest.fail if os.environ.get("CI") else pytest.skip)(
                "xrootd is not installed: apt-get install xrootd-server"
            )
        self.host, self.port = host, port
        limit = ["timeout", "--signal=KILL", str(life)]
        become = NOBODY.split() if os.geteuid() == 0 else []
        more = HTTP.format(port=port) if http else ""
        for start in range(STARTS):
            folder = run / str(start)
            folder.mkdir(parents=True)
            folder.chmod(0o777)
            (folder / "xrootd.cf").write_text(CONF.format(root=root.resolve(), run=folder, port=port, more=more))
            command = ["xrootd", "-c", str(folder / "xrootd.cf"), "-l", str(folder / "log"), "-I", "v4"]
            words = [*prefix, *limit, *become, *command]
            self._process = guarded(subprocess.Popen(words, cwd="/", start_new_session=True))
            if wait_until_listening(self._process, host, port, START_SECONDS):
                return
            self.close()
        raise RuntimeError("xrootd did not start:\n" + "".join(log.read_text() for log in run.glob("**/log")))

    def url(self, path: str) -> str:
        """Return the URL of the file `path` below the root."""
        return f"root://{self.host}:{self.port}//{quote(path)}"

    def web_url(self, path: str) -> str:
        """Return the URL of the file `path` for WebDAV."""
        return f"dav://{self.host}:{self.port}/{quote(path)}"

    def kill(self) -> None:
        """Kill the server with SIGKILL; then connections are reset, and the port is closed."""
        kill_group(self._process)

    def close(self) -> None:
        """End the server. May be called twice."""
        self.kill()

    def __enter__(self) -> "XRootD":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
