"""Fast starts of `coget`, `coget-broker` and the Globus CLI, by forking a process that has loaded their modules.

The started process is an ordinary child of the tests' process: `subprocess.Popen` waits for it and kills it like any
other. `make test-long`, and tests about how the programs start, execute the installed scripts instead.
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
"""Directory for the compiled forecasters of this version of `predictors`."""
SERVER = Path(__file__).with_name("fork_server.py")
PLAIN = frozenset({"stdin", "stdout", "stderr", "cwd", "env", "text", "start_new_session"})
"""Options of Popen that a forked start supports."""
AT_START = ("LANG", "LC_", "LD_", "MALLOC_", "PYTHON")
"""Prefixes of variables that an interpreter reads when it starts."""
LATE = "# When modules are loaded this may run as well.\n"
"""First line of a sitecustomize.py that also works if it runs after modules were loaded."""
PR_SET_CHILD_SUBREAPER = 36

forks = "PYTEST_VERSION" in os.environ and not LONG
"""Whether starts are forked: not in `make test-long`, nor in benchmarks, which measure the time of a start."""


def with_this_checkout(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Python finds this checkout's packages before installed ones.

    Compiled forecasters are also stored in this checkout: in the user's home, checkouts would delete each other's, and
    the home of a test is empty.
    """
    before = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    path = os.pathsep.join(before if str(HOUSE) in before else [*before, str(HOUSE)])
    return {"NUMBA_CACHE_DIR": str(COMPILED), **environment, "PYTHONPATH": path}


ENVIRONMENT = with_this_checkout(os.environ)
"""The environment at the start of the tests."""

_prctl = ctypes.CDLL(None, use_errno=True).prctl


def start(command: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]:
    """Start a command like Popen, with this checkout's packages.

    `coget` and `coget-broker` are forked if possible: only with the options in `PLAIN`, and with an environment whose
    variables have the same effect after modules are loaded as before.
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
    """Run a command to its end like subprocess.run, and capture its output."""
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

    loaded_in: Mapping[str, str] = ENVIRONMENT
    """Environment in which the server loads the modules."""

    def _execute_child(self, args: Sequence[str | Path], *rest: Any) -> None:
        """Fork the process. Popen's method of the same name documents the arguments."""
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
        self.pid = _server(Path(os.fspath(args[0])), type(self)).fork(request, given)
        self._child_created = True
        self._close_pipe_fds(*streams)  # type: ignore[attr-defined]


class ForkServer:
    """The fork server of one program, and the connection to it. It ends when the connection is closed.

    :param program: an installed script, with its interpreter beside it
    :param environment: environment in which its modules are loaded
    """

    def __init__(self, program: Path, environment: Mapping[str, str]) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            null, number = subprocess.DEVNULL, theirs.fileno()
            words = [program.with_name("python"), SERVER, program.name, str(number)]
            self._process = subprocess.Popen(words, stdin=null, stdout=null, pass_fds=[number], env=environment)
        atexit.register(self.close)

    def fork(self, request: Mapping[str, Any], streams: Sequence[int]) -> int:
        """Start a child of this process that runs the request; return its process id."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))]
        with self._lock:
            _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # the server forks twice: its grandchild becomes our child
            try:
                self._connection.sendmsg([json.dumps(request).encode()], rights)
                received = self._connection.recv(32)
            finally:
                _prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        if not received:
            raise RuntimeError(f"{self._process.args} ended with {self._process.wait()}")
        return int(received)

    def close(self) -> None:
        """End the fork server."""
        self._connection.close()
        self._process.wait()


@functools.cache
def _server(program: Path, process: type[ForkedProcess]) -> ForkServer:
    return ForkServer(program, process.loaded_in)


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(AT_START)}


def _customized(environment: Mapping[str, str]) -> str:
    """Return the code of a sitecustomize.py marked with `LATE`, which a fork runs before the command; else ""."""
    for folder in environment.get("PYTHONPATH", "").split(os.pathsep):
        file = Path(folder, "sitecustomize.py")
        if folder and file.exists():
            code = file.read_text()
            return code if code.startswith(LATE) else ""
    return ""


def _umask() -> int:
    """Return the umask of this process; unlike `os.umask`, this does not change it. See proc(5)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
