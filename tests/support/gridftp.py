"""Real globus-gridftp-servers on loopback, as context managers.

    with GridFTPServer(tmp_path) as server:
        fetch(server.url("data.bin"))

A server serves the directory `root`. Tests can kill or pause it with its sessions, like a machine that fails. For GSI,
pass its variables in `env`, and use `gsiftp` URLs.
"""

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from tests.support.ending import guarded, kill_group
from tests.support.listening import reserved, wait_until_listening
from tests.support.waiting import PATIENCE

__all__ = ["GridFTPServer", "need_gridftp"]

PROGRAM = "globus-gridftp-server"
PACKAGE = "globus-gridftp-server-progs"
START_SECONDS = PATIENCE
NAMES = {"RES_OPTIONS": "timeout:1 attempts:5"}
"""Resolver options: if the name service loses a query, repeat it after 1 s instead of 5."""
LIFE_SECONDS = 10 * int(PATIENCE)  # for servers whose test was killed: `timeout` ends them


def need_gridftp() -> None:
    """Skip the test, or fail it in CI, if the server is not installed."""
    if shutil.which(PROGRAM):
        return
    import pytest  # the demo also uses these servers, without the tests' libraries

    message = f"{PROGRAM} is not installed: apt-get install {PACKAGE} globus-gass-copy-progs"
    if os.environ.get("CI"):
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


class GridFTPServer:
    """One running server, ready when constructed.

    :param root: directory that it serves; created if missing
    :param host: IPv4 or IPv6 address of control and data connections
    :param env: variables added to the environment (X509_CERT_DIR, GRIDMAP, ...)
    :param options: further command-line options; an `-anonymous-user` among them replaces the default user
    :param anonymous: whether anonymous login is allowed
    :param port: port of a killed server that has not been closed yet, to start again in its place; 0: a free port
    :param prefix: a command that replaces itself (exec) by the server's command; the server then chooses a port
    :param life: seconds after which the server is killed in any case
    """

    def __init__(
        self,
        root: Path,
        host: str = "127.0.0.1",
        env: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        anonymous: bool = True,
        port: int = 0,
        prefix: Sequence[str] = (),
        life: int = LIFE_SECONDS,
    ) -> None:
        need_gridftp()
        root.mkdir(parents=True, exist_ok=True)
        self.root = root.resolve()
        self.host = host
        self._reserved = None if port or prefix else reserved(host)
        self.port = self._reserved.getsockname()[1] if self._reserved else port
        limit = ["timeout", "--signal=KILL", str(life)]
        self._process = guarded(
            subprocess.Popen(
                [*prefix, *limit, *self._command(options, anonymous)],
                env={**os.environ, **NAMES, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        )
        try:
            self.port = self._answering() if self.port else self._read_port()
        except BaseException:
            self.close()
            raise

    def _command(self, options: Sequence[str], anonymous: bool) -> list[str]:
        # Without -c the machine-wide /etc/gridftp.conf would be read.
        command = [PROGRAM, "-c", os.devnull, "-p", str(self.port)]
        command += ["-control-interface", self.host, "-data-interface", self.host, "-home-dir", str(self.root)]
        if anonymous:
            command.append("-aa")
        if os.geteuid() == 0:
            command.append("-allow-root")
            if anonymous and "-anonymous-user" not in options:
                command += ["-anonymous-user", "root", "-anonymous-group", "root"]
        return [*command, *options]

    def _answering(self) -> int:
        """Wait until the server listens; with a given port, it does not report when it is ready."""
        if wait_until_listening(self._process, self.host, self.port, START_SECONDS):
            return self.port
        output = self._read_output(time.monotonic()).decode(errors="replace")
        raise RuntimeError(f"{PROGRAM} did not start at port {self.port}: {output}")

    def _read_port(self) -> int:
        output, deadline = b"", time.monotonic() + START_SECONDS
        while not (match := re.search(rb"listening at .*:(\d+)\s", output)):
            chunk = self._read_output(deadline)
            if not chunk:
                raise RuntimeError(f"{PROGRAM} did not start: {output.decode(errors='replace')}")
            output += chunk
        return int(match[1])

    def _read_output(self, deadline: float) -> bytes:
        """Return the server's next output; empty at its end or at the deadline."""
        assert self._process.stdout is not None
        if self._process.stdout.closed:
            return b""
        stdout = self._process.stdout.fileno()
        readable, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
        return os.read(stdout, 4096) if readable else b""

    def url(self, path: str, scheme: str = "ftp") -> str:
        """Return the URL of the file `path` below `root`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}{quote(str(self.root / path))}"

    def kill(self) -> None:
        """Kill the server and its sessions with SIGKILL; then connections are reset, and the port is closed."""
        kill_group(self._process)

    @property
    def sessions(self) -> list[int]:
        """Return the process ids of the sessions, one for each client's control connection."""
        (server,) = _children(self._process.pid)
        return _children(server)

    def end_sessions(self) -> None:
        """Kill only the sessions with SIGKILL: clients lose their connections, and can connect again."""
        sessions = self.sessions
        for session in sessions:
            with contextlib.suppress(ProcessLookupError):  # it may have ended with its client
                os.kill(session, signal.SIGKILL)
        deadline = time.monotonic() + START_SECONDS
        while set(sessions) & set(self.sessions):
            assert time.monotonic() < deadline, "sessions outlived SIGKILL"
            time.sleep(0.002)

    def pause(self) -> None:
        """Stop the server and its sessions with SIGSTOP: connections stay open, but nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused server."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End the server and its sessions, and release its port. May be called twice, and after `kill`."""
        self.kill()
        if self._reserved is not None:
            self._reserved.close()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> "GridFTPServer":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:  # a reaped leader's id may belong to another process by now
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
