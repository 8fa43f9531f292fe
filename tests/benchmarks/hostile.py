"""Service for honest users while eight others send the worst requests that the broker accepts.

    python -m tests.benchmarks.hostile [--postgres] [--minutes M] [--after M]

Starts two brokers as processes of their own, on SQLite or PostgreSQL, with two thousand datasets and some reports. Two
honest users ask each for `/healthz` and resolve names all the time, before, while and after eight others send one of
them what is in `tests.support.hostile`. Prints what memory that broker and its children have over time, percentiles of
the honest users' times beside those at the other broker, and how often each attack had which status.
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
from http.client import HTTPConnection
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
    """Users with small requests, and how long they waited, by request and time."""

    def __init__(self, url: str, token: str) -> None:
        self._address = urlsplit(url)
        self._token = token
        self._ended = threading.Event()
        self.took: list[tuple[str, float, float, int]] = []
        self._threads = [threading.Thread(target=self._ask, args=(what,)) for what in EVERY for _ in range(2)]
        for each in self._threads:
            each.start()

    def end(self) -> None:
        """Wait until the users have left."""
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
            except OSError:
                connection.close()
            self.took.append((what, began, time.monotonic() - began, status))
        connection.close()


def stocked(broker: BrokerProcess) -> None:
    """Put names, replicas and reports into a broker."""
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


def besiege(url: str, users: list[tuple[str, str]], seconds: float, told: Connection) -> None:
    """Send all attacks, in a process of its own."""
    told.send(dict(Siege(url, users).run(seconds)))


class Memory(threading.Thread):
    """Memory of the broker and its children, as it was every few seconds."""

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
    """Print a line for each kind of request that began in a time."""
    for what in EVERY:
        seconds = sorted(took for kind, at, took, _ in took if kind == what and begin <= at < end)
        statuses = Counter(status for kind, at, _, status in took if kind == what and begin <= at < end)
        if seconds:
            p50, p90, p99 = (1000 * seconds[int(part * (len(seconds) - 1))] for part in (0.5, 0.9, 0.99))
            print(f"{when:<7} {what:<8} {len(seconds):>6} requests  p50 {p50:6.0f} ms  p90 {p90:6.0f} ms  ", end="")
            print(f"p99 {p99:6.0f} ms  most {1000 * seconds[-1]:6.0f} ms  {dict(statuses)}", flush=True)


def run(broker: BrokerProcess, quiet: BrokerProcess, folder: Path, minutes: float, after: float) -> None:
    """Attack a broker beside an idle one, and print the results."""
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
