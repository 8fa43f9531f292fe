"""The network of one experiment on the testbed, with its GridFTP servers, and runs of coget in it.

The network stays up during all runs of the experiment, so that servers keep their addresses, under which coget's
history stores them. The weather begins anew with each run.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks.paper.experiments import Experiment, Scheme
from tests.benchmarks.paper.measures import Record
from tests.benchmarks.race import Command, Run, compete
from tests.support.gridftp import GridFTPServer
from tests.testbed import servers
from tests.testbed.topology import Topology
from tests.testbed.wan import Invalid, Wan

__all__ = ["Failure", "Network"]

COGET = str(Path(sys.executable).with_name("coget"))
LIMIT = 60.0
"""Time limit of a run in seconds; no run needs a third of it."""
STREAMS = "1"
"""Streams of each server, for all schemes. The paper had 8; on the paths of the testbed one is as fast."""
TRIES = 6
PAUSE = 1.0
"""Pause in seconds after a run that was invalid because the machine was busy."""


class Failure(Exception):
    """A failure of coget on a working network."""


class Network:
    """A network with servers, up within its `with` block.

    :param files: directory in memory that the servers serve, with a file `SIZE.bin` for each size
    """

    def __init__(self, experiment: Experiment, files: Path) -> None:
        self._experiment = experiment
        self._files = files
        self._stack = ExitStack()

    def __enter__(self) -> "Network":
        with self._stack as stack:
            self._wan = stack.enter_context(Wan(Topology.load({"links": self._experiment.links})))
            self._history = self._files / f"{self._experiment.name}.sqlite"
            self._servers = {host: stack.enter_context(self._server(host)) for host in self._experiment.servers}
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def run(self, scheme: Scheme, size: int, seed: int) -> Record | None:
        """Fetch the file of a size (of the paper, in MB) in the weather of a seed.

        Runs from a single server add to a history, which only the scheme `history` uses.

        :returns: None if the testbed could not keep up in any of `TRIES` attempts
        :raises Failure: coget failed
        """
        name = f"{self._experiment.name} {scheme.name} {size} MB {seed}"
        for _ in range(TRIES):
            with tempfile.TemporaryDirectory(dir=self._files) as home:
                run = self._once(scheme, self._files / f"{size}.bin", seed, Path(home))
                if run.outcome == "ok":
                    return self._record(scheme, size, seed, json.loads(Path(home, "stdout").read_text()))
            if run.outcome != "invalid":
                raise Failure(f"{name}: {run.outcome}: {run.said}")
            time.sleep(PAUSE)
        print(f"{name} is left out: {run.said}", file=sys.stderr, flush=True)
        return None

    def _once(self, scheme: Scheme, file: Path, seed: int, home: Path) -> Run:
        hosts = [scheme.server] if scheme.server else self._experiment.servers
        target = home / file.name
        words = [COGET, "get", "--json", "--quiet", *scheme.options, "--streams", STREAMS, "-o", str(target)]
        urls = [self._servers[host].url(file.name) for host in hosts]
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "COGET_HISTORY": str(self._memory(scheme, home))}
        command = Command(self._wan.command("client", [*words, *urls]), environment, target, file)
        self._wan.reset_stats()
        run = compete(command, self, self._events(seed), LIMIT)
        try:
            self._wan.check()
        except Invalid as error:
            return replace(run, outcome="invalid", said=str(error))
        return run

    def _memory(self, scheme: Scheme, home: Path) -> Path:
        """Return the file for coget's history in a run."""
        if scheme.strategy == "single":
            return self._history
        memory = home / "history.sqlite"
        if scheme.strategy == "history":
            shutil.copy(self._history, memory)
        return memory

    def _record(self, scheme: Scheme, size: int, seed: int, document: dict[str, Any]) -> Record:
        """Convert coget's JSON report of a run to a record."""
        names = {server.url(f"{size}.bin"): host for host, server in self._servers.items()}
        delivered = {
            names[source["url"]]: max((copy["last_byte"] for copy in source["copies"] if copy["bytes"]), default=None)
            for source in document["sources"]
        }
        rate, seconds = document["rate"] / 1e6, document["seconds"]
        return Record(self._experiment.name, scheme.name, size, seed, rate, seconds, delivered)

    def _events(self, seed: int) -> list[tuple[float, Callable[[], None]]]:
        """Return the weather as events for `compete`."""
        return [
            (second, partial(self._wan.set, link, "ba", rate=f"{mbit:.3f}mbit"))
            for second, link, mbit in self._experiment.weather(seed)
        ]

    def _server(self, host: str) -> GridFTPServer:
        # Otherwise new connections begin with the metrics that the kernel saved from earlier runs.
        forget = ["sysctl", "--quiet", "--write", "net.ipv4.tcp_no_metrics_save=1"]
        subprocess.run(self._wan.command(host, forget), check=True)
        return servers.gridftp(self._wan, host, self._files)

    # `compete` requires these methods of a wire; their results are not used here.

    def sent(self) -> Mapping[str, int]:
        return {}

    def moved(self) -> int:
        return 0
