"""Speed of the broker's reports on large histories, as pages and as data, over HTTP on this machine.

    python -m tests.benchmarks.reports [postgresql] [sqlite] [--rows N] [--times N]

`postgresql`: ten million transfers in a year, over a thousand links, by five users. SQL statements generate the
transfers, the broker's own follower computes the sums, and SQL statements generate scores like the scorer's, and a
million measured routes.
`sqlite`: a hundred thousand transfers, reported over HTTP; sums and scores as for PostgreSQL, and a hundred thousand
measured routes. Prints for every report,
as an admin and as a user see it, the median and 95th percentile of the response times, and the targets.
"""

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from sqlalchemy import text

from broker.jobs.following import Rolling
from broker.reports.registry import REPORTS, ReportKind
from broker.storage.database import Database, addressed
from broker.storage.months import Months, month_of
from tests.benchmarks.broker import show, timed
from tests.benchmarks.reports_sql import ACCURACY, DAY, OBSERVATIONS, PAIRS, ROUTES, SCORES, STANDS
from tests.support.broker import BrokerProcess
from tests.support.browser import Page
from tests.support.postgres import postgres

NOW = time.time()
YEAR = 365 * DAY
ASKED = {"pair": {"source": "gsiftp://dtn1.example", "sink": "SITE1"}, "transfer": {"id": "1"}}
"""Parameters of the reports that require some."""
DECISIONS = 3000
SQLITE = {"{random}": "abs(random() / 9223372036854775807.0)", "{least}": "min"}
POSTGRESQL = {"{random}": "random()", "{least}": "least"}
BARS = {"postgresql": 1.0, "sqlite": 0.3}
SMALL = 100_000
MEASURED = {"postgresql": 1_000_000, "sqlite": SMALL}
"""Numbers of measured routes, in a year."""


async def filled(url: str, rows: int) -> None:
    """Fill PostgreSQL with this many transfers, their sums and their scores."""
    database = Database(addressed(url))
    months = {month_of(NOW - days * DAY) for days in range(370)}
    async with database.write() as connection:
        await Months().make(connection, months)
    for name, statement in (("transfers", PAIRS), ("transfers", OBSERVATIONS), ("transfers", STANDS)):
        await _run(database, name, statement, rows)
    began, rolling = time.perf_counter(), Rolling(database)
    while await rolling.step():
        pass
    show(f"adding {rows:,} transfers to the sums", rows / (time.perf_counter() - began), "1/s", "-")
    await scored(database, rows)
    await database.close()


async def scored(database: Database, rows: int) -> None:
    """Insert measured routes, and scores like those that the scorer would compute, which would take too long."""
    await _run(database, "routes", ROUTES, MEASURED["sqlite" if database.sqlite else "postgresql"])
    for name, statement in (
        ("scores", SCORES),
        ("accuracy", ACCURACY),
        ("statistics", STANDS),
        ("statistics", "ANALYZE"),
    ):
        await _run(database, name, statement, rows)


async def _run(database: Database, name: str, script: str, rows: int) -> None:
    began = time.perf_counter()
    theirs = SQLITE if database.sqlite else POSTGRESQL
    values = {**theirs, "{rows}": str(rows), "{begin}": repr(NOW - YEAR), "{step}": repr((YEAR - 60) / rows)}
    for name_, value in values.items():
        script = script.replace(name_, value)
    async with database.write() as connection:
        for statement in filter(str.strip, script.split(";")):
            await connection.execute(text(statement.replace(":", r"\:")))
    show(f"made: {name}", time.perf_counter() - began, "s", "-")


def reported(client: httpx.Client, rows: int) -> None:
    """Report this many transfers over a hundred links in three months, as the client's user."""
    draw = random.Random(1)
    for begin in range(0, rows, 20_000):
        part = []
        for i in range(begin, begin + 20_000):
            ended = NOW - 90 * DAY * (1 - i / rows) - 60
            nbytes = int(10 ** draw.uniform(6.5, 10))
            pair = draw.randrange(100)
            seconds = 0.2 + nbytes / (1e7 * (1 + pair % 50) * draw.lognormvariate(0, 0.3))
            part.append(
                {
                    "id": f"b{i}",
                    "source": f"gsiftp://dtn{pair % 10}.example",
                    "sink": f"SITE{pair // 10}",
                    "started": ended - seconds,
                    "ended": ended,
                    "bytes": nbytes,
                    "setup_seconds": 0.2,
                    "outcome": "failed" if draw.random() < 0.02 else "ok",
                }
            )
        client.post("/broker/v1/transfers", json=part).raise_for_status()


async def followed(url: str) -> None:
    """Compute the sums of the reported transfers, and insert scores."""
    database = Database(addressed(url))
    while await Rolling(database).step():
        pass
    await scored(database, SMALL)
    await database.close()


