"""HTTP servers in processes of their own, which answer after a delay, and some of which stall now and then."""

import asyncio
import re
import socket
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any

__all__ = ["StallingWeb"]


class StallingWeb:
    """A server of one file; the end of the `with` block ends it.

    :param content: the file
    :param delay: seconds before each answer, as on a distant server
    :param stalls: seconds for which one of 20 answers to ranges comes later; 0 for never
    """

    def __init__(self, content: bytes, delay: float = 0.0, stalls: float = 0.0) -> None:
        context = get_context("fork")
        self._sock = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._sock.getsockname()[1]}/x"
        self._sent = context.Value("q", 0)
        arguments = (self._sock, content, delay, stalls, self._sent)
        self._process: BaseProcess = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()

    @property
    def sent(self) -> int:
        """Number of bytes of bodies sent so far."""
        return int(self._sent.value)

    def __enter__(self) -> "StallingWeb":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        self._sock.close()


def _serve(sock: socket.socket, content: bytes, delay: float, stalls: float, sent: Any) -> None:
    ranges = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal ranges
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                wanted = re.search(rb"(?i)\r\nrange: bytes=(\d+)-(\d+)", head)
                start, end = (int(wanted[1]), int(wanted[2]) + 1) if wanted else (0, len(content))
                ranges += bool(wanted)
                await asyncio.sleep(delay + (stalls if wanted and ranges % 20 == 13 else 0.0))
                status = f"206 Partial Content\r\nContent-Range: bytes {start}-{end - 1}/{len(content)}"
                lines = f"HTTP/1.1 {status if wanted else '200 OK'}\r\nContent-Length: {end - start}\r\n"
                writer.write(f'{lines}Accept-Ranges: bytes\r\nETag: "1"\r\n\r\n'.encode())
                if not head.startswith(b"HEAD"):
                    writer.write(memoryview(content)[start:end])
                    sent.value += end - start
                await writer.drain()
        writer.close()

    async def serve() -> None:
        async with await asyncio.start_server(answer, sock=sock) as server:
            await server.serve_forever()

    asyncio.run(serve())
