"""The fixed cost of `coget URL`: processor and elapsed time of whole processes that fetch one byte, and of plugins.

    .venv/bin/python -m tests.benchmarks.start_up [--rounds 25]

Servers on loopback: globus-gridftp-server and nginx. The yardstick is `python -c "import asyncio"` of the same
environment, in the same rounds, as other programs may run on the machine: only the ratios can be compared. Each run of
coget is of a user without history; one more stores its results in a history, as users' runs do. HTCondor calls its
plugin with `-classad` before each job; fsspec imports its plugin at the first use of a name, after fsspec itself.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from tests.support.gridftp import GridFTPServer
from tests.support.nginx import Nginx
from tests.support.programs import COGET, with_this_checkout

CLASSAD = Path(sys.executable).with_name("condor_coget_plugin")
MADE, LOADED = "import fsspec.asyn", "import fsspec.asyn, coalloc.plugins.fsspec_system"
WANTED_SECONDS = {"condor_coget_plugin -classad": 0.1, "fsspec plugin": 0.05}
"""Elapsed time that the plugins may take."""
WANTED = {"ftp": 1.4, "http": 1.7}
"""Ratio to the yardstick that a download by each protocol is to have."""


class Cost(NamedTuple):
    """Processor time and elapsed time of a process, in seconds."""

    cpu: float
    elapsed: float


def cost(command: list[str], folder: Path, more: Mapping[str, str]) -> Cost:
    """Run a command in a directory, and return its cost.

    :raises SystemExit: when the command fails
    """
    env = with_this_checkout({**os.environ, "HOME": str(folder), **more})
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    with process.stderr:
        stderr = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {stderr.decode()}")
    return Cost(usage.ru_utime + usage.ru_stime, elapsed)


def download(url: str, folder: Path, history: str = "off") -> Callable[[], Cost]:
    """Return a function that fetches the file at `url`, and returns the cost."""

    def run() -> Cost:
        (folder / "byte").unlink(missing_ok=True)
        return cost([str(COGET), url], folder, {"COGET_HISTORY": history})

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="coget-bench-") as name:
        folder = Path(name)
        (folder / "export").mkdir()
        (folder / "export" / "byte").write_bytes(b"x")
        with GridFTPServer(folder / "export") as ftp, Nginx(folder / "export", folder / "nginx") as http:
            rivals = {
                "import asyncio": lambda: cost([sys.executable, "-c", "import asyncio"], folder, {}),
                "coget --help": lambda: cost([str(COGET), "--help"], folder, {}),
                "condor_coget_plugin -classad": lambda: cost([str(CLASSAD), "-classad"], folder, {}),
                "import fsspec": lambda: cost([sys.executable, "-c", MADE], folder, {}),
                "import fsspec, plugin": lambda: cost([sys.executable, "-c", LOADED], folder, {}),
                "ftp": download(ftp.url("byte"), folder),
                "ftp, history": download(ftp.url("byte"), folder, "ftp.sqlite"),
                "http": download(http.url("byte"), folder),
                "http, history": download(http.url("byte"), folder, "http.sqlite"),
            }
            for run in rivals.values():
                run()
            costs: dict[str, list[Cost]] = {name: [] for name in rivals}
            for _ in range(rounds):
                for name, run in rivals.items():
                    costs[name].append(run())
    show(costs)


def show(costs: Mapping[str, list[Cost]]) -> None:
    """Print the medians, and their ratios to the yardstick."""
    least = Cost(*map(median, zip(*costs["import asyncio"], strict=True)))
    print(f"\none byte, medians of {len(costs['import asyncio'])} rounds")
    print(f"{'':28}  {'CPU ms':>7}  {'ratio':>5}  {'elapsed ms':>10}  {'ratio':>5}  wanted")
    for name, found in costs.items():
        here = Cost(*map(median, zip(*found, strict=True)))
        wanted = f"<= {WANTED[name]}" if name in WANTED else ""
        print(
            f"{name:28}  {here.cpu * 1e3:7.0f}  {here.cpu / least.cpu:5.2f}"
            f"  {here.elapsed * 1e3:10.0f}  {here.elapsed / least.elapsed:5.2f}  {wanted}"
        )
    show_plugins(costs)


def show_plugins(costs: Mapping[str, list[Cost]]) -> None:
    """Print the elapsed times of the plugins, with their quartiles."""
    with_it, alone = costs["import fsspec, plugin"], costs["import fsspec"]
    taken = {
        "condor_coget_plugin -classad": [each.elapsed for each in costs["condor_coget_plugin -classad"]],
        "fsspec plugin": [more.elapsed - less.elapsed for more, less in zip(with_it, alone, strict=True)],
    }
    for name, found in taken.items():
        low, middle, high = (each * 1e3 for each in quantiles(found, n=4))
        wanted = WANTED_SECONDS[name] * 1e3
        print(f"{name}: {middle:.0f} ms (quartiles {low:.0f} to {high:.0f}), wanted < {wanted:.0f} ms")


if __name__ == "__main__":
    main()