def decided(client: httpx.Client) -> None:
    """Report decisions of four weeks, about downloads from three sources each, as the client's user."""
    for begin in range(0, DECISIONS, 100):
        part = [_decision(i, NOW - 28 * DAY * (1 - i / DECISIONS)) for i in range(begin, begin + 100)]
        client.post("/broker/v1/decisions", json=part).raise_for_status()


def _decision(number: int, at: float) -> dict[str, Any]:
    draw = random.Random(number)
    rates = [1e7 * draw.lognormvariate(0.5, 0.5) for _ in range(3)]
    share, seconds = 10**9 // 3, 10**9 / sum(rates)
    sources = [
        {
            "source": f"gsiftp://dtn{draw.randrange(10)}.example",
            "url": f"gsiftp://dtn{place}.example/data/{number}",
            "rate": {"p10": rate / 2, "p50": rate * draw.lognormvariate(0, 0.3), "p90": rate * 2},
            "planned_bytes": share,
            "bytes": share + (10**9 - 3 * share if place == 0 else 0),
            "seconds": seconds,
            "setup_seconds": 0.2,
            "start_seconds": 0.2,
            "flow_seconds": max(0.1, seconds - 0.2),
            "outcome": "ok",
        }
        for place, rate in enumerate(rates)
    ]
    return {
        "id": f"d{number}",
        "at": at,
        "kind": "download",
        "thing": f"run:{number}",
        "sink": "SITE1",
        "bytes": 10**9,
        "moved": 10**9,
        "strategy": "adaptive",
        "rationale": "shares by forecasts",
        "outcome": "ok",
        "seconds": seconds + 1,
        "fetch_seconds": seconds,
        "sources": sources,
    }


def address(kind: ReportKind) -> str | None:
    """Return the path and query of a report; None if `ASKED` lacks a parameter that it requires."""
    needed = {name for name, field in kind.query.model_fields.items() if field.is_required()}
    asked = ASKED.get(kind.name, {})
    return f"{kind.name}?{urlencode(asked)}".rstrip("?") if needed <= asked.keys() else None


def logged_in(broker: BrokerProcess, token: str) -> httpx.Client:
    """Log in to the web pages with a token; return a client with the session's cookie."""
    client = httpx.Client(base_url=broker.url, follow_redirects=True, timeout=60)
    page = Page(client.get("/reports/overview"))
    while page.action and "token" in page.fields:
        page = Page(client.post(page.action, data={**page.fields, "token": token, "decision": "allow"}))
    assert page.status == 200, page.text
    return client


def measured(broker: BrokerProcess, who: str, token: str, bar: float, times: int) -> None:
    """Measure each report as a page and as data, and print the results.

    :param who: name of the user; `admin` also gets the reports for admins
    :param bar: target in seconds
    :param times: number of requests
    """
    pages = logged_in(broker, token)
    data = httpx.Client(base_url=broker.url, headers={"Authorization": f"Bearer {token}"}, timeout=60)
    for kind in REPORTS.values():
        if kind.admin and who != "admin":
            continue
        if (asked := address(kind)) is None:
            print(f"{kind.name}: skipped, because ASKED lacks a parameter", flush=True)
            continue
        for client, path in ((pages, f"/reports/{asked}"), (data, f"/broker/v1/reports/{asked}")):
            took = sorted(_times(client, path, times))
            what = f"{who}: {path.partition('?')[0]}"
            show(f"{what}, median", 1000 * statistics.median(took), "ms", f"<= {1000 * bar:g}")
            show("  95th percentile", 1000 * took[int(0.95 * (len(took) - 1))], "ms", f"<= {1000 * bar:g}")
    pages.close()
    data.close()


def _times(client: httpx.Client, path: str, times: int) -> Iterator[float]:
    for _ in range(times):
        yield timed(lambda: client.get(path).raise_for_status())


def of(database: str, url: str, folder: Path, options: argparse.Namespace) -> None:
    """Fill one database and measure the reports on it."""
    with BrokerProcess(url, folder, "") as broker:
        token = broker.token
        client = broker.client()
        user = client.post("/broker/v1/tokens", json={"subject": "user1", "role": "transfer"}).json()["token"]
        with httpx.Client(base_url=broker.url, headers={"Authorization": f"Bearer {user}"}, timeout=600) as theirs:
            decided(theirs)
            if database == "sqlite":
                reported(theirs, SMALL)
    asyncio.run(followed(url) if database == "sqlite" else filled(url, options.rows))
    with BrokerProcess(url, folder, token) as broker:
        for who, known in (("admin", token), ("user", user)):
            measured(broker, who, known, BARS[database], options.times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("databases", nargs="*", choices=[[], *BARS], metavar="DATABASE")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--times", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for database in options.databases or BARS:
            if database == "sqlite":
                of(database, f"sqlite:///{Path(folder) / 'reports.sqlite'}", Path(folder), options)
            else:
                with postgres() as server:
                    of(database, server.create(), Path(folder), options)


if __name__ == "__main__":
    main()
