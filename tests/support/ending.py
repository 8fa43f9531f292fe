"""Termination of servers with several processes, of which the children may outlive the parent.

Process groups that were passed to `guarded` end with the tests, even if the tests are killed: a guard, a shell in its
own session, reads the running groups from a pipe, and kills those that remain when the pipe closes.
"""

import atexit
import contextlib
import functools
import os
import signal
import subprocess
import time
from pathlib import Path

from tests.support.waiting import PATIENCE

__all__ = ["guarded", "kill_group"]

SECONDS = PATIENCE
GUARD = """
groups=
while read -r sign group; do
    if [ "$sign" = + ]; then groups="$groups $group"; continue; fi
    others=
    for each in $groups; do [ "$each" = "$group" ] || others="$others $each"; done
    groups=$others
done
for each in $groups; do kill -s KILL -- "-$each" 2> /dev/null; done
"""


@functools.cache
def _guard(_: int) -> subprocess.Popen[bytes]:
    """Return the guard of this process."""
    guard = subprocess.Popen(["sh", "-c", GUARD], stdin=subprocess.PIPE, cwd="/", start_new_session=True)
    atexit.register(guard.communicate)
    return guard


def _say(sign: str, group: int) -> None:
    guard = _guard(os.getpid())
    assert guard.stdin is not None
    os.write(guard.stdin.fileno(), f"{sign} {group}\n".encode())


def guarded(leader: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """Register the leader of a process group, so that the group is killed when the tests end; return the leader."""
    _say("+", leader.pid)
    return leader


def kill_group(leader: subprocess.Popen[bytes]) -> None:
    """Kill a process group with SIGKILL, and wait until all its files and sockets are closed.

    :raises TimeoutError: a process of the group still runs after `SECONDS`
    """
    if leader.returncode is not None:  # a reaped leader's id may belong to another process by now
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()
    deadline = time.monotonic() + SECONDS
    while _there(leader.pid) and _running(leader.pid):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process group {leader.pid} outlived SIGKILL")
        time.sleep(0.002)
    _say("-", leader.pid)


def _there(group: int) -> bool:
    """Return whether the group has processes, including zombies."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _running(group: int) -> bool:
    """Return whether a thread of the group still runs and is no zombie; see proc(5), /proc/pid/stat.

    The first thread of a process may be a zombie while others still hold its sockets open.
    """
    for process in Path("/proc").iterdir():  # a glob fails if a process ends in that moment
        with contextlib.suppress(OSError):  # not a process, or it has just ended
            state, its_group = _state(process)
            if its_group == group and (state not in "ZX" or any(map(_is_alive, (process / "task").iterdir()))):
                return True
    return False


def _state(process: Path) -> tuple[str, int]:
    """Return the state of a process or thread, and its group. :raises OSError: if it has ended"""
    state, _, group = (process / "stat").read_text().rpartition(")")[2].split()[:3]
    return state, int(group)


def _is_alive(thread: Path) -> bool:
    try:
        return _state(thread)[0] not in "ZX"
    except OSError:
        return False
