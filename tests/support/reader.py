"""A reader of the docs, who types the commands of a page into a shell, and compares what they print with the page."""

import os
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping
from configparser import ConfigParser
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from broker.config.settings import Settings, configured
from tests.support.pages import Block, blocks
from tests.support.shell import Shell
from tests.support.site import CURL
from tests.support.waiting import wait_until

__all__ = ["Reader", "Script"]

HOUSE = Path(__file__).parents[2]
END = """
FAILED=
for each in $SERVED; do kill $each; wait $each; case $? in 0 | 143) ;; *) FAILED=yes ;; esac; done
[ -z "$FAILED" ]
"""
"""Commands that end the servers in the background."""
CHECKS = {
    "ini": lambda text: ConfigParser(strict=False).read_string(text) is None,
    "nginx": bool,  # the world has started with it
    "yaml": yaml.safe_load,
}
"""Checks of settings for other programs, by language."""

OF_COGET = ("[depots", "[hosts", "[names", "[s3", "[[next", "limit_rate", "via")
"""Beginnings of settings of coget and of a depot."""

SERVES = re.compile(r"coget-(broker|depot) (serve|worker|demo)\b(?!.*&)", re.DOTALL)
READY = re.compile('running on http|accepts sessions at|"event": "working"')
CELL = """
import ast, asyncio, inspect, sys
code = compile(sys.stdin.read(), "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
async def run():
    await eval(code, {})
asyncio.run(run()) if code.co_flags & inspect.CO_COROUTINE else exec(code, {"__name__": "__main__"})
"""
"""Program that runs its input as a program, or, if it awaits something, as a cell of a notebook."""
VARYING = re.compile(
    r"\b([0-9a-f]{8}(?:[0-9a-f]{24})?)\b|([0-9][0-9.,:-]*(?: (?:bytes|[kMG]?B(?:/s)?|h|min|s)\b)*)|( +)"
)
"""Identifiers; numbers and times with their units; spaces."""
SEEN = ("[0-9a-f]{8,32}", r"[0-9][0-9.,:-]*(?: (?:bytes|[kMG]?B(?:/s)?|h|min|s)\b)*", r"\s+")


class Script(NamedTuple):
    """The differences between a page and the commands that the test types.

    :param before: commands typed before the page, which set up what it assumes
    :param instead: texts in the page's commands, and the texts typed in their place
    :param left: beginnings of commands that are not typed
    :param fail: beginnings of commands that must end with an error
    """

    before: str
    instead: Mapping[str, str]
    left: tuple[str, ...]
    fail: tuple[str, ...]


class Reader:
    """A reader who types the commands of a page into a shell.

    :param home: the reader's home directory
    """

    def __init__(self, shell: Shell, page: Path, home: Path, script: Script) -> None:
        self._shell, self._page, self._home, self._script = shell, page, home, script
        self._begin = 0
        self._last = ""

    def read(self) -> None:
        """Type the page.

        :raises AssertionError: a command ends or prints otherwise than the page says
        """
        shell = self._shell
        shell.run(CURL)
        shell.run(f"cd {HOUSE}" if self._page.parent.name == "tutorials" else "cd")
        status = shell.run(self._script.before)
        assert status == 0, os.linesep.join(shell.lines)
        found = list(blocks(self._page))
        for block, following in zip(found, [*found[1:], Block("text", "")], strict=False):
            if block.kind == "commands":
                self._type(block, fails=following.kind == "printed" and following.text.startswith("coget: "))
            elif block.kind == "file":
                quoted = shlex.quote(block.text)
                assert shell.run(f"mkdir -p $(dirname {block.name}) && printf %s {quoted} > {block.name}") == 0
            elif block.kind == "printed" and self._last:
                self._expect(block)
            elif block.kind == "part":
                self._check(block)
        errors = [line for line in shell.lines if re.search(r"Traceback|command not found", line)]
        assert errors == []

    def _type(self, block: Block, fails: bool) -> None:
        self._begin = len(self._shell.lines)
        for number, command in enumerate(block.commands, 1):
            self._last = ""
            if command.startswith(self._script.left):
                continue
            command = self._changed(command)
            self._last = command
            if SERVES.match(command):
                self._serve(command, first=number == 1 or not SERVES.match(block.commands[number - 2]))
                continue
            status = self._shell.run(command)
            expected = command.startswith(self._script.fail) or (fails and number == len(block.commands))
            printed = os.linesep.join(self._shell.lines[self._begin :])
            assert bool(status) == expected, f"{command} ended with {status}\n{printed}"

    def _changed(self, text: str) -> str:
        for old, new in self._script.instead.items():
            text = text.replace(old, new)
        return text

    def _serve(self, command: str, first: bool) -> None:
        """Start a server in the background, as in a terminal of its own.

        :param first: whether the reader ends the servers of the blocks before
        """
        if first:
            status = self._shell.run(END)
            assert status == 0, os.linesep.join(self._shell.lines)
            self._shell.run("SERVED=")
        begin = len(self._shell.lines)
        text = "\n".join(line.partition(" # ")[0] for line in command.splitlines())
        self._shell.run(f'{text} & SERVED="$SERVED $!"')
        try:
            wait_until(lambda: any(READY.search(line) for line in self._shell.lines[begin:]))
        except TimeoutError:
            pytest.fail(f"{command} is not ready:\n{os.linesep.join(self._shell.lines[begin:])}")

    def _expect(self, block: Block) -> None:
        """Wait until the last commands have printed these lines, apart from numbers, units, times and identifiers.

        Depots write their logs after a session has ended, so a command that shows a log is repeated.
        """
        shows_a_log = self._last.startswith(("grep -o", "tail"))

        def found() -> bool:
            if shows_a_log:
                self._shell.run(self._last)
            lines = [line.strip() for line in self._shell.lines[self._begin :]]
            missing[:] = [each for each in patterns if not any(re.fullmatch(each, line) for line in lines)]
            return not missing

        missing: list[str] = []
        patterns = [pattern(line) for line in block.text.splitlines() if line.strip()]
        try:
            wait_until(found)
        except TimeoutError:
            printed = os.linesep.join(self._shell.lines[self._begin :])
            pytest.fail(f"{self._last}\nprinted\n{printed}\ninstead of\n{block.text}\nmissing: {missing}")

    def _check(self, block: Block) -> None:
        """Run a program; read settings."""
        if block.text.startswith(self._script.left):
            return
        if block.language == "python":
            file, self._last = self._home / "cell.py", block.text
            file.write_text(self._changed(block.text))
            begin = self._begin = len(self._shell.lines)
            status = self._shell.run(f"{sys.executable} -c {shlex.quote(CELL)} < ~/cell.py")
            assert status == 0, os.linesep.join(self._shell.lines[begin:])
        elif block.language == "toml":
            file = self._home / "broker.toml"
            file.touch(0o600)
            file.write_text(self._changed(block.text))
            if block.text.startswith(OF_COGET):
                tomllib.loads(block.text)
            else:
                configured(Settings("sqlite://"), file)
        else:
            assert CHECKS[block.language](block.text)


def pattern(line: str) -> str:
    """Return a pattern for a line, apart from numbers, units, times, identifiers and the widths of columns.

    A line that ends with `...` stands for longer ones.
    """
    begin, parts = 0, []
    text = line.strip().removesuffix("...")
    for found in VARYING.finditer(text):
        assert found.lastindex
        parts += [re.escape(text[begin : found.start()]), SEEN[found.lastindex - 1]]
        begin = found.end()
    return "".join([*parts, re.escape(text[begin:]), ".*" if line.strip().endswith("...") else ""])
