"""Batched reads: bytes that the kernel gathers, in virtual time on a real socket."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from coalloc import api
from coalloc.engine.batched_reads import PART, ReadBuffer
from coalloc.testing.virtual_clock import run
from tests.support.nginx import Nginx

PLENTY = 1 << 40


def held(rtt, *steps, buffer=200_000, **bounds):
    """Return the gathered bytes after each step of (seconds, bytes that arrived, bytes still to come)."""

    async def gather():
        seen = []
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname()) as sock,
        ):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            gathers = ReadBuffer(sock, rtt, **bounds)
            for seconds, count, left in steps:
                await asyncio.sleep(seconds)
                gathers.received(count, left)
                seen.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT))
        return seen

    return run(gather())


@pytest.mark.parametrize(
    ("rtt", "seconds"),
    [(None, 0.03), (0.001, 0.03), (0.06, 0.06), (0.5, 0.1)],
    ids=["unknown", "near", "far", "farther"],
)
def test_bytes_of_a_short_period_are_gathered_into_one_read(rtt, seconds):
    assert held(rtt, (1.0, 1_000_000, PLENTY)) == [int(1_000_000 * seconds)]


def test_near_server_has_a_shorter_gathering_period():
    assert held(0.001, (1.0, 1_000_000, PLENTY), least=0.01) == [10_000]
    assert held(0.06, (1.0, 1_000_000, PLENTY), least=0.01) == [60_000]


def test_it_follows_the_rate():
    assert held(0.2, (1.0, 100_000, PLENTY), (0.5, 400_000, PLENTY), (1.0, 10, PLENTY)) == [10_000, 80_000, 1]


def test_a_source_that_turns_slow_does_not_look_stalled(monkeypatch):
    monkeypatch.setattr("coalloc.engine.batched_reads.MOST_BYTES", 20_000)
    assert held(0.2, (1.0, 10**9, PLENTY)) == [20_000]


def test_the_buffer_is_never_left_to_fill():
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 50_000)
        size = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    assert held(0.2, (1.0, 10**9, PLENTY), buffer=50_000) == [size // PART]


def test_the_last_bytes_are_not_waited_for_in_vain():
    assert held(0.2, (1.0, 1_000_000, PLENTY), (0.01, 9_000, 5_000), (0.01, 5_000, 0)) == [100_000, 5_000, 1]


def test_event_loops_of_two_threads_fetch_at_the_same_time(tmp_path):
    """Bytes of one loop must not come into the buffer of the other, which runs while the first receives or writes."""
    folder, contents = tmp_path / "export", [b"a" * (32 << 20), b"b" * (32 << 20)]
    folder.mkdir()
    with Nginx(folder, tmp_path / "nginx") as server, ThreadPoolExecutor(2) as threads:
        requests = []
        for number, content in enumerate(contents):
            (folder / f"{number}").write_bytes(content)
            requests.append(api.Request((server.url(f"{number}"),), output=tmp_path / f"{number}"))
        for report in threads.map(lambda request: asyncio.run(api.download(request)), requests):
            assert report
    assert [(tmp_path / f"{number}").read_bytes() == content for number, content in enumerate(contents)] == [True, True]
