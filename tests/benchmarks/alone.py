"""A check of the ideal: the rate of each source when nothing else runs, over the rate in the schedule.

As a program it is the client of that: `python -m tests.benchmarks.alone URL` reads the URL over several connections
and prints the bytes of payload per second that came, after a while in which TCP finds its pace. Random loss is set
aside: no client saturates such a link, and the emulator counts what it loses.
"""

import http.client
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from tests.benchmarks.field import Field
from tests.benchmarks.plan import Plan
from tests.benchmarks.scenarios import Scenario

__all__ = ["delivered"]

HOUSE = Path(__file__).parents[2]
CONNECTIONS = 4
PACE_SECONDS = 3.0
SECONDS = 3.0
LIFE_SECONDS = 60
BLOCK = 1 << 18


def delivered(scenario: Scenario, congestion: str, folder: Path, name: str) -> dict[str, float]:
    """Return for each source the rate that it delivered alone, over the rate in the scenario's schedule.

    Where the testbed could not keep up it is told all the same: the number then shows it.

    :param folder: what the servers serve; `name` is a file there
    """
    plan = Plan(replace(scenario, loss="0%", events=()), congestion)
    found = {}
    with Field(plan, dict.fromkeys(plan.sources, "http"), folder) as field:
        for host in plan.sources:
            command = field.command([sys.executable, "-m", "tests.benchmarks.alone", field.url(host, name)])
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIFE_SECONDS, check=True, cwd=HOUSE)
            found[host] = float(done.stdout) / plan.alone(host)
    return found


def _read(url: str) -> float:
    """Return the rate from a URL over several connections, in bytes per second."""
    counts = [0] * CONNECTIONS
    for number in range(CONNECTIONS):
        threading.Thread(target=_keep_reading, args=(url, counts, number), daemon=True).start()
    time.sleep(PACE_SECONDS)
    before, began = sum(counts), time.monotonic()
    time.sleep(SECONDS)
    return (sum(counts) - before) / (time.monotonic() - began)


def _keep_reading(url: str, counts: list[int], number: int) -> None:
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.netloc, timeout=LIFE_SECONDS)
    while True:
        connection.request("GET", where.path)
        with connection.getresponse() as response:
            while block := response.read1(BLOCK):
                counts[number] += len(block)


if __name__ == "__main__":
    print(_read(sys.argv[1]))
