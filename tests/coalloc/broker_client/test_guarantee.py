"""Answers about promised finish times that no broker gives: the transfer goes on without a promise."""

import asyncio
import json
import time

import pytest

from coalloc.broker_client import guarantee
from coalloc.broker_client.guarantee import ReservedFinish, named_servers, usable_servers
from coalloc.config import BrokerAccess
from coalloc.errors import DeadlineRefused
from coalloc.model.progress import Snapshot, SourceView
from coalloc.model.promises import Deadline
from tests.support.scripted import raw_server
from tests.support.waiting import PATIENCE

FAULT = {"code": "not_guaranteed", "message": "too late", "remedy": "use more time"}
REFUSAL = {"error": FAULT, "chance": 0.5, "earliest": None, "sources": ["ftp://a.example"]}
MADE = '{"outcome": "open", "id": 7}'


SEEN = Snapshot("x", "fetching", 0.0, sources=(SourceView("ftp://ann:secret@a.example/x", "idle"),))


class Answering:
    """A broker that gives these answers, each a status and a body, and is silent after the last one."""

    def __init__(self, *answers: tuple[str, str]) -> None:
        self.answers = list(answers)

    async def __call__(self, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        if self.answers:
            status, body = self.answers.pop(0)
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode())
            writer.write(body.encode())
            await writer.drain()
        await reader.read()


def reserved(port: int, most: int | None = None) -> ReservedFinish:
    access = BrokerAccess(f"http://127.0.0.1:{port}", None, "HERE")
    return ReservedFinish(access, Deadline(time.time() + 60), "x", most)


async def asked(*answer: str, seen: Snapshot = SEEN, most: int | None = None) -> int | None:
    """Return the number of the promise that a broker with this answer makes; without one it is silent."""
    answers = [answer, ("200 OK", '{"outcome": "kept"}')] if answer else []
    async with raw_server(Answering(*answers)) as port:
        held = reserved(port, most)
        async with held.held(lambda: seen):
            await held.admit(1000)
        return held.number


@pytest.mark.parametrize(
    "made",
    [
        "",
        "[",
        "null",
        "[]",
        "{}",
        '{"outcome": "open"}',
        '{"outcome": "open", "id": -1}',
        '{"outcome": "kept", "id": 1}',
    ],
)
async def test_a_malformed_promise_is_none(made):
    assert await asked("201 Created", made) is None


@pytest.mark.parametrize(
    "changed",
    [{"chance": "0.5"}, {"chance": -1}, {"chance": None}, {"earliest": "soon"}, {"error": {**FAULT, "code": "x"}}],
)
async def test_a_malformed_refusal_is_none(changed):
    assert await asked("409 Conflict", json.dumps({**REFUSAL, **changed})) is None


@pytest.mark.parametrize("earliest", [None, 0, 5, 1e300])
async def test_a_refusal_without_a_possible_time_offers_none(earliest):
    with pytest.raises(DeadlineRefused) as caught:
        await asked("409 Conflict", json.dumps({**REFUSAL, "earliest": earliest}))
    assert "50 %, not 95 %" in caught.value.message
    assert caught.value.remedy == "use a lower --sure, or more sources"


async def test_a_broker_that_never_answers_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(guarantee, "ASKED", 0.1)
    monkeypatch.setattr(guarantee, "PATIENCE", 0.1)
    assert await asked() is None


def test_only_servers_that_the_transfer_can_use_are_named_and_no_more_than_it_uses():
    urls = {"ftp://a:b@c.example/x": "idle", "file:///x": "idle", "ftp://d/x": "dropped", "ftp://e/x": "fetching"}
    sources = tuple(SourceView(url, state) for url, state in {**urls, "ftp://f/x": "waiting"}.items())
    seen = Snapshot("x", "connecting", 0.0, sources=sources)
    assert named_servers(usable_servers(seen, None)) == ["ftp://c.example", "ftp://e"]
    assert named_servers(usable_servers(seen, 1)) == ["ftp://c.example"]


