"""The emulator's arithmetic in C: runs each check of emulator/checks.c, built with sanitizers, as a test."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE
from tests.testbed import driver

CHECKS = re.findall(r"CHECK\((\w+)\),", (Path(__file__).parent / "emulator" / "checks.c").read_text())
LIMIT_SECONDS = PATIENCE


@pytest.fixture(scope="module")
def checks() -> Path:
    if not (shutil.which("cc") and shutil.which("make")):
        pytest.skip("no C compiler here: apt-get install gcc libc6-dev")
    return driver.build("checks") / "checks"


def test_every_check_is_run(checks: Path):
    listed = subprocess.run([checks], capture_output=True, text=True, timeout=LIMIT_SECONDS).stdout.split()
    assert listed == CHECKS
    assert CHECKS


@pytest.mark.parametrize("name", CHECKS)
def test_arithmetic(checks: Path, name: str):
    done = subprocess.run([checks, name], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
