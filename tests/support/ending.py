"""Termination of servers with several processes: the end of a parent says nothing about its children.

Servers that `guarded` knows end with the tests even if these are killed: a guard, a shell in a session of its own,
reads from a pipe which groups run, and kills those that are left when the pipe closes.
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
    """Return a process that leads its group, and will be killed with its group when the tests end."""
    _say("+", leader.pid)
    return leader


def kill_group(leader: subprocess.Popen[bytes]) -> None:
    """SIGKILL a process with its whole group. When this returns, none of their files and sockets is open.

    :raises TimeoutError: when one of them outlives it
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
    """Return whether the group has processes, even such as have ended, and are not waited for yet."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _running(group: int) -> bool:
    """Return whether a process of the group is still running; see proc(5), /proc/pid/stat."""
    for process in Path("/proc").iterdir():  # a glob fails if a process ends in that moment
        with contextlib.suppress(OSError):  # it is not one, or ended a moment ago
            state, _, its_group = (process / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return True
    return False
