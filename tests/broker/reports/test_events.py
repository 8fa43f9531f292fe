"""Live pages: the event stream, its readers, and its end."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.broker import BrokerProcess, broker_in
from tests.support.browser import Browser
from tests.support.waiting import PATIENCE

STREAM = "/reports/overview/events"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker_in(tmp_path) as running:
        yield running


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def _somebody(open_: ExitStack, broker: BrokerProcess, folder: Path, token: str) -> httpx.Client:
    """The client of a logged-in browser."""
    browser = Browser(folder / f"{token[-5:]}.json")
    open_.callback(browser.close)
    browser.send(browser.open(f"{broker.url}/reports"), token=token)
    return browser.client


def _user(broker: BrokerProcess, subject: str) -> str:
    sent = {"subject": subject, "role": "transfer"}
    return str(broker.client().post("/broker/v1/tokens", json=sent).json()["token"])


class Stream:
    """The data of a stream, piece by piece."""

    def __init__(self, open_: ExitStack, client: httpx.Client, broker: BrokerProcess) -> None:
        self.answer = open_.enter_context(client.stream("GET", broker.url + STREAM))
        self._lines = self.answer.iter_lines()

    def parts(self) -> dict[str, Any] | None:
        """Return the next event; None at the end."""
        for line in self._lines:
            if line.startswith("data: "):
                return dict(json.loads(line.removeprefix("data: ")))
        return None

    def until(self, name: str, text: str) -> None:
        """Wait for an event with that content."""
        while (parts := self.parts()) is not None:
            if parts.get(name) == text:
                return
        raise AssertionError(f"{name} never was {text}")


def _moved(client: httpx.Client, token: str, number: int) -> None:
    now = time.time()
    sent = {"id": f"x{number}", "source": "ftp://s.example", "sink": "HERE", "bytes": 10**9}
    headers = {"Authorization": f"Bearer {token}"}
    answer = client.post("/broker/v1/transfers", json={**sent, "started": now - 2, "ended": now}, headers=headers)
    assert answer.json()["accepted"] == 1


def test_a_page_gets_updates_that_its_reader_may_see(broker, opened, tmp_path):
    ann, eve = _user(broker, "ann"), _user(broker, "eve")
    hers = Stream(opened, _somebody(opened, broker, tmp_path, ann), broker)
    others = Stream(opened, _somebody(opened, broker, tmp_path, eve), broker)
    assert hers.answer.headers["content-type"].startswith("text/event-stream")
    for stream in (hers, others):
        first = stream.parts()
        assert first is not None
        assert first["fact-transfers-today"] == "0"
        assert any(name.startswith("rows-") for name in first)
    _moved(broker.client(), ann, 1)
    hers.until("fact-transfers-today", "1")
    _moved(broker.client(), eve, 2)
    others.until("fact-transfers-today", "1")


def test_the_stream_requires_a_login(broker):
    answer = httpx.get(broker.url + STREAM, timeout=PATIENCE)
    assert answer.status_code == 303
    assert broker.client().get(STREAM).status_code == 303


def test_a_stream_ends_with_the_session(broker, opened, tmp_path):
    client = _somebody(opened, broker, tmp_path, broker.token)
    stream = Stream(opened, client, broker)
    assert stream.parts()
    form = client.get(f"{broker.url}/reports/overview").text.partition('name="form" value="')[2].partition('"')[0]
    assert client.post(f"{broker.url}/reports/logout", data={"form": form}).status_code == 200
    assert stream.parts() is None


def test_a_stream_lets_the_broker_end(broker, opened, tmp_path):
    stream = Stream(opened, _somebody(opened, broker, tmp_path, broker.token), broker)
    assert stream.parts()
    broker.process.terminate()
    assert stream.parts() is None
    broker.process.wait(PATIENCE)
    assert "Cancel" not in broker.log()
