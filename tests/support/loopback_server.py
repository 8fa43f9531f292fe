"""The base of real servers on loopback that are programs of other projects: start, end, pause, and their URLs."""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self
from urllib.parse import quote

import pytest

from tests.support.ending import guarded, kill_group
from tests.support.listening import reserved, wait_until_listening
from tests.support.waiting import PATIENCE

__all__ = ["LIFE_SECONDS", "LoopbackServer", "installed"]

LIFE_SECONDS = 10 * int(PATIENCE)  # for servers whose test was killed: `timeout` ends them


def installed(program: str, package: str) -> str:
    """Return the path of a server's program. Skip the test, or fail it in CI, if it is not installed."""
    path = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{program} is not installed: apt-get install {package}")
    return path


class LoopbackServer:
    """One running server, ready after `_start`, which the constructor of each subclass calls.

    :param root: directory that it serves; created if missing
    :param run: directory for its configuration, logs and temporary files; created if missing
    :param port: port of a killed server that has not been closed yet, to start again in its place; 0: a free port,
        which stays reserved until `close`, also while the server is down
    """

    scheme: str

    def __init__(self, root: Path, run: Path, host: str, port: int) -> None:
        root.mkdir(parents=True, exist_ok=True)
        run.mkdir(parents=True, exist_ok=True)
        self._reserved = None if port else reserved(host)
        self.root, self.run, self.host = root, run, host
        self.port = self._reserved.getsockname()[1] if self._reserved else port

    def _start(self, command: Sequence[str], prefix: Sequence[str] = (), life: int = LIFE_SECONDS) -> None:
        """Start the server, and wait until it listens.

        :param prefix: a command that replaces itself (exec) by the server's command
        :param life: seconds after which the server is killed in any case
        """
        words = [*prefix, "timeout", "--signal=KILL", str(life), *command]
        with (self.run / "output.log").open("ab") as log:
            self._process = guarded(subprocess.Popen(words, stdout=log, stderr=log, cwd="/", start_new_session=True))
        if not wait_until_listening(self._process, self.host, self.port, PATIENCE):
            self.close()
            raise RuntimeError(f"{command} failed: {''.join(log.read_text() for log in self.run.glob('*.log'))}")

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
