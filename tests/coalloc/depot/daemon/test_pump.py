import asyncio
import os
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from coalloc.depot.daemon.pump import Account, Ending, Pump
from tests.support.waiting import until

MUCH = 8 << 20


def connected() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    for each in (near, far):
        each.setblocking(False)
    return near, far


class Carried:
    """A client and a server between which a pump carries bytes."""

    def __init__(self, pump: Pump, account: Account, buffer: int) -> None:
        self.client, inner = connected()
        self.server, outer = connected()
        self.endings: list[Ending] = []
        self.moved = 0
        pump.add(inner, outer, account, self._end, buffer=buffer)

    def _end(self, pair, ending: Ending) -> None:
        self.endings.append(ending)
        self.moved = pair.up.moved + pair.down.moved

    def close(self) -> None:
        self.client.close()
        self.server.close()


class Carrier:
    """A pump; each call returns a client and a server between which it carries bytes."""

    def __init__(self, buffer: int) -> None:
        self.pump = Pump()
        self.buffer = buffer
        self._made: list[Carried] = []

    def __call__(self, account: Account | None = None) -> Carried:
        self._made.append(Carried(self.pump, account or Account(), self.buffer))
        return self._made[-1]

    def close(self) -> None:
        for each in self._made:
            each.close()
        self.pump.close()


@pytest.fixture(params=[0, 1 << 20], ids=["plain", "buffered"])
async def carry(request: pytest.FixtureRequest) -> AsyncIterator[Carrier]:
    carrier = Carrier(request.param)
    yield carrier
    carrier.close()


async def received(sock: socket.socket) -> bytes:
    """Return all bytes up to the end of the stream."""
    loop, data = asyncio.get_running_loop(), bytearray()
    while more := await loop.sock_recv(sock, 1 << 16):
        data += more
    return bytes(data)


