"""The benchmark of buffers in a depot: what they bring if the rate of the second leg varies.

    python -m tests.benchmarks.depot_buffers [--buffers 0,64] [--periods 1,2,4] [--size 128] [--seeds N]

The first leg has 100 Mbit/s. The second one has 180 and 20 Mbit/s in turn, each for a period in seconds. Without a
buffer, no more than the slower leg's rate gets through, which is 60 Mbit/s on average; with an unlimited one, it is
100. Prints the rates of one connection with each size of the buffer, and their ratios to the rate without buffer. Each
cell is the median over the seeds, with the least and the most; a seed sets the time at which the second leg starts.
"""

import argparse
import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.benchmarks.bench import in_memory
from tests.benchmarks.depot_routes import DEPOT, LIMIT, OPEN, spread
from tests.testbed import servers
from tests.testbed.topology import Topology
from tests.testbed.wan import Wan

LINKS = {
    "client-depot": {"rate": "180mbit", "delay": "20ms"},
    "depot-server": {"rate": "100mbit", "delay": "20ms"},
}
RATES = ("180mbit", "20mbit")
RECEIVER = """
import sys, time
from coalloc.depot import DepotRoute, create_connection
host, port, depot, buffer, size = sys.argv[1:]
route = DepotRoute.parse(depot)._replace(buffer=int(buffer))
began = time.monotonic()
request = f"GET /file HTTP/1.0\\r\\nHost: {host}\\r\\n\\r\\n".encode()
with create_connection((host, int(port)), 30, route=route, first=request) as sock:
    left = int(size)
    while data := sock.recv(1 << 20):
        left -= len(data)
assert left <= 0, "the end is missing"
print(time.monotonic() - began)
"""


def main() -> None:
    """Print a table with a row for each period."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--buffers", default="0,16,64", help="buffers of the depot, in MB")
    parser.add_argument("--periods", default="1,2,4", help="seconds until the rate changes")
    parser.add_argument("--size", type=int, default=128, help="size of the file, in MB")
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    buffers = [int(text) << 20 for text in given.buffers.split(",")]
    names = [f"{each >> 20} MB, Mbit/s | ratio" for each in buffers]
    print(f"| period, s | {' | '.join(names)} |\n|---{'|---|---' * len(names)}|")
    with in_memory() as folder, Wan(Topology.load({"links": LINKS, "congestion": "cubic"})) as wan:
        (folder / "file").write_bytes(os.urandom(given.size << 20))
        words = wan.command("depot", [DEPOT, "serve", *OPEN, "--audit", str(folder / "audit")])
        with servers.nginx(wan, "server", folder) as web, subprocess.Popen(words, stdout=subprocess.PIPE) as depot:
            assert depot.stdout is not None
            depot.stdout.readline()
            for period in map(float, given.periods.split(",")):
                rates = [
                    [_rate(wan, web.port, buffer, given.size << 20, period, seed) for buffer in buffers]
                    for seed in range(1, given.seeds + 1)
                ]
                print(_row(period, rates), flush=True)
            depot.kill()


def _rate(wan: Wan, port: int, buffer: int, size: int, period: float, seed: int) -> float:
    """Return the rate of one connection, in Mbit/s."""
    where = [wan.address("server"), str(port), f"{wan.address('depot')}:4000", str(buffer), str(size)]
    command = wan.command("client", [sys.executable, "-c", RECEIVER, *where])
    wan.reset_stats()
    with varied(wan, period, random.Random(seed).uniform(0, 2 * period)):
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True)
    wan.check()
    return 8e-6 * size / float(done.stdout)


@contextmanager
def varied(wan: Wan, period: float, ahead: float) -> Iterator[None]:
    """Vary the rate of the second leg, as if it had begun `ahead` seconds before."""
    over = threading.Event()
    began = time.monotonic() - ahead

    def vary() -> None:
        for number in itertools.count(int(ahead / period)):
            wan.set("client-depot", "ba", rate=RATES[number % 2])
            if over.wait(max(0.0, began + (number + 1) * period - time.monotonic())):
                return

    thread = threading.Thread(target=vary)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _row(period: float, rates: Sequence[Sequence[float]]) -> str:
    cells = [f"{period:g}"]
    for column in range(len(rates[0])):
        own = [each[column] for each in rates]
        cells += [spread(own, ".3g"), spread([each[column] / each[0] for each in rates], ".2f")]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
