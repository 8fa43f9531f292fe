"""Reports that wait for the broker: none is sent again and again, and they do not become more and more."""

import asyncio
import json
import time
from collections.abc import Coroutine

import pytest

from coalloc.broker_client import Broker, outbox
from coalloc.broker_client.outbox import send_results
from coalloc.config import BrokerAccess
from coalloc.history.values import PastTransfer
from tests.support.scripted import raw_server
from tests.support.waiting import PATIENCE

MARKS = [(f"lab:{number}", "http://a.example/x", "wrong") for number in range(3)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("COGET_HISTORY", str(tmp_path / "history.sqlite"))
    return tmp_path / "history.sqlite.outbox"


def broker(port: int = 9) -> Broker:
    return Broker(BrokerAccess(f"http://127.0.0.1:{port}", None, None))


def transfer() -> PastTransfer:
    now = time.time()
    return PastTransfer("http://a.example/x", now - 2, now - 1, 1000, 1.0, 0.1, 1, 1, "adaptive", "ok", None)


class OneAnswer:
    """A broker that answers one request of each run; the run is over when it makes another one, as if it were late."""

    def __init__(self) -> None:
        self.free = 0
        self.late = asyncio.Event()
        self.answered: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].split()[0])
        body = json.loads(await reader.readexactly(length))
        if self.free:
            self.free -= 1
            self.answered.append(head.split()[1].rpartition("/")[2])
            answer = json.dumps({"accepted": len(body)})
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\n\r\n{answer}".encode())
            await writer.drain()
        else:
            self.late.set()
        await reader.read()

    async def during(self, run: Coroutine[None, None, None]) -> None:
        """Carry out a run."""
        self.free = 1
        self.late.clear()
        running, late = asyncio.create_task(run), asyncio.create_task(self.late.wait())
        await asyncio.wait({running, late}, return_when=asyncio.FIRST_COMPLETED)
        late.cancel()
        running.cancel()
        await asyncio.wait({running, late})


async def test_each_run_goes_on_where_the_last_one_ran_out_of_time(folder, monkeypatch):
    """Transfers come first; a report that the broker has accepted is not sent again."""
    slow = OneAnswer()
    async with raw_server(slow) as port:
        monkeypatch.setattr(outbox, "PATIENCE", PATIENCE)
        await slow.during(send_results(broker(port), [transfer()], MARKS[:2]))
        for _ in MARKS[:2]:
            await slow.during(send_results(broker(port), []))
    assert slow.answered == ["transfers", "bad", "bad"]
    assert not list(folder.iterdir())


async def test_reports_do_not_become_more_and_more(folder, monkeypatch):
    """Old and surplus ones are removed, of any broker; so are files of processes that were killed."""
    monkeypatch.setattr(outbox, "MOST", 4)
    folder.mkdir()
    old = time.time() - outbox.OLDEST - 60
    (folder / f"{old:017.3f}-another-1.report").write_text("{}")
    (folder / f"{time.time() - 9:017.3f}-another-2.report").write_text("{}")
    (folder / "killed.new").touch()
    monkeypatch.setattr(outbox, "ABANDONED", -1.0)
    for mark in MARKS:
        await send_results(broker(), [], [mark])
    assert len(list(folder.iterdir())) == 4
    await send_results(broker(), [], MARKS[:1])
    stored = [path.read_text() for path in sorted(folder.iterdir())]
    assert [json.loads(each)["bad"] for each in stored] == [[list(mark)] for mark in (*MARKS, MARKS[0])]