async def send(sock: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(sock, data)


async def test_bytes_go_both_ways_at_once(carry):
    pair = carry()
    up, down = os.urandom(MUCH), os.urandom(MUCH)

    async def give(sock: socket.socket, data: bytes) -> None:
        await send(sock, data)
        sock.shutdown(socket.SHUT_WR)

    there, back, _, _ = await asyncio.gather(
        received(pair.server), received(pair.client), give(pair.client, up), give(pair.server, down)
    )
    assert (there, back) == (up, down)
    await until(lambda: pair.endings)
    assert pair.endings == ["closed"]
    assert pair.moved == 2 * MUCH


async def test_a_half_closed_stream_is_answered(carry):
    pair = carry()
    await send(pair.client, b"question")
    pair.client.shutdown(socket.SHUT_WR)
    assert await received(pair.server) == b"question"
    await send(pair.server, b"answer")
    assert await asyncio.get_running_loop().sock_recv(pair.client, 100) == b"answer"
    assert pair.endings == []


@pytest.mark.parametrize("at_once", [True, False])
async def test_urgent_bytes_are_carried_like_others(carry, at_once: bool):
    pair = carry()
    for data, flags in ((b"some", 0), (b"urgent!", socket.MSG_OOB), (b"more", 0), (b"!", socket.MSG_OOB)):
        pair.client.send(data, flags)
        if not at_once:
            assert await asyncio.get_running_loop().sock_recv(pair.server, len(data)) == data
    pair.client.shutdown(socket.SHUT_WR)
    assert await received(pair.server) == (b"someurgent!more!" if at_once else b"")


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.close()


@pytest.mark.parametrize("side", ["client", "server"])
async def test_a_reset_is_a_reset_on_the_other_side(carry, side: str):
    pair = carry()
    one, other = (pair.client, pair.server) if side == "client" else (pair.server, pair.client)
    await send(one, b"some")
    assert await asyncio.get_running_loop().sock_recv(other, 100) == b"some"
    reset(one)
    with pytest.raises(ConnectionResetError):
        await received(other)
    assert pair.endings == ["reset"]


async def test_a_reset_behind_bytes_that_wait_is_a_reset(carry):
    pair = carry()
    loop = asyncio.get_running_loop()
    filling = loop.create_task(send(pair.client, bytes(64 << 20)))
    await asyncio.sleep(0.2)  # the server reads nothing, so all buffers become full
    filling.cancel()
    await asyncio.gather(filling, return_exceptions=True)
    reset(pair.client)
    with pytest.raises(ConnectionResetError):
        await received(pair.server)


async def test_a_reset_after_the_end_of_one_direction_is_a_reset(carry):
    pair = carry()
    pair.server.shutdown(socket.SHUT_WR)
    assert await received(pair.client) == b""
    reset(pair.server)
    await until(lambda: pair.endings)
    assert pair.endings == ["reset"]


async def test_a_stalled_session_does_not_stop_others(carry):
    stalled, other = carry(), carry()
    loop = asyncio.get_running_loop()
    filling = loop.create_task(send(stalled.client, bytes(256 << 20)))
    reading = loop.create_task(received(other.server))
    await send(other.client, bytes(MUCH))
    other.client.shutdown(socket.SHUT_WR)
    assert len(await reading) == MUCH
    assert not filling.done()
    filling.cancel()
    await asyncio.gather(filling, return_exceptions=True)


async def test_the_bytes_of_a_ticket_are_counted_over_all_its_sessions(carry):
    account = Account(100)
    first, second = carry(account), carry(account)
    await send(first.client, bytes(60))
    assert len(await asyncio.get_running_loop().sock_recv(first.server, 100)) == 60
    await send(second.client, bytes(60))
    with pytest.raises(ConnectionResetError):
        await received(second.client)
    assert second.endings == ["limit"]


async def test_a_ticket_without_bytes_left_moves_none_in_its_other_sessions(carry):
    account = Account(100)
    first, second = carry(account), carry(account)
    await send(first.client, bytes(60))
    assert len(await asyncio.get_running_loop().sock_recv(first.server, 100)) == 60
    await send(second.client, bytes(60))
    await until(lambda: second.endings)
    await send(first.client, bytes(60))
    await until(lambda: first.endings)
    assert first.endings == ["limit"]
    assert first.moved == 60


async def test_idle_sessions_are_reset(carry):
    pair = carry()
    await asyncio.sleep(0.02)
    carry.pump.reset_idle(10.0)
    assert pair.endings == []
    carry.pump.reset_idle(0.01)
    assert pair.endings == ["idle"]
    with pytest.raises(ConnectionResetError):
        await received(pair.client)


async def test_a_buffer_takes_bytes_while_the_receiver_stalls(carry):
    pair = carry()
    filling = asyncio.get_running_loop().create_task(send(pair.client, bytes(256 << 20)))
    (known,) = carry.pump.pairs
    if carry.buffer:
        await until(lambda: known.up.held == carry.buffer)
    else:
        await until(lambda: known.up.held)
        assert known.up.held <= 1 << 18
    assert not filling.done()
    filling.cancel()
    await asyncio.gather(filling, return_exceptions=True)


@pytest.fixture
async def buffered() -> AsyncIterator[Callable[[int], Carrier]]:
    """A function that returns a carrier with a buffer of this many bytes."""
    made: list[Carrier] = []

    def make(size: int) -> Carrier:
        made.append(Carrier(size))
        return made[-1]

    yield make
    for each in made:
        each.close()


async def each_iteration(question: Callable[[], object]) -> None:
    """Call a function after each iteration of the event loop, until it returns true."""
    for _ in range(100_000):
        if question():
            return
        await asyncio.sleep(0)
    raise TimeoutError


async def test_a_turn_has_a_number_of_moves(buffered):
    carrier = buffered(1)
    await send(carrier().client, bytes(1 << 16))
    (known,) = carrier.pump.pairs
    await each_iteration(lambda: known.up.moved)
    assert known.up.moved < 1000


async def test_a_buffer_of_many_small_pieces_takes_no_more_memory_than_its_bytes(buffered):
    carrier = buffered(1 << 20)
    client = carrier().client
    (known,) = carrier.pump.pairs
    await each_iteration(lambda: not known.client.readable)  # the first events are handled
    known.server.writable = False
    tracemalloc.start()
    for number in range(4000):
        client.send(b"x")
        await each_iteration(lambda held=number + 1: known.up.held == held)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 200_000


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_no_descriptor_stays_open(carry):
    before = descriptors()
    for _ in range(3):
        pair = carry()
        await send(pair.client, bytes(1000))
        pair.client.shutdown(socket.SHUT_WR)
        pair.server.shutdown(socket.SHUT_WR)
        assert len(await received(pair.server)) == 1000
        await until(lambda pair=pair: pair.endings)
        pair.close()
    assert descriptors() <= before + 2  # a pipe is kept for the next session
