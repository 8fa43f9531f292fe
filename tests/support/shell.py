"""A shell into which tests type commands, as a reader of the docs does."""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Self

import pytest

from tests.support.waiting import wait_until

__all__ = ["Shell"]

MARK = "the command has ended with status"
HERE = "end of the command"


class Shell:
    """A running bash. Commands keep its variables, functions, directory and jobs; their input is empty.

    :param command: command that starts it
    :param environment: its environment
    :ivar lines: what it and its commands have printed so far
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def run(self, command: str) -> int:
        """Run a command, and wait until what it starts in the foreground has ended; return its status."""
        begin = len(self.lines)
        assert self.process.stdin is not None
        text = f"eval \"$(cat <<'{HERE}'\n{command}\n{HERE}\n)\" < /dev/null; printf '\\n{MARK} %s\\n' $?\n"
        self.process.stdin.write(text)
        self.process.stdin.flush()
        try:
            wait_until(lambda: self._ended(begin) or self.process.poll() is not None)
        except TimeoutError:
            pytest.fail(f"{command} did not end; printed so far:\n{os.linesep.join(self.lines)}")
        ended = self._ended(begin)
        assert ended, f"{command} ended the shell; printed so far:\n{os.linesep.join(self.lines)}"
        return int(ended.rpartition(" ")[2])

    def _ended(self, begin: int) -> str:
        return next((line for line in self.lines[begin:] if line.startswith(MARK)), "")

    def close(self) -> None:
        """End the shell and its commands."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
