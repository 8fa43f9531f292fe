"""A small HTTP server of one file, with any further headers: for servers that say more than their files are."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.support.scripted import raw_server

__all__ = ["ServedFile", "served", "served_file"]

Headers = Mapping[str, str] | Callable[[str], Mapping[str, str]]
"""Further headers of each response, or a function that returns them for a method."""
PART, LITTLE = 64 * 1024, 1024
NONE: Mapping[str, str] = {}


class ServedFile:
    """A file at a server.

    :param redirect: target of a redirect, with which all requests are answered; empty for none
    :param until: before it is set, only the first `PART` bytes of an answer come at once, and the others slowly
    :ivar url: its URL
    :ivar requests: the heads of the requests so far
    :ivar bytes: the number of bytes of the file that were sent
    """

    def __init__(
        self, content: bytes, headers: Headers = NONE, redirect: str = "", until: asyncio.Event | None = None
    ) -> None:
        self.content = content
        self.headers = headers
        self.redirect = redirect
        self.until = until
        self.url = ""
        self.requests: list[str] = []
        self.bytes = 0

    def answer(self, head: str) -> tuple[str, bytes]:
        """Return the head and the body of the answer to a request."""
        self.requests.append(head)
        method = head.partition(" ")[0]
        more = self.headers(method) if callable(self.headers) else self.headers
        lines = "".join(f"{name}: {value}\r\n" for name, value in more.items())
        if self.redirect:
            return f"HTTP/1.1 307 Elsewhere\r\nLocation: {self.redirect}\r\nContent-Length: 0\r\n{lines}\r\n", b""
        size, part = len(self.content), re.search(r"^range: bytes=(\d+)-(\d*)", head, re.IGNORECASE | re.MULTILINE)
        start, end = (int(part[1]), min(int(part[2] or size), size - 1)) if part else (0, size - 1)
        status = f"206 Part\r\nContent-Range: bytes {start}-{end}/{size}" if part else "200 OK"
        first = f"HTTP/1.1 {status}\r\nAccept-Ranges: bytes\r\nContent-Length: {end - start + 1}\r\n{lines}\r\n"
        if method != "GET":
            return first, b""
        self.bytes += end - start + 1
        return first, self.content[start : end + 1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        while head := (await reader.readuntil(b"\r\n\r\n")).decode():
            first, body = self.answer(head)
            writer.write(first.encode("latin-1"))
            at = PART
            writer.write(body[:at])
            while at < len(body):
                await writer.drain()
                slow = self.until is not None and not self.until.is_set()
                writer.write(body[at : at + (LITTLE if slow else PART)])
                at += LITTLE if slow else PART
                await asyncio.sleep(0.01 if slow else 0.0)
            await writer.drain()


@asynccontextmanager
async def served(file: ServedFile) -> AsyncIterator[ServedFile]:
    """Serve a file on loopback; its headers may be set while it is served."""
    async with raw_server(file.serve) as port:
        file.url = f"http://127.0.0.1:{port}/data/file.bin"
        yield file


@asynccontextmanager
async def served_file(content: bytes, headers: Headers = NONE, **more: Any) -> AsyncIterator[ServedFile]:
    """Serve this content with these headers."""
    async with served(ServedFile(content, headers, **more)) as file:
        yield file
