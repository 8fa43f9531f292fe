"""SIGINT and SIGTERM: a clean end, and an immediate one at the second signal. Real processes, real signals."""

import signal
import subprocess
import sys

import pytest

from coalloc.cli import interrupts
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


@pytest.fixture
def start():
    started = []

    def start(code):
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
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


def test_a_second_signal_does_not_wait(start):
    process = start(STUBBORN)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "cleaning\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 130


def test_work_that_ends_gives_its_value_and_the_signals_back():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    async def work():
        return 7

    assert interrupts.run(work()) == 7
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
