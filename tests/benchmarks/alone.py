"""A check of the ideal: the measured rate of each source alone, divided by its rate in the schedule.

`python -m tests.benchmarks.alone URL` is the client that measures: it reads the URL over several connections and
prints the payload bytes per second, measured after the time that TCP needs to reach its rate. The check runs without
random loss, because no client saturates a link with loss.
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
    """Return for each source its measured rate when it sends alone, divided by its rate in the scenario's schedule.

    If the testbed cannot keep up, the result is below 1; no error is raised.

    :param folder: directory that the servers serve
    :param name: name of a file in `folder`
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
    """Read a URL over several connections, and return the total rate in bytes per second."""
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
