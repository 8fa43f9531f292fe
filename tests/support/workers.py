"""Workers in separate processes, and a proxy to their database that can cut its connections."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.broker import PROGRAM
from tests.support.programs import LATE, start
from tests.support.waiting import PATIENCE

__all__ = ["Way", "Workers", "way"]

SOCKET = ".s.PGSQL.5432"
SHIFTED = """
import time

def shifted(real=time.time):
    return real() + {ahead}

time.time = shifted
"""


class Workers:
    """Worker processes; `close` ends them."""

    def __init__(self, database: str, folder: Path) -> None:
        self._database = database
        self._folder = folder
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, database: str | None = None, ahead: float = 0.0) -> subprocess.Popen[bytes]:
        """Start a worker.

        :param ahead: seconds by which its clock is ahead of the clock of this process
        """
        words = [PROGRAM, "worker", "--database", database or self._database, "--site", "here"]
        changed = {"env": {**os.environ, "PYTHONPATH": str(self._clock(ahead))}} if ahead else {}
        with (self._folder / f"worker-{len(self.running)}.log").open("wb") as log:
            self.running.append(start(words, stdout=log, stderr=log, cwd=self._folder, **changed))
        return self.running[-1]

    def _clock(self, ahead: float) -> Path:
        """Return a directory for PYTHONPATH that shifts the clock of a process."""
        folder = self._folder / f"clock{ahead:+g}"
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(f"{LATE}{SHIFTED.format(ahead=ahead)}")
        return folder

    def said(self) -> str:
        return "".join(log.read_text() for log in sorted(self._folder.glob("worker-*.log")))

    def close(self) -> None:
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.wait(PATIENCE)


class Way:
    """A proxy to the socket of a PostgreSQL server; it transmits nothing while it is cut or stalled.

    :ivar database: URL of the database through the proxy
    :ivar commits: whether the COMMIT of `lose` is carried out
    :ivar lost: event that is set when `lose` has taken effect
    """

    def __init__(self, database: str, folder: Path) -> None:
        self._server = f"{urlsplit(database).query.removeprefix('host=')}/{SOCKET}"
        self.socket = folder / SOCKET
        self.database = f"{database.partition('?')[0]}?host={folder}"
        self._open: set[asyncio.StreamWriter] = set()
        self._whole = True
        self._flows = asyncio.Event()
        self._flows.set()
        self._after: bytes | None = None
        self.commits = True
        self.lost = asyncio.Event()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until it ends or is cut."""
        back, forth = await asyncio.open_unix_connection(self._server)
        if not self._whole:  # also if it was cut while this connection was being opened
            writer.close()
            forth.close()
            return
        self._open |= {writer, forth}
        carried = _Carried(self)
        with suppress(ConnectionError):
            await asyncio.gather(self._pour(reader, forth, carried.asked), self._pour(back, writer, carried.answered))
        self._open -= {writer, forth}

    async def _pour(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Callable[[bytes], bool]
    ) -> None:
        try:
            while some := await reader.read(65536):
                await self._flows.wait()
                if not passes(some):
                    self.end()
                    self.lost.set()
                    return
                writer.write(some)
                await writer.drain()
        finally:
            writer.close()

    def lose(self, after: bytes, commits: bool = True) -> None:
        """Lose one answer to a COMMIT, on a connection that has sent these bytes before; then end all connections.

        :param commits: whether the COMMIT is carried out; if not, these bytes are lost, and no COMMIT follows
        """
        self._after, self.commits = after, commits

    def loses(self, data: bytes) -> bool:
        """Return whether data contains the bytes of `lose`."""
        return self._after is not None and self._after in data

    def stall(self) -> None:
        """Stop transmitting, but keep all connections open."""
        self._flows.clear()

    def end(self) -> None:
        """End all connections."""
        self._after = None
        for each in self._open:
            each.transport.abort()

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        self._whole = False
        self.end()

    def mend(self) -> None:
        """Transmit again."""
        self._whole = True
        self._flows.set()


class _Carried:
    """The state of one connection that decides whether an answer is lost."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._chosen = self._committing = False

    def asked(self, some: bytes) -> bool:
        """Note data from the client; return whether it is transmitted."""
        self._chosen |= self._way.loses(some)
        self._committing |= self._chosen and b"COMMIT" in some
        return self._way.commits or not self._chosen

    def answered(self, _: bytes) -> bool:
        """Return whether an answer is transmitted."""
        return not self._committing


@asynccontextmanager
async def way(database: str, folder: Path) -> AsyncIterator[Way]:
    """Run a proxy to the server of a database, at a socket in this directory."""
    made = Way(database, folder)
    server = await asyncio.start_unix_server(made.carry, made.socket)
    try:
        yield made
    finally:
        made.cut()
        server.close()
