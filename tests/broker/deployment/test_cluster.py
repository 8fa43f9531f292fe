"""Two broker processes on one PostgreSQL, behind nginx as in the how-to."""

import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.broker import BrokerProcess, kept_by
from tests.support.effort import effort
from tests.support.nginx import Nginx
from tests.support.postgres import Postgres
from tests.support.waiting import PATIENCE, wait_until

NOW = time.time()
REPORTS = effort(60, 200)
"""Minimum number of reports before one of the brokers is killed, and again after that."""
PROXY = (
    "location / { proxy_pass http://broker; proxy_next_upstream error timeout non_idempotent; "
    "proxy_set_header Host $host; }"
)


def _report(i: int) -> dict:
    start = NOW - 5_000_000 + i
    return {"id": f"r{i}", "source": "ftp://s.example", "started": start, "ended": start + 5, "bytes": 10**8 + i}


@pytest.mark.long
def test_one_is_killed_and_no_report_is_lost_that_was_answered(server: Postgres, tmp_path: Path):
    database = server.create()
    answered: list[int] = []
    failed: list[int] = []
    with BrokerProcess(database, tmp_path) as one, BrokerProcess(database, tmp_path, one.token) as two:
        upstream = "".join(f"server {urlsplit(broker.url).netloc};" for broker in (one, two))
        zones = f"upstream broker {{ {upstream} }}"
        with Nginx(tmp_path, tmp_path / "run", more=PROXY, zones=zones) as nginx:
            url, headers = f"http://127.0.0.1:{nginx.port}", {"Authorization": f"Bearer {one.token}"}
            stop = threading.Event()

            def report(lane: int) -> None:
                with httpx.Client(base_url=url, headers=headers, timeout=PATIENCE) as client:
                    for part in range(100_000):
                        i = 1_000_000 * lane + part
                        with suppress(httpx.TransportError):
                            done = client.post("/broker/v1/transfers", json=_report(i)).status_code == 200
                            (answered if done else failed).append(i)
                        if stop.is_set():
                            return

            lanes = [threading.Thread(target=report, args=(lane,)) for lane in range(4)]
            for lane in lanes:
                lane.start()
            wait_until(lambda: len(answered) >= REPORTS)
            two.process.kill()
            before = len(answered)
            wait_until(lambda: len(answered) >= before + REPORTS)
            stop.set()
            for lane in lanes:
                lane.join()
        kept = kept_by(one.client())
    assert len(kept) == len(set(kept))
    assert set(answered) <= set(kept)
    assert len(failed) <= len(lanes)  # at most the reports in flight at each
