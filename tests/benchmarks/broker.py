"""Speed of the broker, measured over HTTP on this machine; the broker runs as a separate process.

    python -m tests.benchmarks.broker [catalogue] [history] [postgres] [--names N] [--rows N]

`catalogue`: SQLite with a million names at three endpoints each; requests for 10,000 names, and for single names from
8 clients at once. `history`: reports of 20,000 transfers each, and forecasts for a known link. `postgres`: a start
with ten million observations, and requests for the newest 25 of a link. Prints each figure beside its target.
"""

import argparse
import json
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.support.broker import BrokerProcess
from tests.support.postgres import Postgres, postgres

CLIENTS = 8
SINGLES = 4000
PAIRS = 100
NOW = time.time()


def show(what: str, figure: float, unit: str, wanted: str) -> None:
    """Print one line of the table."""
    print(f"{what:<58} {figure:>10,.4g} {unit:<6} wanted {wanted}", flush=True)


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def at_once(
    broker: BrokerProcess, ask: Callable[[HTTPConnection, dict[str, str], int], None], count: int
) -> list[float]:
    """Send requests 0 to `count` - 1 from 8 clients at once; return the seconds that each took."""
    took: list[float] = []
    address = urlsplit(broker.url)
    headers = {"Authorization": f"Bearer {broker.token}", "Content-Type": "application/json"}

    def client(number: int) -> None:
        connection = HTTPConnection(address.hostname or "", address.port)
        for i in range(number, count, CLIENTS):
            began = time.perf_counter()
            ask(connection, headers, i)
            took.append(time.perf_counter() - began)
        connection.close()

    clients = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    return took


def observations(begin: int, count: int, back: float = 5e6) -> list[dict[str, object]]:
    """Return reports of transfers over a hundred links.

    :param back: age of transfer 0 in seconds; each further transfer starts a second later
    """
    draw = random.Random(begin)
    return [
        {
            "id": f"o{i}",
            "source": f"gsiftp://dtn{i % PAIRS}.example",
            "sink": "HERE",
            "started": NOW - back + i,
            "ended": NOW - back + i + 10,
            "bytes": int(1e9 * draw.lognormvariate(0, 0.5)),
            "setup_seconds": 0.2,
            "streams": 4,
        }
        for i in range(begin, begin + count)
    ]


def catalogue(folder: Path, names: int) -> None:
    """Measure an import of many names, and requests that resolve names."""
    with BrokerProcess(f"sqlite:///{folder / 'catalogue.sqlite'}", folder, "") as broker:
        client = broker.client()
        client.put("/broker/v1/sites/S", json={"name": "S"})
        for name in ("a", "b", "c"):
            endpoint = {"name": name, "site": "S", "scheme": "gsiftp", "host": f"{name}.example"}
            client.put(f"/broker/v1/endpoints/{name}", json=endpoint)
        places = [{"endpoint": name} for name in ("a", "b", "c")]

        def lines() -> Iterator[bytes]:
            for begin in range(0, names, 1000):
                yield b"".join(
                    json.dumps(
                        {
                            "name": f"run:{i:09}",
                            "size": 10**9 + i,
                            "checksums": {"adler32": f"{i:08x}"},
                            "replicas": places,
                        }
                    ).encode()
                    + b"\n"
                    for i in range(begin, begin + 1000)
                )

        seconds = timed(lambda: client.post("/broker/v1/import", content=lines(), timeout=3600).raise_for_status())
        show(f"import of {names:,} names, {3 * names:,} replicas", seconds, "s", "-")
        for name in ("a", "b"):
            reports = [{**each, "source": name, "id": f"{name}{each['id']}"} for each in observations(0, 200)]
            client.post("/broker/v1/transfers", json=reports).raise_for_status()
        draw = random.Random(1)
        wanted = {"names": [f"run:{i:09}" for i in draw.sample(range(names), min(names, 10_000))], "sink": "HERE"}
        client.post("/broker/v1/replicas/resolve", json=wanted).raise_for_status()
        time.sleep(20)  # until the broker has compiled its forecasters, which it does once
        took = []
        for _ in range(7):
            took.append(timed(lambda: client.post("/broker/v1/replicas/resolve", json=wanted).raise_for_status()))
        show("10,000 names with 30,000 replicas, median of 7", statistics.median(took), "s", "<= 0.5")
        picked = [json.dumps({"names": [f"run:{draw.randrange(names):09}"], "sink": "HERE"}) for _ in range(SINGLES)]

        def ask(connection: HTTPConnection, headers: dict[str, str], i: int) -> None:
            connection.request("POST", "/broker/v1/replicas/resolve", picked[i], headers)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()

        began = time.perf_counter()
        singles = at_once(broker, ask, SINGLES)
        show("single names, 8 clients", SINGLES / (time.perf_counter() - began), "1/s", ">= 300")
        show("  p99", 1000 * sorted(singles)[int(0.99 * SINGLES)], "ms", "<= 50")


