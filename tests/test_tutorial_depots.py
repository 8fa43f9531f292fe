"""The tutorial on depots: its files and commands work as printed, and print what the page shows."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.support.listening import reserved, wait_until_listening
from tests.support.programs import with_this_checkout
from tests.support.waiting import PATIENCE, wait_until

HOUSE = Path(__file__).parents[1]
PAGE = HOUSE / "docs/tutorials/depots.md"
BLOCK = re.compile(
    r"[Ss]ave (?:this|it) as `(?P<name>[\w.]+)`[^`]*?```python\n(?P<file>.*?)```"
    r"|```\n(?P<printed>.*?)```"
    r"|(?P<commands>(?:^    [^\n]*\n)+)",
    re.MULTILINE | re.DOTALL,
)
VARYING = re.compile(r"[0-9a-f]{32}|[0-9]+\\\.[0-9]+")
"""Identifiers and times."""
MARK = "the commands have ended"


class Shell:
    """A shell that a reader types commands into.

    :ivar lines: what it and its commands have printed so far
    """

    def __init__(self, home: Path) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.process = subprocess.Popen(
            ["bash"],
            cwd=HOUSE,
            env=with_this_checkout({**os.environ, "PATH": path, "HOME": str(home)}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def run(self, commands: str) -> None:
        """Run commands, and wait until those in the foreground have ended."""
        ended = self.lines.count(MARK)
        self.process.stdin.write(f"{commands}\necho '{MARK}'\n")
        self.process.stdin.flush()
        try:
            wait_until(lambda: self.lines.count(MARK) > ended)
        except TimeoutError:
            pytest.fail(f"{commands} did not end; printed so far:\n{os.linesep.join(self.lines)}")

    def close(self) -> None:
        """End the shell and its commands."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with closing(Shell(tmp_path)) as running:
        yield running


@pytest.fixture
def ports() -> Iterator[dict[str, str]]:
    """Free ports to be used instead of those on the page."""
    kept = {port: reserved("127.0.0.1") for port in ("7001", "4001", "4002")}
    yield {port: str(sock.getsockname()[1]) for port, sock in kept.items()}
    for sock in kept.values():
        sock.close()


def test_the_tutorial_works_as_printed(shell, ports, tmp_path):
    folder = tmp_path / "depots"
    page = PAGE.read_text().replace("/tmp/depots", str(folder))
    for port, ours in ports.items():
        page = page.replace(port, ours)
    begin, commands = 0, ""
    for block in BLOCK.finditer(page):
        if block["file"]:
            (folder / block["name"]).write_text(block["file"])
        elif block["printed"]:
            expect(shell, begin, commands, block["printed"])
        else:
            begin, commands = len(shell.lines), textwrap.dedent(block["commands"])
            shell.run(commands)
            if "lsrv.py" in commands:
                assert wait_until_listening(shell.process, "127.0.0.1", int(ports["7001"]), PATIENCE)
    assert not folder.exists()
    assert len(BLOCK.findall(page)) > 20
    errors = [line for line in shell.lines if re.search(r"Traceback|command not found|No such file", line)]
    assert errors == []


def expect(shell: Shell, begin: int, commands: str, printed: str) -> None:
    """Wait until the commands have printed these lines, apart from identifiers and times.

    Depots write their logs after a session has ended, so commands that show a log are repeated.
    """
    shows_a_log = commands.startswith(("grep -o", "tail"))

    def found() -> bool:
        if shows_a_log:
            shell.run(commands)
        lines = shell.lines[begin:]
        return all(any(re.fullmatch(pattern, line) for line in lines) for pattern in patterns)

    patterns = [VARYING.sub(lambda text: varied(text[0]), re.escape(line.rstrip())) for line in printed.splitlines()]
    with suppress(TimeoutError):
        wait_until(found)
        return
    pytest.fail(f"{commands}printed\n{os.linesep.join(shell.lines[begin:])}\ninstead of\n{printed}")


def varied(text: str) -> str:
    return r"[0-9]+\.[0-9]+" if "." in text else "[0-9a-f]{32}"
