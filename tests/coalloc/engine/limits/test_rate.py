"""Limits of rates: turns that do not overlap, over all processes."""

import asyncio
import fcntl
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from coalloc.engine.limits import rate
from coalloc.engine.limits.claims import Claims
from coalloc.engine.limits.rate import RateLimit, SharedTurns
from tests.support.waiting import PATIENCE

TURNS = """
import asyncio, sys
from pathlib import Path
from coalloc.engine.limits.claims import Claims
from coalloc.engine.limits.rate import SharedTurns
async def main():
    turns = SharedTurns(Claims(Path(sys.argv[1])))
    for _ in range(50):
        print(await turns.reserve(7.0))
asyncio.run(main())
"""


@pytest.fixture
def turns(tmp_path):
    return SharedTurns(Claims(tmp_path / "claims"))


def test_turns_of_several_processes_do_not_overlap_and_leave_nothing_out(tmp_path):
    command = [sys.executable, "-c", TURNS, str(tmp_path / "claims")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    begins = sorted(float(line) for each in running for line in each.communicate(timeout=PATIENCE)[0].splitlines())
    assert len(begins) == 150
    steps = {round(second - first, 3) for first, second in pairwise(begins)}
    assert steps == {7.0}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nothing",
        b"\xff\xff 12",
        b"otherboot 1e6",
        f"{rate._boot()} nan".encode(),
        f"{rate._boot()} 1e300".encode(),
    ],
)
async def test_a_last_turn_of_another_boot_or_without_sense_is_not_believed(turns, content):
    first = await turns.reserve(1.0)
    (turns.claims.path / "rate").write_bytes(content)
    again = await turns.reserve(1.0)
    assert first <= again < first + PATIENCE


async def test_a_process_that_is_stopped_with_the_lock_does_not_stop_others(turns, monkeypatch):
    monkeypatch.setattr(rate, "ATTEMPTS", 2)
    await turns.reserve(1.0)
    with (turns.claims.path / "rate").open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            await turns.reserve(1.0)
        limit = RateLimit(1000, turns)
        async with asyncio.timeout(PATIENCE):
            await limit.wait(1)


async def test_without_a_usable_directory_each_process_keeps_to_the_rate(tmp_path):
    (tmp_path / "claims").write_text("no directory")
    limit = RateLimit(100_000, SharedTurns(Claims(tmp_path / "claims")))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(*(limit.wait(10_000) for _ in range(4)))
    assert loop.time() - began > 0.29


async def test_an_idle_limit_saves_nothing_up(turns):
    first = await turns.reserve(1.0)
    written = f"{rate._boot()} {first - 100}\n"
    (turns.claims.path / "rate").write_text(written)
    assert await turns.reserve(1.0) >= first


def test_the_file_is_for_its_user_only(turns):
    asyncio.run(turns.reserve(1.0))
    assert Path(turns.claims.path, "rate").stat().st_mode & 0o777 == 0o600
