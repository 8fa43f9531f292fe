"""Web servers whose answers a test decides, over http or real TLS; they record all that they hear."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from tests.support.gsi import Authority

__all__ = ["Heard", "WebServer", "answer", "ranges", "redirect", "web_server"]


class Heard(str):
    """The head of a request, with its `body`."""

    body = b""

    @property
    def path(self) -> str:
        return self.split()[1]

    def header(self, name: str) -> str | None:
        """Return the value of a header; None if it is missing."""
        found = re.search(rf"^{re.escape(name)}: *(.*?)\r$", self, re.MULTILINE | re.IGNORECASE)
        return found and found[1]


class WebServer:
    """A running server: its URL, the requests that it heard, and the names in the client certificates that it saw."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.heard: list[Heard] = []
        self.clients: list[str] = []

    def all(self, name: str) -> list[str | None]:
        """Return this header of all requests."""
        return [request.header(name) for request in self.heard]


def answer(status: str, body: bytes = b"", **headers: str) -> bytes:
    """Return an answer; an underscore in a header's name stands for a hyphen."""
    fields = {"Content_Length": len(body), **headers}.items()
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in fields), "", ""]
    return "\r\n".join(lines).encode() + body


def redirect(place: str, **headers: str) -> bytes:
    return answer("302 Found", Location=place, **headers)


def ranges(content: bytes) -> Callable[[Heard], bytes]:
    """Return a function that answers requests for a file, whole or in ranges."""

    def serve(request: Heard) -> bytes:
        marks = {"ETag": '"1"', "Accept_Ranges": "bytes"}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", request.header("Range") or "")
        if wanted is None:
            return answer("200 OK", content, **marks)
        first, last = int(wanted[1]), min(int(wanted[2]), len(content) - 1)
        place = f"bytes {first}-{last}/{len(content)}"
        return answer("206 Part", content[first : last + 1], Content_Range=place, **marks)

    return serve


@asynccontextmanager
async def web_server(
    reply: Callable[[Heard], bytes], grid: Authority | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[WebServer]:
    """Run a server that answers each request by `reply`.

    :param grid: the authority of its certificate, for https; it then asks for a client certificate of this authority
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        writers.add(writer)
        with suppress(ConnectionError, EOFError, asyncio.CancelledError, ssl.SSLError):
            if shown := writer.get_extra_info("peercert"):
                server.clients.append(str(shown["subject"]))
            while True:
                request = Heard((await reader.readuntil(b"\r\n\r\n")).decode())
                request.body = await reader.readexactly(int(request.header("Content-Length") or 0))
                server.heard.append(request)
                said = reply(request)
                writer.write(said.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if request.startswith("HEAD") else said)
                await writer.drain()
        writer.close()

    context = _context(grid) if grid else None
    tasks, writers = set(), set()
    listener = await asyncio.start_server(serve, host, ssl=context)
    server = WebServer(f"{'https' if grid else 'http'}://{host}:{listener.sockets[0].getsockname()[1]}")
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            with suppress(AttributeError):  # asyncio's TLS connections that have ended cannot be aborted
                writer.transport.abort()
        await asyncio.sleep(0)


def _context(grid: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(grid.localhost.certificate, grid.localhost.key)
    context.load_verify_locations(grid.authority.certificate)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= ssl.VerifyFlags.VERIFY_ALLOW_PROXY_CERTS
    return context
