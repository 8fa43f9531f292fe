"""Ends servers whose processes are several: a parent that has ended says nothing of its children."""

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
    """SIGKILL a process with its whole group. When this returns, no file and no socket of theirs is open.

    :raises TimeoutError: when one of them outlives it
    """
    if leader.returncode is not None:  # a reaped leader's id could belong to someone else by now
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
    """Whether a process of the group has not ended; see proc(5), /proc/pid/stat."""
    for process in Path("/proc").iterdir():  # a glob fails where one ends in that moment
        with contextlib.suppress(OSError):  # it is none, or ended a moment ago
            state, _, its_group = (process / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return True
    return False
