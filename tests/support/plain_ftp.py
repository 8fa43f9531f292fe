"""A small FTP server that behaves like old servers, which Debian does not package.

It does not support ERET or MLST. The parameters of `PlainFTP` select its other behaviour. It runs in the event loop of
the test.
"""

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

__all__ = ["PlainFTP", "serve"]


@dataclass
class PlainFTP:
    """The content and behaviour of a server.

    :param content: content of each file
    :param password: accepted password; None for any
    :param restarts: whether it supports REST
    :param loses_pipelined: whether it loses commands that arrive together with PASS, like servers that then start
        another program
    :param passive: whether it supports PASV
    :param passive_host: host in PASV replies
    :param extended: whether it supports EPSV
    :param checksums: algorithms of CKSM; None for a server without this command
    :param lost: function that is called when commands were lost
    :param commands: receives the verbs of all commands
    """

    content: bytes
    password: str | None = None
    features: tuple[str, ...] = ("SIZE", "REST STREAM")
    restarts: bool = True
    loses_pipelined: bool = False
    passive: bool = True
    passive_host: str = "127.0.0.1"
    extended: bool = True
    checksums: tuple[str, ...] | None = None
    port: int = 0
    lost: Callable[[], object] = lambda: None
    commands: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"ftp://127.0.0.1:{self.port}/file"


class _Session:
    def __init__(self, server: PlainFTP, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.reader = reader
        self.writer = writer
        self.start = 0
        self.open = contextlib.ExitStack()

    async def run(self) -> None:
        self.say("220 old server")
        while line := await self.reader.readline():
            verb, _, argument = line.decode().strip().partition(" ")
            self.server.commands.append(verb)
            answer = getattr(self, verb.lower(), None)
            self.say(await answer(argument) if answer else "500 what?")

    def say(self, line: str) -> None:
        self.writer.write(f"{line}\r\n".encode())

    async def user(self, name: str) -> str:
        return "331 password?"

    async def pass_(self, password: str) -> str:
        if self.server.loses_pipelined:
            await asyncio.sleep(0.05)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.reader.read(65536), 0.01)
                self.server.lost()
        return "230 in" if self.server.password in (None, password) else "530 no"

    async def type(self, kind: str) -> str:
        return "200 ok"

    async def feat(self, _: str) -> str:
        return "\r\n".join(["211-Features", *(f" {name}" for name in self.server.features), "211 End"])

    async def size(self, path: str) -> str:
        return f"213 {len(self.server.content)}"

    async def cksm(self, argument: str) -> str:
        if self.server.checksums is None:
            return "502 not here"
        algorithm, start, size, _ = argument.split(" ", 3)
        if algorithm not in self.server.checksums:
            return "504 not that one"
        return f"213 {hashlib.new(algorithm, self.server.content[int(start) :][: int(size)]).hexdigest()}"

    async def rest(self, offset: str) -> str:
        if not self.server.restarts:
            return "502 not here"
        self.start = int(offset)
        return "350 from there"

    async def pasv(self, _: str) -> str:
        if not self.server.passive:
            return "502 not here"
        port = self.listen()
        return f"227 Entering ({self.server.passive_host.replace('.', ',')},{port >> 8},{port & 255})"

    async def epsv(self, _: str) -> str:
        if not self.server.extended:
            return "502 not here"
        return f"229 Entering (|||{self.listen()}|)"

    def listen(self) -> int:
        self.listener = self.open.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.listener.setblocking(False)
        return self.listener.getsockname()[1]

    async def retr(self, path: str) -> str:
        self.say("150 here it comes")
        loop = asyncio.get_running_loop()
        data, _ = await loop.sock_accept(self.listener)
        with data, contextlib.suppress(ConnectionError):
            data.setblocking(False)
            await loop.sock_sendall(data, self.server.content[self.start :])
        return "226 done"


setattr(_Session, "pass", _Session.pass_)


@contextlib.asynccontextmanager
async def serve(server: PlainFTP) -> AsyncIterator[PlainFTP]:
    """Run a server within the `async with` block."""
    sessions = set()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sessions.add(asyncio.current_task())
        session = _Session(server, reader, writer)
        try:
            await session.run()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            session.open.close()
            writer.close()

    listener = await asyncio.start_server(accepted, "127.0.0.1")
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in sessions:
            task.cancel()
        await asyncio.gather(*sessions, return_exceptions=True)
