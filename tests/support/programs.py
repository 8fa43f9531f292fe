"""Fast starts of `coget` and `coget-broker`: forks of a process that has loaded their modules.

What is started is a process of its own, a child of the tests' process: it is waited for, killed and measured as any
other, and `subprocess.Popen` does so. Tests about starting itself use `subprocess`, as `make test-long` does for all.
"""

import array
import atexit
import ctypes
import functools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from predictors.compiled import stamp
from tests.support.effort import LONG
from tests.support.waiting import PATIENCE

__all__ = ["BROKER", "COGET", "LATE", "run", "start", "with_this_checkout"]

HOUSE = Path(__file__).parents[2]
COGET = Path(sys.executable).with_name("coget")
BROKER = Path(sys.executable).with_name("coget-broker")
COMPILED = HOUSE / ".pytest_cache" / f"compiled-{stamp(HOUSE / 'predictors')}"
"""Where forecasters that were compiled are kept, for this state of them."""
SERVER = Path(__file__).with_name("fork_server.py")
PLAIN = frozenset({"stdin", "stdout", "stderr", "cwd", "env", "text", "start_new_session"})
"""Options of Popen that a fork supports."""
AT_START = ("LANG", "LC_", "LD_", "MALLOC_", "PYTHON")
"""Prefix of variables that an interpreter reads at its start."""
LATE = "# When modules are loaded this may run as well.\n"
"""First line of a sitecustomize.py that also works if modules were loaded before it."""
PR_SET_CHILD_SUBREAPER = 36

forks = "PYTEST_VERSION" in os.environ and not LONG
"""Switch that is off where starting itself is tested, and in benchmarks, which measure it."""


def with_this_checkout(environment: Mapping[str, str]) -> dict[str, str]:
    """Add to an environment that Python finds this checkout's packages first, not those that are installed.

    What they compile is kept here, too: in the home of a user, one checkout removes what others have compiled, and in
    that of a test there is nothing.
    """
    before = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    path = os.pathsep.join(before if str(HOUSE) in before else [*before, str(HOUSE)])
    return {"NUMBA_CACHE_DIR": str(COMPILED), **environment, "PYTHONPATH": path}


ENVIRONMENT = with_this_checkout(os.environ)
"""The environment at the start of the tests."""

_prctl = ctypes.CDLL(None, use_errno=True).prctl


def start(command: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]:
    """Start a command as Popen does; quickly if it is one of ours, and nothing is asked for that loading would show.

    Ours are those of this checkout, whichever is installed.
    """
    environment = with_this_checkout(os.environ if options.get("env") is None else options["env"])
    options["env"] = environment
    if not forks or command[0] not in {COGET, str(COGET), BROKER, str(BROKER)} or set(options) - PLAIN:
        return subprocess.Popen(command, **options)
    changed = dict(_at_start(environment).items() ^ _at_start(ENVIRONMENT).items())
    if changed and not (list(changed) == ["PYTHONPATH"] and _customized(environment).startswith(LATE)):
        return subprocess.Popen(command, **options)
    return ForkedProcess(command, **options)


def run(
    command: Sequence[str | Path], check: bool = False, timeout: float = PATIENCE, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run a command to its end as subprocess.run does, with its output captured."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start(command, **pipes, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


class ForkedProcess(subprocess.Popen[Any]):
    """A Popen whose process is forked from a server instead of being executed."""

    def _execute_child(self, args: Sequence[str | Path], *rest: Any) -> None:
        """Do what Popen's method of this name does; see there for the arguments."""
        folder, environment = rest[4:6]
        to_read, _, _, to_write, _, error = streams = rest[9:15]
        session = rest[20]
        if environment is None:
            environment = os.environ
        request = {
            "parent": os.getpid(),
            "words": [os.fspath(word) for word in args],
            "folder": str(Path(folder or ".").absolute()),
            "environment": dict(environment),
            "umask": _umask(),
            "session": session,
            "code": _customized(environment),
        }
        given = [number if number != -1 else usual for usual, number in enumerate((to_read, to_write, error))]
        self.pid = _server(Path(os.fspath(args[0])).name).fork(request, given)
        self._child_created = True
        self._close_pipe_fds(*streams)  # type: ignore[attr-defined]


class ForkServer:
    """The process for one command, and the connection to it; the process ends when the connection closes.

    :param command: the name of the command
    """

    def __init__(self, command: str) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            null, number = subprocess.DEVNULL, theirs.fileno()
            words = [sys.executable, str(SERVER), command, str(number)]
            self._process = subprocess.Popen(words, stdin=null, stdout=null, pass_fds=[number], env=ENVIRONMENT)
        atexit.register(self.close)

    def fork(self, request: Mapping[str, Any], streams: Sequence[int]) -> int:
        """Return the id of a new child of this process that runs the request."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))]
        with self._lock:
            _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # the server forks twice: its grandchild becomes our child
            try:
                self._connection.sendmsg([json.dumps(request).encode()], rights)
                said = self._connection.recv(32)
            finally:
                _prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        if not said:
            raise RuntimeError(f"{self._process.args} ended with {self._process.wait()}")
        return int(said)

    def close(self) -> None:
        """End it."""
        self._connection.close()
        self._process.wait()


@functools.cache
def _server(command: str) -> ForkServer:
    return ForkServer(command)


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(AT_START)}


def _customized(environment: Mapping[str, str]) -> str:
    """Return the code that a fork runs before its command; a real start reads it as `sitecustomize`."""
    for folder in environment.get("PYTHONPATH", "").split(os.pathsep):
        file = Path(folder, "sitecustomize.py")
        if folder and file.exists():
            code = file.read_text()
            return code if code.startswith(LATE) else ""
    return ""


def _umask() -> int:
    """Return the umask of this process, without changing it for a moment; see proc(5)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
