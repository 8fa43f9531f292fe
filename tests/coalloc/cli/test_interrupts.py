"""SIGINT and SIGTERM: a clean end, and an immediate one at a second request. Real processes, real signals."""

import asyncio
import signal
import subprocess
import sys

import pytest

from coalloc.cli import interrupts
from tests.support.halving import HalvingServer
from tests.support.programs import COGET
from tests.support.scripted import raw_server
from tests.support.terminal import at_terminal
from tests.support.waiting import PATIENCE

PATIENT = """
import asyncio, sys
from coalloc.cli import failures, interrupts

async def work():
    print("ready", flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        print("clean", flush=True)

sys.exit(failures.reported(lambda: interrupts.run(work(), "run it again"), []))
"""

STUBBORN = """
import asyncio, sys, time
from coalloc.cli import failures, interrupts

async def work():
    print("ready", flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        print("cleaning", flush=True)
        time.sleep(60)

sys.exit(failures.reported(lambda: interrupts.run(work()), []))
"""


HASHING = """
import asyncio, sys, time
from coalloc.cli import failures, interrupts

async def work():
    hashing = asyncio.create_task(asyncio.to_thread(time.sleep, 60))
    await asyncio.sleep(0)
    print("ready", flush=True)
    try:
        await hashing
    finally:
        print("cleaning", flush=True)

sys.exit(failures.reported(lambda: interrupts.run(work()), []))
"""
"""A thread that cannot be cancelled, as when a file is verified: the event loop waits for it at its end."""

TIDY = """
import asyncio, sys
from coalloc.cli import failures, interrupts

interrupts.ONE_REQUEST = 3600

async def work():
    print("ready", flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        print("cleaning", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print("clean", flush=True)

sys.exit(failures.reported(lambda: interrupts.run(work()), []))
"""
"""Cleaning up ends when a line is read."""


@pytest.fixture
def start():
    started = []

    def start(code):
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_work_cleanly(start, number):
    process = start(PATIENT)
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert out == "clean\n"
    assert err == "coget: interrupted\n  run it again\n"


@pytest.mark.parametrize("work", [STUBBORN, HASHING])
def test_a_second_signal_does_not_wait(start, work):
    process = start(work)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "cleaning\n"
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (130, "coget: interrupted\n")


def test_a_signal_that_arrives_twice_is_one_request(start):
    process = start(TIDY)
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "cleaning\n"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate("\n", timeout=PATIENCE)
    assert (process.returncode, out, err) == (130, "clean\n", "coget: interrupted\n")


@pytest.fixture
async def places(start_gridftp, tmp_path):
    """A server that does not answer, and one that sends only the first half of a file; the beginnings of their URLs."""
    silent = start_gridftp(tmp_path / "export")
    silent.pause()
    async with raw_server(HalvingServer(bytes(range(250)) * 4000).serve) as port:
        yield {"SILENT": silent.url("x"), "HALF": f"http://127.0.0.1:{port}/x", "COGET": str(COGET)}


BATCH = (
    "trap '' INT; {COGET} {HALF} -o a & {COGET} {HALF} -o b & wait %1; echo ended=$?; wait %2; echo ended=$?; exit 130"
)
"""Two at one terminal: the end of the one is written amid the lines and colours of the other."""


@pytest.mark.parametrize(
    ("command", "moment"),
    [
        (["{COGET}", "{SILENT}"], b"connecting"),
        (["{COGET}", "{HALF}"], b"fetching"),
        (["sh", "-c", BATCH], b"fetching"),
    ],
    ids=["connecting", "fetching", "batch"],
)
async def test_two_control_c_at_a_terminal_end_it_without_a_traceback(places, tmp_path, command, moment):
    words = [word.format(**places) for word in command]
    status, output = await asyncio.to_thread(at_terminal, words, tmp_path, (moment, b"\x03\x03"))
    assert status == 130
    assert b"Traceback" not in output
    assert b"interrupted" in output
    if words[0] == "sh":
        assert output.count(b"ended=130\r\n") == 2


def test_work_that_ends_gives_its_value_and_the_signals_back():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    async def work():
        return 7

    assert interrupts.run(work()) == 7
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
