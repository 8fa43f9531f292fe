"""Workers as processes of their own, and a way to their database that can be cut."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.broker import PROGRAM
from tests.support.programs import start
from tests.support.waiting import PATIENCE

__all__ = ["Way", "Workers", "way"]

SOCKET = ".s.PGSQL.5432"


class Workers:
    """Processes that work; ended with `close`."""

    def __init__(self, database: str, folder: Path) -> None:
        self._database = database
        self._folder = folder
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, database: str | None = None) -> subprocess.Popen[bytes]:
        words = [PROGRAM, "worker", "--database", database or self._database, "--site", "here"]
        with (self._folder / f"worker-{len(self.running)}.log").open("wb") as log:
            self.running.append(start(words, stdout=log, stderr=log, cwd=self._folder))
        return self.running[-1]

    def said(self) -> str:
        return "".join(log.read_text() for log in sorted(self._folder.glob("worker-*.log")))

    def close(self) -> None:
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.wait(PATIENCE)


class Way:
    """A second address of a PostgreSQL server on a socket, over which nothing goes while it is cut."""

    def __init__(self, database: str, folder: Path) -> None:
        self._server = f"{urlsplit(database).query.removeprefix('host=')}/{SOCKET}"
        self.socket = folder / SOCKET
        self.database = f"{database.partition('?')[0]}?host={folder}"
        self._open: set[asyncio.StreamWriter] = set()
        self._whole = True

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until it is cut."""
        if not self._whole:
            writer.close()
            return
        back, forth = await asyncio.open_unix_connection(self._server)
        self._open |= {writer, forth}
        with suppress(ConnectionError):
            await asyncio.gather(_pour(reader, forth), _pour(back, writer))
        self._open -= {writer, forth}

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        self._whole = False
        for each in self._open:
            each.transport.abort()

    def mend(self) -> None:
        """Let connections through again."""
        self._whole = True


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while some := await reader.read(65536):
            writer.write(some)
            await writer.drain()
    finally:
        writer.close()


@asynccontextmanager
async def way(database: str, folder: Path) -> AsyncIterator[Way]:
    """A way to the server of a database, at a socket in this folder."""
    made = Way(database, folder)
    server = await asyncio.start_unix_server(made.carry, made.socket)
    try:
        yield made
    finally:
        made.cut()
        server.close()
