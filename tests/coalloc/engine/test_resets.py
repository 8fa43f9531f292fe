"""Servers that accept a connection and reset it before the client uses the socket."""

import asyncio
import socket
import struct

import pytest

from coalloc.engine import open_source
from coalloc.engine.base import EngineOptions
from coalloc.errors import ConnectionLost, SourceError, Unreachable
from coalloc.util.dialer import DirectDialer


class Late(DirectDialer):
    """A dialer that returns a socket after its reset."""

    async def dial(self, host: str, port: int, seconds: float, first: bytes = b"") -> socket.socket:
        sock = await super().dial(host, port, seconds, first)
        with pytest.raises(OSError, match="reset"):
            await asyncio.get_running_loop().sock_recv(sock, 1)
        return sock


@pytest.fixture
async def port():
    def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken = writer.get_extra_info("socket")
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    server = await asyncio.start_server(reset, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("scheme", ["ftp", "http"])
async def test_a_connection_that_is_reset_at_once_is_an_error_of_the_source(port, scheme):
    source = open_source(f"{scheme}://127.0.0.1:{port}/x", "auto", EngineOptions(Late()))
    try:
        with pytest.raises(SourceError) as caught:
            await source.open()
        assert isinstance(caught.value, ConnectionLost | Unreachable)
    finally:
        await source.close()
