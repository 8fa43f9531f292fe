"""The loopback benchmark: coget compared with globus-url-copy on this machine, with files in memory.

    python -m tests.benchmarks.loopback [--gib 1] [--rounds 9]

Scenario names are permanent: `four` (adaptive over four servers), `four-plain` (the same, checksums off), `one`
(one source, one range, checksums off), `memory` (16 sources), `gsi` (connect and authenticate). Each round runs the
rivals in a new random order. A ratio compares runs of one round. `start_up` measures small downloads.

Servers and client share one machine, so a checksum that a server computes takes processor time from the client.
Therefore `four-plain` and `one` are compared with globus-url-copy, and `four` with globus-url-copy -verify-checksum.
Large files measure the machine's memory rather than the programs: use at most 1 GiB on a virtual machine that first has
to get memory from its host.
"""

import argparse
import asyncio
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from coalloc.engine import open_source
from coalloc.engine.base import EngineOptions
from coalloc.util.dialer import DirectDialer
from tests.support.gridftp import GridFTPServer
from tests.support.gsi import Authority

COGET = [str(Path(sys.executable).with_name("coget")), "get", "--quiet"]
MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Run:
    """One finished command: elapsed seconds, processor seconds, peak memory in bytes."""

    seconds: float
    cpu: float
    memory: int


def measure(command: list[str], env: dict[str, str] | None = None) -> Run:
    """Run a command to its end, and return the resources that it used.

    Python may store compiled modules, as it does for users.

    :raises SystemExit: the command failed
    """
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    process = subprocess.Popen(command, env={**clean, "COGET_HISTORY": "off", **(env or {})}, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def spread(values: list[float], form: str = "{:.2f}") -> str:
    """Format values as median [minimum-maximum]."""
    return f"{form} [{form}-{form}]".format(median(values), min(values), max(values))


def rounds(rivals: dict[str, Callable[[], Run]], count: int) -> dict[str, list[Run]]:
    """Run all rivals once per round, in a new order; return the runs of each. A first round only warms up."""
    shuffle = random.Random(1).shuffle
    runs: dict[str, list[Run]] = {name: [] for name in rivals}
    for number in range(count + 1):
        names = list(rivals)
        shuffle(names)
        for name in names:
            run = rivals[name]()
            if number:
                runs[name].append(run)
    return runs


def fresh(target: Path, *command: str) -> Callable[[], Run]:
    """Return a function that deletes `target`, then runs and measures a command that creates it."""

    def run() -> Run:
        target.unlink(missing_ok=True)
        return measure(list(command))

    return run


def throughput(stack: ExitStack, folder: Path, size: int, count: int) -> None:
    """Run `four`, `four-plain` and `one`, and globus-url-copy with one server."""
    source, target = folder / "source.bin", folder / "target.bin"
    with source.open("wb") as file:
        for _ in range(size >> 20):
            file.write(random.randbytes(1 << 20))
    servers = [stack.enter_context(GridFTPServer(folder, f"127.0.0.{2 + i}")) for i in range(4)]
    urls = [server.url("source.bin") for server in servers]
    plain = ["--checksum", "none", "-o", str(target)]
    rivals = {
        "globus-url-copy": fresh(target, "globus-url-copy", urls[0], f"file://{target}"),
        "the same, verified": fresh(target, "globus-url-copy", "-verify-checksum", urls[0], f"file://{target}"),
        "four": fresh(target, *COGET, *urls, "-o", str(target)),
        "four-plain": fresh(target, *COGET, *urls, *plain),
        "one": fresh(target, *COGET, urls[0], "--strategy", "single", *plain),
    }
    runs = rounds(rivals, count)
    peer = runs["globus-url-copy"]
    print(f"\n{size >> 20} MiB, memory to memory, {count} rounds: median [least-most]")
    print(f"{'':18}  {'MB/s':>22}  {'CPU s/GB':>18}  {'speed ratio':>18}  {'CPU ratio':>18}")
    for name, mine in runs.items():
        print(
            f"{name:18}  {spread([size / 1e6 / r.seconds for r in mine], '{:.0f}'):>22}"
            f"  {spread([r.cpu / size * 1e9 for r in mine]):>18}"
            f"  {spread([p.seconds / r.seconds for p, r in zip(peer, mine, strict=True)]):>18}"
            f"  {spread([r.cpu / p.cpu for p, r in zip(peer, mine, strict=True)]):>18}"
        )
    verified = [p.seconds / m.seconds for p, m in zip(runs["the same, verified"], runs["four"], strict=True)]
    print(f"four compared with globus-url-copy -verify-checksum: speed ratio {spread(verified)}")
    print("wanted: speed ratio of four-plain >= 1.0, of four to -verify-checksum >= 1.0, of one >= 1.05")
    print("        CPU ratio of four-plain <= 1.2, of four <= 1.8")
    target.unlink(missing_ok=True)


def memory(stack: ExitStack, folder: Path) -> None:
    """Measure coget's peak memory with 16 sources."""
    servers = [stack.enter_context(GridFTPServer(folder, f"127.0.0.{20 + i}")) for i in range(16)]
    target = folder / "target.bin"
    run = measure([*COGET, *(server.url("source.bin") for server in servers), "-o", str(target)])
    target.unlink()
    print(f"\nmemory with 16 sources: {run.memory / 1e6:.0f} MB (wanted: < 150)")


def gsi(stack: ExitStack, folder: Path, count: int) -> None:
    """Measure the seconds in which coget logs in with a proxy, and in which globus-url-copy fetches one byte."""
    grid = Authority(folder / "grid")
    alice = grid.user("Alice")
    grid.map(alice)
    env = grid.client_env(alice.proxy())
    os.environ.update(env)  # coget's engine runs in this process
    (folder / "export").mkdir()
    (folder / "export" / "byte").write_bytes(b"x")
    server = GridFTPServer(folder / "export", env=grid.server_env(grid.localhost), anonymous=False)
    url = stack.enter_context(server).url("byte", "gsiftp").replace("127.0.0.1", "localhost")
    rivals = {
        "globus-url-copy": lambda: measure(["globus-url-copy", url, f"file://{folder / 'byte.guc'}"], env),
        "coget": lambda: asyncio.run(authenticate(url)),
    }
    runs = rounds(rivals, max(count, 9))
    print("\ngsiftp, seconds: coget connects and authenticates; globus-url-copy fetches one byte")
    for name, mine in runs.items():
        print(f"{name:16}  {spread([r.seconds for r in mine], '{:.3f}')}")
    ratios = [m.seconds / p.seconds for p, m in zip(runs["globus-url-copy"], runs["coget"], strict=True)]
    print(f"ratio             {spread(ratios)} (wanted: <= 0.3)")


async def authenticate(url: str) -> Run:
    """Log in with coget's GridFTP engine in this process, and measure it."""
    source = open_source(url, "gridftp", EngineOptions(DirectDialer()))
    began, cpu = time.perf_counter(), time.process_time()
    try:
        await source.open()
        return Run(time.perf_counter() - began, time.process_time() - cpu, 0)
    finally:
        await source.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    size = int(options.gib * 1024) << 20
    free = shutil.disk_usage(MEMORY).free
    if free < 3 * size:
        raise SystemExit(f"{MEMORY} has {free >> 20} MiB free, {3 * size >> 20} are needed: use a smaller --gib")
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="coget-bench-") as name, ExitStack() as stack:
        throughput(stack, Path(name), size, options.rounds)
        memory(stack, Path(name))
        gsi(stack, Path(name), options.rounds)


if __name__ == "__main__":
    main()
