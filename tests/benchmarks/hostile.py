"""The service that honest users get while eight other users send the most expensive requests that the broker accepts.

    python -m tests.benchmarks.hostile [--postgres] [--minutes M] [--after M]

Starts two brokers as separate processes, on SQLite or PostgreSQL, with two thousand datasets and some reports. Two
honest users of each request `/healthz` and resolve names all the time: before, during and after an attack on one of the
brokers, in which eight users send the requests of `tests.support.hostile`. Prints the memory of the attacked broker and
its children over time, percentiles of the honest users' response times at both brokers, and the number of responses of
each status, by attack.
"""

import argparse
import json
import math
import multiprocessing
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPException
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.support.broker import BrokerProcess
from tests.support.hostile import REFUSALS, Siege, resident, seated
from tests.support.postgres import postgres

USERS = 8
NAMES = 2_000
MB = 1 << 20
EVERY = {"healthz": 0.1, "resolve": 0.2}
"""Seconds between two requests of an honest user."""
SAMPLED = 5.0


class Honest:
    """Honest users, who send small requests from threads until `end`.

    :ivar took: for each request: its kind, when it began, the seconds until the response, its status (0: no response)
    """

    def __init__(self, url: str, token: str) -> None:
        self._address = urlsplit(url)
        self._token = token
        self._ended = threading.Event()
        self.took: list[tuple[str, float, float, int]] = []
        self._threads = [threading.Thread(target=self._ask, args=(what,)) for what in EVERY for _ in range(2)]
        for each in self._threads:
            each.start()

    def end(self) -> None:
        """Stop the users, and wait for their last responses."""
        self._ended.set()
        for each in self._threads:
            each.join()

    def _ask(self, what: str) -> None:
        body = json.dumps({"names": ["run:000001", "run:000100", "run:001000"], "sink": "S"})
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        connection = HTTPConnection(self._address.hostname or "", self._address.port, timeout=60)
        while not self._ended.wait(EVERY[what]):
            began, status = time.monotonic(), 0
            try:
                if what == "healthz":
                    connection.request("GET", "/healthz")
                else:
                    connection.request("POST", "/broker/v1/replicas/resolve", body, headers)
                answer = connection.getresponse()
                answer.read()
                status = answer.status
            except (OSError, HTTPException):
                connection.close()
            self.took.append((what, began, time.monotonic() - began, status))
        connection.close()


def stocked(broker: BrokerProcess) -> None:
    """Add datasets, replicas and reported transfers to a broker."""
    client = broker.client()
    client.put("/broker/v1/sites/S", json={"name": "S"}).raise_for_status()
    for name in ("a", "b", "c"):
        endpoint = {"name": name, "site": "S", "scheme": "ftp", "host": f"{name}.example"}
        client.put(f"/broker/v1/endpoints/{name}", json=endpoint).raise_for_status()
    places = [{"endpoint": name} for name in ("a", "b", "c")]
    lines = [json.dumps({"name": f"run:{i:06}", "size": 10**9, "replicas": places}) for i in range(NAMES)]
    client.post("/broker/v1/import", content="\n".join(lines)).raise_for_status()
    now = time.time()
    reports = [
        {"id": f"s{i}", "source": f"ftp://s{i % 20}.example", "sink": "S", "bytes": 10**9 + i}
        | {"started": now - 2_000_000 + i * 90, "ended": now - 1_999_990 + i * 90}
        for i in range(20_000)
    ]
    client.post("/broker/v1/transfers", json=reports).raise_for_status()


def token(client: httpx.Client, subject: str, role: str) -> str:
    """Issue a token."""
    answer = client.post("/broker/v1/tokens", json={"subject": subject, "role": role, "site": "S"})
    answer.raise_for_status()
    return str(answer.json()["token"])


def besiege(url: str, users: list[tuple[str, str]], seconds: float, results: Connection) -> None:
    """Send all attacks for a time, then the counts of their statuses to `results`. Runs as a separate process."""
    results.send(dict(Siege(url, users).run(seconds)))


