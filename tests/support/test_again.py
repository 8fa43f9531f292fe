"""Repeated tests get new fixtures each time, and the same seeds as a single run."""

import os
import subprocess
import sys

from tests.support.again import first_name

TEST = """
import pytest

@pytest.mark.parametrize("kind", ["a", "b"])
def test_it(kind, tmp_path):
    assert not list(tmp_path.iterdir())
    (tmp_path / "x").touch()
    open(%r, "a").write(kind)
"""


def test_test_runs_as_often_as_requested(tmp_path):
    (tmp_path / "test_some.py").write_text(TEST % str(tmp_path / "said"))
    plugins = ["-p", "tests.support.again", "-p", "no:cacheprovider", "-p", "xdist"]
    words = [sys.executable, "-m", "pytest", "-q", *plugins, "--rootdir", tmp_path, "-n", "2", "--dist=load"]
    environment = os.environ | {"COGET_TESTS_TIMES": "7", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    test = tmp_path / "test_some.py::test_it"
    done = subprocess.run([*words, test], capture_output=True, text=True, env=environment, check=False)
    assert "14 passed" in done.stdout, done.stdout
    assert sorted((tmp_path / "said").read_text()) == ["a"] * 7 + ["b"] * 7


def test_its_name_is_that_of_the_first():
    for name in ("a.py::test_it", "a.py::test_it[x]", "a.py::test_it[x-y]"):
        again = f"{name[:-1]}-again12]" if name.endswith("]") else f"{name}[again12]"
        assert (first_name(name), first_name(again)) == (name, name)
