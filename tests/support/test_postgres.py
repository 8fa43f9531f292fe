"""The shared database server ends with the tests, and leaves no files."""

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.support.postgres import postgres
from tests.support.waiting import wait_until

HELD = """
import time
from tests.support.postgres import postgres

with postgres() as server:
    print(server.url("postgres"), flush=True)
    time.sleep(600)
"""


def folder(url: str) -> Path:
    return Path(url.partition("?host=")[2])


def test_it_ends_with_its_block() -> None:
    with postgres() as server:
        url = server.create()
        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    assert not folder(url).exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url.replace("+psycopg", ""))


def test_it_ends_when_the_tests_are_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HELD], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as tests:
        assert tests.stdout
        where = folder(tests.stdout.readline().strip())
        (number,) = (where / "data" / "postmaster.pid").read_text().splitlines()[:1]
        tests.kill()
    wait_until(lambda: not where.exists() and not Path("/proc", number).exists())
