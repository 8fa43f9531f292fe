"""A real broker scores reported transfers by itself, even if it is killed at any time."""

import httpx

from tests.support.broker import BrokerProcess, reports
from tests.support.waiting import PATIENCE, wait_until

COMPILED = 2 * PATIENCE
"""Seconds that compiling may take on a busy machine."""


def judged(client: httpx.Client) -> int:
    document = client.get("/broker/v1/reports/forecasters", params={"days": 0}).json()
    return document["facts"][0]["value"]


def until(client: httpx.Client, count: int) -> int:
    """Wait until at least this many transfers are scored; return the number."""
    return wait_until(lambda: found if (found := judged(client)) >= count else None, COMPILED)


def test_all_is_scored_once_though_the_broker_is_killed(empty_database, tmp_path):
    """Five pairs of 60 transfers; those that began before any of their pair had ended have no forecast to compare."""
    with BrokerProcess(empty_database, tmp_path) as broker:
        assert broker.client().post("/broker/v1/transfers", json=reports(0, 300)).json()["accepted"] == 300
        assert until(broker.client(), 1) >= 1
        broker.process.kill()
        broker.process.wait()
        token = broker.token
    with BrokerProcess(empty_database, tmp_path, token) as again:
        client = again.client()
        assert until(client, 5 * 58) == 5 * 58
        assert client.post("/broker/v1/transfers", json=reports(300, 5)).json()["accepted"] == 5
        assert until(client, 5 * 59) == 5 * 59
        pair = client.get("/broker/v1/reports/pair", params={"source": "ftp://s1.example", "sink": "HERE"}).json()
        assert pair["facts"][0]["value"] == 59
        assert "Traceback" not in again.log()
