"""A pytest plugin that prints each failed test at once, with the command that repeats it and the servers' logs."""

import os
import shlex
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["repeated"]

SETTINGS = ("COGET_TESTS", "COGET_FUZZ", "COGET_TESTS_PATIENCE", "CI")
"""Environment variables that change what a test does."""
LOGS = ("*.log", "log")
END = 4000
"""Number of characters shown from the end of each log."""


def repeated(test: str) -> str:
    """Return the command that repeats a test with the same settings."""
    settings = [f"{name}={shlex.quote(os.environ[name])}" for name in SETTINGS if name in os.environ]
    return " ".join([*settings, ".venv/bin/python -m pytest", shlex.quote(test)])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections.append(("command that repeats the test", repeated(item.nodeid)))
        report.sections += [(f"end of {path}", _end(path)) for path in _logs(item)]
    return report


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # with pytest-xdist, only in the controller
        config.pluginmanager.register(_Teller(config))


class _Teller:
    """A plugin that names each failure at once, so that it is not lost if the run is aborted."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal:
            terminal.write_line(f"\nFAILED {report.nodeid} ({report.when}), repeat with: {repeated(report.nodeid)}")


def _logs(item: pytest.Item) -> Iterator[Path]:
    """Yield the log files in the test's `tmp_path`."""
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    for pattern in LOGS if folder else ():
        yield from (path for path in sorted(folder.rglob(pattern)) if path.is_file() and not path.is_symlink())


def _end(path: Path) -> str:
    return path.read_text(errors="replace")[-END:] or "(nothing)"
