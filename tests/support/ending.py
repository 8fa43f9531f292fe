"""Termination of servers with several processes: the end of a parent says nothing about its children."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from tests.support.waiting import PATIENCE

__all__ = ["kill_group"]

SECONDS = PATIENCE


def kill_group(leader: subprocess.Popen[bytes]) -> None:
    """SIGKILL a process with its whole group. When this returns, none of their files and sockets is open.

    :raises TimeoutError: when one of them outlives it
    """
    if leader.returncode is not None:  # a reaped leader's id may belong to another process by now
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    deadline = time.monotonic() + SECONDS
    while _running(leader.pid):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process group {leader.pid} outlived SIGKILL")
        time.sleep(0.002)
    leader.wait()


def _running(group: int) -> bool:
    """Return whether a process of the group is still running; see proc(5), /proc/pid/stat."""
    for process in Path("/proc").iterdir():  # a glob fails if a process ends in that moment
        with contextlib.suppress(OSError):  # it is not one, or ended a moment ago
            state, _, its_group = (process / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return True
    return False
