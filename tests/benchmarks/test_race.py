"""Runs of small commands: their results, and that no process outlives its time limit."""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.benchmarks.race import Command, compete, interrupted

CONTENT = b"content"
COGET = """\
import json, time
time.sleep(0.3)
open("target.bin", "wb").write(b"content")
copy = dict(start=0, end=7, asked=0.0, first_byte=0.0, last_byte=0.1)
none = dict(start=7, end=7, asked=0.0, first_byte=None, last_byte=None)
print(json.dumps(dict(seconds=0.1, sources=[dict(url="ftp://a/x", copies=[copy, none])])))
"""


class Clockwork:
    """A wire on which a source has sent 100 more bytes at each call of `sent`."""

    def __init__(self) -> None:
        self.bytes = 0

    def sent(self) -> Mapping[str, int]:
        self.bytes += 100
        return {"s1": self.bytes}

    def moved(self) -> int:
        return self.sent()["s1"]


def command(home: Path, *words: str) -> Command:
    original = home / "original"
    original.write_bytes(CONTENT)
    return Command(words, os.environ, home / "target.bin", original, {"ftp://a/x": "s1"})


def test_run_records_its_samples_events_and_copies(tmp_path: Path):
    happened: list[float] = []
    began = time.monotonic()
    run = compete(
        command(tmp_path, sys.executable, "-c", COGET),
        Clockwork(),
        [(0.05, lambda: happened.append(time.monotonic() - began)), (60.0, lambda: happened.append(60.0))],
        limit=60,
    )
    assert run.outcome == "ok", run.said
    assert len(happened) == 1
    assert happened[0] >= 0.05
    assert run.samples[0].seconds == 0
    assert run.samples[-1].seconds == run.seconds >= 0.3
    assert run.moved > run.samples[-1].sent["s1"]
    (copy,) = run.copies["s1"]
    assert (copy.start, copy.end) == (0, 7)
    assert copy.first_byte == pytest.approx(run.seconds - 0.1)


def test_processor_time_is_that_of_the_command_and_its_children(tmp_path: Path):
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    run = compete(command(tmp_path, "sh", "-c", f"{sys.executable} -c '{burn}'; true"), Clockwork(), [], limit=60)
    assert run.cpu >= 0.2


def test_a_file_that_differs_is_wrong(tmp_path: Path):
    run = compete(command(tmp_path, "sh", "-c", "echo different >target.bin"), Clockwork(), [], limit=60)
    assert run.outcome == "wrong"


def test_failed_run_keeps_the_error_message_of_the_program(tmp_path: Path):
    run = compete(command(tmp_path, "sh", "-c", "echo no route >&2; exit 3"), Clockwork(), [], limit=60)
    assert (run.outcome, run.said) == ("fails", "no route")


def test_run_over_the_time_limit_is_killed_with_all_its_children(tmp_path: Path):
    run = compete(command(tmp_path, "sh", "-c", "sleep 600 & echo $! >child; wait"), Clockwork(), [], limit=0.5)
    assert run.outcome == "late"
    child = Path("/proc") / (tmp_path / "child").read_text().strip()
    deadline = time.monotonic() + 20
    while child.exists() and "Z" not in (child / "stat").read_text().split()[2]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_interrupted_run_ends_when_half_has_gone(tmp_path: Path):
    wire = Clockwork()
    interrupted(command(tmp_path, "sh", "-c", "sleep 600"), wire, size=1000, limit=60)
    assert 500 <= wire.bytes <= 600
