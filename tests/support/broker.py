"""A broker as users start it: `coget-broker serve` in a separate process, on a free port."""

import functools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import httpx

from tests.support.programs import BROKER, run, start
from tests.support.waiting import PATIENCE

__all__ = ["PROGRAM", "SECONDS", "BrokerProcess", "broker_in", "kept_by", "reports"]

SECONDS = PATIENCE
PROGRAM = BROKER
NOW = time.time()


def reports(begin: int, count: int) -> list[dict]:
    """Return `count` transfers to report, numbered from `begin`."""
    return [
        {
            "id": f"r{i}",
            "source": f"ftp://s{i % 5}.example",
            "sink": "HERE",
            "started": NOW - 5_000_000 + i,
            "ended": NOW - 4_999_990 + i,
            "bytes": 10**8 + i,
        }
        for i in range(begin, begin + count)
    ]


def kept_by(client: httpx.Client) -> list[int]:
    """Return the numbers of the transfers of `reports` that a broker has stored."""
    found: list[int] = []
    before = None
    while True:
        params = {"limit": 1000, **({"before": before} if before else {})}
        page = client.get("/broker/v1/transfers", params=params).json()
        found += [each["bytes"] - 10**8 for each in page["transfers"]]
        before = page["next"]
        if before is None:
            return found


def broker_in(folder: Path, name: str = "b.sqlite", words: Sequence[str] = ()) -> "BrokerProcess":
    """Start a broker on a copy of a SQLite file with tables and an admin token, which halves the start time."""
    template, token = _template()
    return BrokerProcess(f"sqlite:///{shutil.copy(template.name, folder / name)}", folder, token, *words)


@functools.cache
def _template() -> tuple[IO[bytes], str]:
    """Create the database file that `broker_in` copies; return it, and its admin token."""
    file = tempfile.NamedTemporaryFile(suffix=".sqlite")  # noqa: SIM115
    words = ["--database", f"sqlite:///{file.name}"]
    run([PROGRAM, "upgrade", *words], check=True)
    return file, run(
        [PROGRAM, "token", "create", "admin", "--role", "admin", *words], check=True, text=True
    ).stdout.strip()


class BrokerProcess:
    """A running broker; the end of the `with` block ends it with SIGTERM.

    :param database: URL of the database
    :param folder: working directory of the broker, and directory for its log
    :param token: an admin token of the database; empty if the database is new
    :param words: further command-line arguments
    :param prefix: a command that runs the broker's command
    """

    def __init__(self, database: str, folder: Path, token: str = "", *words: str, prefix: Sequence[str] = ()) -> None:
        self.folder = folder
        self._log = folder / f"broker-{time.monotonic_ns()}.log"
        command = [*prefix, PROGRAM, "serve", "--port", "0", "--database", database, *words]
        with self._log.open("wb") as log:
            environment = {"XDG_STATE_HOME": str(folder / "state"), **os.environ}
            self.process = start(command, stdout=log, stderr=log, cwd=folder, env=environment)
        self.url = self._listening()
        self.token = token or self._first_token()
        self.secrets = [self.token]
        self._clients = ExitStack()

    def _listening(self) -> str:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            for event in self.events():
                if "running on" in str(event.get("event")):
                    return str(event["event"]).split()[3]
            time.sleep(0.05)
        self.process.kill()
        raise AssertionError(f"the broker did not start: {self._log.read_text()}")

    def log(self) -> str:
        """Return the broker's output so far."""
        return self._log.read_text()

    def events(self) -> list[dict]:
        """Return the log's entries, which are the JSON lines of the output."""
        lines = self._log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def _first_token(self) -> str:
        """Return the first admin token, from the file that the log names."""
        (message,) = [line for line in self._log.read_text().splitlines() if "first admin token" in line]
        return Path(message.partition(" is in the file ")[2]).read_text().strip()

    def client(self) -> httpx.Client:
        """Return an HTTP client with the admin token; it is closed with the broker."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return self._clients.enter_context(httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clients.close()
        self.process.terminate()
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
