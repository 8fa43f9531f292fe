"""Depots of the tests: real processes at ports of the loopback interface."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from coalloc.depot.protocol.addresses import HostPort
from tests.support.programs import with_this_checkout
from tests.support.waiting import PATIENCE, wait_until

__all__ = ["DEPOT", "LOOPBACK", "RunningDepot", "depots"]

DEPOT = Path(sys.executable).with_name("coget-depot")
LOOPBACK = ("--destinations", "127.0.0.0/8")
OFTEN = """
from functools import partial
from coalloc.depot.daemon import cli
cli.DepotSettings = partial(cli.DepotSettings, refresh_seconds=0.1)
cli.main()
"""
"""A depot that reports to its broker often."""


class RunningDepot:
    """A depot that runs.

    :ivar place: its address
    """

    def __init__(self, folder: Path, options: tuple[str, ...], limit: int | None) -> None:
        folder.mkdir()
        self.audit = folder / "audit"
        prefix = ["prlimit", f"--nofile={limit}"] if limit else []
        program = [sys.executable, "-c", OFTEN] if "--broker" in options else [str(DEPOT)]
        command = [*prefix, *program, "serve", "--listen", "127.0.0.1:0", "--audit", str(self.audit), *options]
        environment = with_this_checkout({"PATH": "/usr/bin:/bin"})
        self.errors = folder / "errors"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the depot did not start: {self.errors.read_text()}")
        self.place = HostPort.parse(line.split()[-1])

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The lines of the audit log."""
        return [json.loads(line) for line in self.audit.read_text().splitlines()]

    def wait_for_line(self, **fields: object) -> dict[str, Any]:
        """Return the first line of the audit log with these fields."""
        return wait_until(lambda: next((each for each in self.lines if fields.items() <= each.items()), None))

    def metric(self, name: str) -> float:
        """Return the value of a metric; 0 if there is none, and -1 if the depot takes no session now."""
        with suppress(ConnectionError), socket.create_connection(self.place, PATIENCE) as sock:
            sock.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            text = b"".join(iter(lambda: sock.recv(1 << 16), b"")).decode()
            found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
            return float(found[1]) if found else 0.0
        return -1.0

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send the signal, and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextmanager
def depots(folder: Path, *options: tuple[str, ...], limit: int | None = None) -> Iterator[list[RunningDepot]]:
    """Run depots with these options; end them at the end.

    :param limit: maximum number of open files of each
    """
    running: list[RunningDepot] = []
    try:
        for number, given in enumerate(options):
            running.append(RunningDepot(folder / f"depot-{number}", given, limit))
        yield running
    finally:
        for each in running:
            each.process.kill()
            each.process.wait()
            each.process.stdout.close()
