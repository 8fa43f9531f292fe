"""A web server that sends the first half of a file at once, and the second half when a test lets it."""

import asyncio
import re

__all__ = ["HalvingServer"]


class HalvingServer:
    """A server of one file under any path, for `raw_server`; set `whole` to let it send second halves."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.whole = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests on a connection."""
        size, half = len(self.content), len(self.content) // 2
        while head := await reader.readuntil(b"\r\n\r\n"):
            found = re.search(rb"(?i)\r\nrange: bytes=(\d+)-(\d*)", head)
            start = int(found[1]) if found else 0
            end = int(found[2]) + 1 if found and found[2] else size
            status = f"206 Partial\r\nContent-Range: bytes {start}-{end - 1}/{size}" if found else "200 OK"
            writer.write(f'HTTP/1.1 {status}\r\nContent-Length: {end - start}\r\nETag: "1"\r\n\r\n'.encode())
            if head.startswith(b"HEAD"):
                continue
            writer.write(self.content[start : min(end, half)])
            if end > half:
                await self.whole.wait()
                writer.write(self.content[max(start, half) : end])
