"""Clients of depots that lie, stall, or break off."""

import asyncio
import json
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest

from coalloc.depot import create_connection, open_connection
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.protocol.session_header import MAGIC
from tests.support.waiting import PATIENCE


@pytest.fixture
def depot() -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    """A function that runs a depot which treats its one client in this way, and returns the route over it."""
    threads = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)

        def run(treat: Callable[[socket.socket], None]) -> str:
            def serve() -> None:
                client, _ = listener.accept()
                with client, suppress(ConnectionError):
                    client.recv(1 << 16)
                    treat(client)

            threads.append(threading.Thread(target=serve))
            threads[-1].start()
            return str(HostPort(*listener.getsockname()))

        yield run
        for each in threads:
            each.join(PATIENCE)


def framed(fields: object) -> bytes:
    raw = json.dumps(fields).encode()
    return MAGIC + struct.pack(">H", len(raw)) + raw


LIES = {
    "nothing": b"",
    "half": framed({"legs": [0.1]})[:-3],
    "garbage": b"\xff" * 100,
    "too long": MAGIC + b"\xff\xff" + bytes(70_000),
    "no JSON": MAGIC + b"\0\5xxxxx",
    "negative hop": framed({"code": "refused", "message": "m", "hop": -7}),
    "hop beyond the route": framed({"code": "refused", "message": "m", "hop": 10**9}),
    "negative leg": framed({"legs": [-1]}),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
@pytest.mark.parametrize("kind", ["plain", "asyncio"])
def test_a_depot_that_lies_is_avoided(server, depot, caplog, lie: bytes, kind: str):
    route, to = depot(lambda client: client.sendall(lie)), server.getsockname()
    with caplog.at_level(logging.WARNING):
        if kind == "plain":
            create_connection(to, PATIENCE, route=route, first=b"first").close()
        else:
            asyncio.run(opened(to, route))
    with closing(server.accept()[0]) as sock:
        assert sock.recv(10) == b"first"
    assert f"depot {route}: " in caplog.text
    assert "directly" in caplog.text


async def opened(to: tuple[str, int], route: str) -> None:
    _, writer = await open_connection(*to, route=route, first=b"first")
    writer.close()
    await writer.wait_closed()


def drip(client: socket.socket) -> None:
    """Send a long answer, byte by byte."""
    for byte in MAGIC + b"\x0f\xff" + bytes(4095):
        client.sendall(bytes([byte]))
        time.sleep(0.05)


def test_the_time_limit_covers_the_whole_answer(server, depot, caplog):
    route = depot(drip)
    with caplog.at_level(logging.WARNING):
        create_connection(server.getsockname(), 0.5, route=route).close()
    server.accept()[0].close()
    assert "no answer in time" in caplog.text


async def test_a_cancelled_connection_leaves_no_thread(server):
    before = threading.active_count()
    with socket.socket() as full:  # a backlog without room, so that the next connection waits
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.create_connection(full.getsockname()):
            route = str(HostPort(*full.getsockname()))
            task = asyncio.create_task(open_connection(*server.getsockname(), route=route))
            await asyncio.sleep(0.05)
            assert not task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert threading.active_count() == before
