"""A file read in order whose finish time a broker promises: a broker that hangs at its end costs nothing but a wait."""

import asyncio
import json
import time
from contextlib import aclosing

import pytest

from coalloc import api
from coalloc.broker_client import guarantee, outbox
from coalloc.model.promises import Deadline
from tests.support.fetching import random_file
from tests.support.nginx import Nginx
from tests.support.scripted import raw_server
from tests.support.waiting import PATIENCE

MADE = json.dumps({"outcome": "open", "id": 7})


class HangingBroker:
    """A broker that makes a promise, and then hangs: it answers nothing, or one byte after the other without end.

    :ivar asked: paths of all requests
    """

    def __init__(self, drips: bool) -> None:
        self._drips = drips
        self.asked: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(head.split()[1].decode())
        if self.asked[-1].endswith("/guarantees"):
            writer.write(f"HTTP/1.1 201 Created\r\nContent-Length: {len(MADE)}\r\n\r\n{MADE}".encode())
        elif self._drips:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)
        await reader.read()


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("COGET_HISTORY", str(tmp_path / "history.sqlite"))
    monkeypatch.setattr(guarantee, "PATIENCE", 0.5)
    monkeypatch.setattr(outbox, "PATIENCE", 0.5)


@pytest.mark.parametrize("drips", [False, True])
async def test_a_complete_file_is_read_to_its_end_though_the_broker_hangs(tmp_path, drips):
    with Nginx(tmp_path / "export", tmp_path / "run") as web:
        content = random_file(web.root / "x", 3_000_000)
        broker, results = HangingBroker(drips), api.Results()
        async with raw_server(broker) as port:
            deadline = Deadline(time.time() + 3600)
            wanted = api.Request((web.url("x"),), broker=f"http://127.0.0.1:{port}", deadline=deadline)
            async with asyncio.timeout(PATIENCE), aclosing(api.stream(wanted, results=results)) as chunks:
                read = b"".join([chunk async for chunk in chunks])
    assert read == content
    assert "/broker/v1/guarantees/7/ended" in broker.asked
    (report,) = results.done
    assert report.deadline.kept
    assert report.deadline.guarantee == 7
