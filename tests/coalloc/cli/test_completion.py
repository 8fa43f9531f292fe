"""`coget completion`: the shells themselves complete with its scripts, and start no program for it."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.coget import coget as coget_command
from tests.support.waiting import PATIENCE

IN_BASH = """
PATH=
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_coget
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory) -> Path:
    """The script for bash."""
    folder = tmp_path_factory.mktemp("completion")
    return _written("bash", folder / "coget")


def _written(shell: str, path: Path) -> Path:
    result = coget_command(["completion", shell], path.parent)
    assert result.returncode == 0, result.stderr
    path.write_text(result.stdout)
    return path


def completed(script: Path, *words: str) -> list[str]:
    command = [shutil.which("bash"), "--norc", "-c", IN_BASH, "bash", script, *words]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert found.stderr == ""
    return found.stdout.split()


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("coget pl", ["plan"]),
        ("coget ftp://a/x --str", ["--strategy", "--streams"]),  # the short form
        ("coget --str", ["--strategy", "--streams"]),
        ("coget get --engine g", ["gridftp", "globus-url-copy"]),
        ("coget get --engine = gr", ["gridftp"]),  # as bash splits --engine=gr
        ("coget get plan --engine gr", ["gridftp"]),  # a file with the name of a command
        ("coget history import --gl", ["--globus"]),
        ("coget completion f", ["fish"]),
        ("coget get ''", []),
        ("coget get -o x", []),  # names of files, which bash adds
    ],
)
def test_bash_completes(typed, expected, script):
    assert completed(script, *shlex.split(typed)) == expected


def test_files_are_completed_by_bash(script):
    assert "complete -o default " in script.read_text()


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("coget ftp://a/x --strea", "--streams"),
        ("coget get --strategy ad", "adaptive"),
        ("coget history import --gl", "--globus"),
        ("coget get /etc/passw", "/etc/passwd"),
    ],
)
def test_fish_completes(typed, expected, tmp_path):
    path = _written("fish", tmp_path / "coget.fish")
    command = ["fish", "--no-config", "-c", f"source {path}; complete -C '{typed}'"]
    found = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=True, env={**os.environ, "HOME": str(tmp_path)}
    )
    assert expected in [line.split("\t")[0] for line in found.stdout.splitlines()]


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_accepts_the_script(tmp_path):
    path = _written("zsh", tmp_path / "_coget")
    found = subprocess.run(["zsh", "-n", path], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert found.stderr == ""