class Memory(threading.Thread):
    """A thread that records the memory of a broker and its children.

    :ivar seen: samples every few seconds: time and bytes
    :ivar most: highest number of bytes
    """

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self._process = process
        self.seen: list[tuple[float, int]] = []
        self.most = 0
        self.start()

    def run(self) -> None:
        while True:
            now = resident(self._process)
            self.most = max(self.most, now)
            if not self.seen or time.monotonic() >= self.seen[-1][0] + SAMPLED:
                self.seen.append((time.monotonic(), now))
            time.sleep(0.1)


def percentiles(took: list[tuple[str, float, float, int]], begin: float, end: float, when: str) -> None:
    """Print a line for each kind of request, over the requests that began from `begin` until before `end`."""
    for what in EVERY:
        seconds = sorted(took for kind, at, took, _ in took if kind == what and begin <= at < end)
        statuses = Counter(status for kind, at, _, status in took if kind == what and begin <= at < end)
        if seconds:
            p50, p90, p99 = (1000 * seconds[int(part * (len(seconds) - 1))] for part in (0.5, 0.9, 0.99))
            print(f"{when:<7} {what:<8} {len(seconds):>6} requests  p50 {p50:6.0f} ms  p90 {p90:6.0f} ms  ", end="")
            print(f"p99 {p99:6.0f} ms  most {1000 * seconds[-1]:6.0f} ms  {dict(statuses)}", flush=True)


def run(broker: BrokerProcess, quiet: BrokerProcess, folder: Path, minutes: float, after: float) -> None:
    """Attack one broker, leave another one idle, and print the results.

    :param minutes: duration of the attack
    :param after: minutes of observation after it
    """
    stocked(broker)
    stocked(quiet)
    client = broker.client()
    tokens = [token(client, f"mallory{i}", "curator") for i in range(USERS)]
    users = [(each, seated(broker.url, each, folder)) for each in tokens]
    honest = Honest(broker.url, token(client, "ann", "reader"))
    beside = Honest(quiet.url, token(quiet.client(), "ann", "reader"))
    memory = Memory(broker.process.pid)
    time.sleep(30)
    start, began = resident(broker.process.pid), time.monotonic()
    ours, theirs = multiprocessing.Pipe()
    attacker = multiprocessing.get_context("spawn").Process(
        target=besiege, args=(broker.url, users, minutes * 60, theirs)
    )
    attacker.start()
    statuses: dict[tuple[str, int], int] = ours.recv()
    attacker.join()
    ended = time.monotonic()
    time.sleep(after * 60)
    left, alone = resident(broker.process.pid), resident(quiet.process.pid)
    honest.end()
    beside.end()
    print("memory in MB:", " ".join(f"{size // MB}" for _, size in memory.seen))
    print(f"memory: {start // MB} MB before, {memory.most // MB} MB at most, {left // MB} MB {after:g} minutes after")
    print(f"memory of the broker that was left alone: {alone // MB} MB")
    for when, (since, until) in {"before": (0, began), "while": (began, ended), "after": (ended, math.inf)}.items():
        percentiles(honest.took, since, until, when)
        percentiles(beside.took, since, until, "beside")
    for name in sorted({name for name, _ in statuses}):
        print(f"{name:<40}", {status: count for (each, status), count in sorted(statuses.items()) if each == name})
    strange = sorted({status for _, status in statuses if status >= 400} - REFUSALS)
    print("refusals:", Counter({s: sum(c for (_, e), c in statuses.items() if e == s) for _, s in statuses}), strange)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--after", type=float, default=5)
    words = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coget-hostile-")))
        urls = [f"sqlite:///{folder / name}" for name in ("besieged.sqlite", "quiet.sqlite")]
        if words.postgres:
            server = stack.enter_context(postgres())
            urls = [server.create(), server.create()]
        folders = [folder / "besieged", folder / "quiet"]
        for each in folders:
            each.mkdir()
        both = [stack.enter_context(BrokerProcess(*each)) for each in zip(urls, folders, strict=True)]
        run(both[0], both[1], folder, words.minutes, words.after)


if __name__ == "__main__":
    main()
