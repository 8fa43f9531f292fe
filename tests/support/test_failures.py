"""The output for a failed test has its name, the command that repeats it, and logs."""

import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest

@pytest.mark.parametrize("name", ["a b", "c"])
def test_it(tmp_path, name):
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "error.log").write_text("no room on the disk")
    assert name == "c"
"""


def test_it_is_named_at_once_with_how_to_repeat_it_and_what_was_logged(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("COGET_TESTS_PATIENCE", "60")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # some take seconds to load
    (tmp_path / "test_some.py").write_text(TESTS)
    plugins = ["-p", "tests.support.failures", "-p", "xdist"]
    words = [sys.executable, "-m", "pytest", "-q", *plugins, "--rootdir", tmp_path, "-n", "2"]
    output = subprocess.run([*words, tmp_path], capture_output=True, text=True, check=False).stdout
    command = "COGET_TESTS_PATIENCE=60 "
    assert f"FAILED test_some.py::test_it[a b] (call), repeat with: {command}" in output
    assert ".venv/bin/python -m pytest 'test_some.py::test_it[a b]'" in output
    assert "error.log" in output
    assert "no room on the disk" in output
    assert "1 failed, 1 passed" in output
