"""Real HTTP connections to servers that think before each answer: nothing is requested again and again."""

import asyncio
import re
from contextlib import AsyncExitStack

from coalloc import api
from tests.support.fetching import random_file
from tests.support.scripted import raw_server
from tests.support.waiting import PATIENCE

SIZE = 70_000
THINKS = 1.0


async def test_a_small_file_arrives_with_few_requests(tmp_path):
    content, requests = random_file(tmp_path / "original", SIZE), []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := (await reader.readuntil(b"\r\n\r\n")).decode():
            requests.append(head)
            await asyncio.sleep(THINKS)
            part = re.search(r"range: bytes=(\d+)-(\d*)", head, re.IGNORECASE)
            start, end = (int(part[1]), min(int(part[2] or SIZE), SIZE - 1)) if part else (0, SIZE - 1)
            status = f"206 Partial Content\r\nContent-Range: bytes {start}-{end}/{SIZE}" if part else "200 OK"
            writer.write(f'HTTP/1.1 {status}\r\nETag: "1"\r\nContent-Length: {end - start + 1}\r\n\r\n'.encode())
            writer.write(content[start : end + 1] if head.startswith("GET") else b"")

    async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(raw_server(serve)) for _ in range(2)]
        urls = tuple(f"http://127.0.0.1:{port}/file" for port in ports)
        await api.download(api.Request(urls, output=tmp_path / "here"))
    assert (tmp_path / "here").read_bytes() == content
    assert len(requests) < 15