@pytest.mark.parametrize("other", ["ftp://b.example/x", "file:///x", "/x"])
async def test_a_refusal_that_does_not_rest_on_all_sources_leaves_the_decision_to_coget(other):
    seen = SEEN._replace(sources=(*SEEN.sources, SourceView(other, "connecting")))
    considered = {**REFUSAL, "sources": ["ftp://a.example", "file://"]}
    assert await asked("409 Conflict", json.dumps(considered), seen=seen) is None
    with pytest.raises(DeadlineRefused):
        await asked("409 Conflict", json.dumps(considered), seen=seen, most=1)


@pytest.mark.parametrize(
    ("status", "outcome", "is_over"),
    [
        ("200 OK", "kept", False),
        ("200 OK", "expired", True),
        ("404 Not Found", "", True),
        ("502 Bad Gateway", "", False),
    ],
)
async def test_the_answer_to_the_end_tells_whether_the_promise_was_over(status, outcome, is_over):
    ended = {"outcome": outcome} if outcome else {"error": FAULT}
    broker = Answering(("201 Created", MADE), (status, json.dumps(ended)))
    async with raw_server(broker) as port:
        held = reserved(port)
        async with held.held(lambda: SEEN):
            await held.admit(1000)
    assert (held.number, held.is_over) == (7, is_over)


async def test_an_error_page_of_a_proxy_does_not_end_the_reports_but_a_broker_without_the_promise_does(monkeypatch):
    monkeypatch.setattr(guarantee, "EVERY", 0.01)
    page, gone = "<html>bad gateway</html>", json.dumps({"error": FAULT})
    answers = [("502 Bad Gateway", page), ("404 Not Found", page), ("401 Unauthorized", gone), ("409 Conflict", gone)]
    broker = Answering(("201 Created", MADE), *answers, ("200 OK", '{"outcome": "expired"}'))
    async with raw_server(broker) as port:
        held, others = reserved(port), asyncio.all_tasks()
        async with held.held(lambda: SEEN._replace(size=1000)):
            (reporting,) = asyncio.all_tasks() - others
            await held.admit(1000)
            await asyncio.wait_for(reporting, PATIENCE)
            assert (held.is_over, len(broker.answers)) == (True, 1)


class Broker:
    """A broker that does not answer the first requests, and then makes promise 7.

    :param hangs: for each of the first requests, whether it keeps the connection open
    :ivar hanging: set when the last of them has arrived
    """

    def __init__(self, *hangs: bool) -> None:
        self.hangs = hangs
        self.requests: list[tuple[str, str, dict]] = []
        self.hanging = asyncio.Event()

    async def __call__(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
        body = json.loads(await reader.readexactly(length) or b"{}")
        self.requests.append((*head.split()[:2], body))
        if (number := len(self.requests)) <= len(self.hangs):
            if number == len(self.hangs):
                self.hanging.set()
            if self.hangs[number - 1]:
                await reader.read()
            return
        answer = b'{"outcome": "open", "id": 7}'
        writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(answer) + answer)
        await writer.drain()


async def test_a_request_whose_answer_is_lost_is_repeated_and_makes_one_promise():
    broker = Broker(False)
    async with raw_server(broker) as port:
        held = ReservedFinish(BrokerAccess(f"http://127.0.0.1:{port}", None, None), Deadline(time.time() + 60), "x")

        async def transfer() -> None:
            async with held.held(lambda: SEEN):
                await held.admit(1000)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await transfer()
    assert held.number == 7
    (_, _, first), (_, _, second), end = broker.requests
    assert first == second
    assert end == ("post", "/broker/v1/guarantees/7/ended", {"complete": False})


@pytest.mark.parametrize("hangs", [(True,), (False, True)])
async def test_a_transfer_that_is_cancelled_while_it_asks_leaves_no_promise(hangs):
    broker = Broker(*hangs)
    async with raw_server(broker) as port:
        held = ReservedFinish(BrokerAccess(f"http://127.0.0.1:{port}", None, None), Deadline(time.time() + 60), "x")

        async def transfer() -> None:
            async with held.held(lambda: SEEN):
                await held.admit(1000)

        task = asyncio.create_task(transfer())
        await asyncio.wait_for(broker.hanging.wait(), PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    *asked, end = broker.requests
    assert asked == [asked[0]] * (len(hangs) + 1)
    assert end == ("delete", "/broker/v1/guarantees/7", {})