def history(folder: Path) -> None:
    """Measure reports and forecasts."""
    with BrokerProcess(f"sqlite:///{folder / 'history.sqlite'}", folder, "") as broker:
        client = broker.client()
        parts = [observations(begin, 20_000) for begin in range(0, 100_000, 20_000)]
        documents = [json.dumps(part) for part in parts]
        headers = {"Content-Type": "application/json"}

        def report() -> None:
            for document in documents:
                client.post("/broker/v1/transfers", content=document, headers=headers).raise_for_status()

        show("reports in bulk, 20,000 at a time", 100_000 / timed(report), "1/s", ">= 20,000")
        asked = {"source": "gsiftp://dtn7.example", "sink": "HERE", "size": 10**9}
        client.get("/broker/v1/forecasts", params=asked)
        time.sleep(20)
        took = sorted(
            timed(lambda: client.get("/broker/v1/forecasts", params=asked).raise_for_status()) for _ in range(1000)
        )
        known = client.get("/broker/v1/forecasts", params=asked).json()
        show(f"forecast of a known pair by {known['forecaster']}, p99", 1000 * took[990], "ms", "<= 10")


def filled(server: Postgres, folder: Path, rows: int) -> str:
    """Create a database with this many observations over a hundred links and a year, inserted by one SQL statement.

    Return an admin token and the database's URL, separated by a space.
    """
    url = server.create()
    with BrokerProcess(url, folder, "") as broker:
        token = broker.token
        client = broker.client()
        for days in range(0, 400, 10):  # creates the partition of each month, and the row of each link
            part = [{**each, "id": f"{days}-{each['id']}"} for each in observations(0, PAIRS, days * 86_400 + 3600)]
            client.post("/broker/v1/transfers", json=part).raise_for_status()
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        begin, end = NOW - 390 * 86_400, NOW - 3600
        connection.execute(
            f"""INSERT INTO observations (ended, started, pair_id, bytes, setup_seconds, ranges, streams, concurrency,
                file_class, outcome, subject)
            SELECT {begin} + i * {(end - begin) / rows}, {begin} + i * {(end - begin) / rows} - 10,
                (SELECT min(id) FROM pairs) + i % {PAIRS}, 1000000000 + i % 1000000, 0.2, 1, 4, 0, '', 'ok', 'x'
            FROM generate_series(1, {rows}) AS i"""
        )
        connection.execute(
            "UPDATE pairs SET newest_id = (SELECT max(id) FROM observations WHERE pair_id = pairs.id), observations = 1"
        )
        connection.execute("ANALYZE")
    return f"{token} {url}"


def large(folder: Path, rows: int) -> None:
    """Measure PostgreSQL with a long history."""
    with postgres() as server:
        began = time.perf_counter()
        token, url = filled(server, folder, rows).split()
        show(f"PostgreSQL filled with {rows:,} observations", time.perf_counter() - began, "s", "-")
        began = time.perf_counter()
        with BrokerProcess(url, folder, token) as broker:
            client = broker.client()
            client.get("/readyz").raise_for_status()
            show("start, until it is ready", time.perf_counter() - began, "s", "<= 5")
            asked = {"source": "gsiftp://dtn7.example", "sink": "HERE", "size": 10**9}
            first = timed(lambda: client.get("/broker/v1/forecasts", params=asked).raise_for_status())
            show("first forecast of a pair after the start", 1000 * first, "ms", "-")
            newest = {"source": "gsiftp://dtn7.example", "sink": "HERE", "limit": 25}
            took = [
                timed(lambda: client.get("/broker/v1/transfers", params=newest).raise_for_status()) for _ in range(50)
            ]
            show("newest 25 of a pair, median of 50, over HTTP", 1000 * statistics.median(took), "ms", "<= 10")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], "catalogue", "history", "postgres"], metavar="PART")
    parser.add_argument("--names", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=10_000_000)
    options = parser.parse_args()
    parts = options.parts or ["catalogue", "history", "postgres"]
    with tempfile.TemporaryDirectory() as folder:
        if "catalogue" in parts:
            catalogue(Path(folder), options.names)
        if "history" in parts:
            history(Path(folder))
        if "postgres" in parts:
            large(Path(folder), options.rows)


if __name__ == "__main__":
    main()
