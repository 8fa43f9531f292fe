"""Copies between two servers, by coget compared with globus-url-copy, on this machine, with files in memory.

    python -m tests.benchmarks.thirdparty [--files 10000] [--gib 2] [--rounds 5] [--wan-mib 16] [--loss 0.1]

Scenario names are permanent: `small` (a directory of files of 10 kB: listed, then copied over 4 pairs of sessions),
`big` (one file), `depot` (one file between two distant servers, directly, and over a depot in the middle; `--loss` is
the loss of each leg in per cent, and the direct route has that of both; needs root). globus-url-copy runs as a command;
coget's client runs in this process, as in a broker, except for `depot`. Each round runs the rivals in a new random
order. A ratio compares runs of one round. Servers and client share one machine, and large files measure its memory
rather than the programs.
"""

import argparse
import asyncio
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from coalloc import api
from tests.benchmarks.loopback import MEMORY, Run, measure, rounds, spread
from tests.support.depot import DEPOT
from tests.support.gridftp import GridFTPServer
from tests.testbed import servers
from tests.testbed.driver import refusal
from tests.testbed.topology import Topology
from tests.testbed.wan import Wan

PAIRS = 4
SMALL = 10_000
COGET = str(Path(sys.executable).with_name("coget"))
OPEN = ("--listen", "0.0.0.0:4000", "--clients", "10.0.0.0/8", "--destinations", "10.0.0.0/8")
LIMIT = 600.0
"""Time limit of a copy on the WAN, in seconds."""


def timed(work: Callable[[], Coroutine[None, None, None]]) -> Run:
    """Run a coroutine in this process, and measure it."""
    began, cpu = time.perf_counter(), time.process_time()
    asyncio.run(work())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Run(time.perf_counter() - began, time.process_time() - cpu, memory)


async def copy_directory(source: GridFTPServer, sink: GridFTPServer, target: Path) -> None:
    """List a directory at the source, and copy its files over `PAIRS` pairs of sessions."""
    pairs = await asyncio.gather(*(api.third_party(source.url(""), sink.url("")) for _ in range(PAIRS)))
    copies = []
    async with await api.storage(source.url("")) as store:
        async for entries in store.list(str(source.root / "small")):
            for entry in entries:
                pair = pairs[len(copies) % PAIRS]
                copy = pair.copy(f"{source.root}/small/{entry.name}", f"{target}/{entry.name}", entry.size or 0)
                copies.append(asyncio.create_task(copy))
    await asyncio.gather(*copies)
    for pair in pairs:
        pair.close()


async def copy_file(source: GridFTPServer, sink: GridFTPServer, size: int) -> None:
    async with await api.third_party(source.url(""), sink.url("")) as pair:
        await pair.copy(f"{source.root}/big", f"{sink.root}/big", size)


def emptied(target: Path, work: Callable[[], Run]) -> Callable[[], Run]:
    """Return a function that deletes the file or empties the directory `target`, then does the work."""

    def run() -> Run:
        if target.name == "big":
            target.unlink(missing_ok=True)
        else:
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
        return work()

    return run


def small(source: GridFTPServer, sink: GridFTPServer, files: int, count: int) -> None:
    """Run `small`."""
    (source.root / "small").mkdir()
    for number in range(files):
        (source.root / "small" / f"file-{number}").write_bytes(random.randbytes(SMALL))
    target = sink.root / "small"
    guc = ["globus-url-copy", "-pp", "-cc", str(PAIRS), "-r"]
    urls = [source.url("small") + "/", sink.url("small") + "/"]
    rivals = {
        "globus-url-copy -pp -cc 4": emptied(target, lambda: measure([*guc, *urls])),
        "the same, -fast": emptied(target, lambda: measure([*guc, "-fast", *urls])),
        "coget": emptied(target, lambda: timed(lambda: copy_directory(source, sink, target))),
    }
    show(f"small: {files} files of {SMALL} bytes, files/s", rivals, files, count)
    copied = sum(path.stat().st_size == SMALL for path in target.iterdir())
    print(f"wanted: >= 500 files/s, ratio >= 1.0; {copied} of {files} are whole after the last round")


def big(source: GridFTPServer, sink: GridFTPServer, size: int, count: int) -> None:
    """Run `big`."""
    with (source.root / "big").open("wb") as file:
        for _ in range(size >> 20):
            file.write(random.randbytes(1 << 20))
    target = sink.root / "big"
    urls = [source.url("big"), sink.url("big")]
    rivals = {
        "globus-url-copy": emptied(target, lambda: measure(["globus-url-copy", *urls])),
        "the same, -fast": emptied(target, lambda: measure(["globus-url-copy", "-fast", *urls])),
        "coget": emptied(target, lambda: timed(lambda: copy_file(source, sink, size))),
    }
    show(f"big: one file of {size >> 20} MiB, MB/s", rivals, size / 1e6, count)
    print("wanted: ratio >= 0.95")


def over_depot(folder: Path, size: int, loss: float, count: int) -> None:
    """Run `depot`."""
    if why := refusal():
        print(f"\ndepot: left out: {why}")
        return
    links = {
        "client-source": {"rate": "1gbit", "delay": "1ms"},
        "source-sink": {"rate": "155mbit", "delay": "61ms", "loss": f"{1 - (1 - loss / 100) ** 2:.8%}"},
        "source-depot": {"rate": "155mbit", "delay": "40ms", "loss": f"{loss / 100:.8%}"},
        "depot-sink": {"rate": "155mbit", "delay": "43.5ms", "loss": f"{loss / 100:.8%}"},
    }
    with Wan(Topology.load({"links": links, "congestion": "cubic"})) as wan, ExitStack() as stack:
        source, sink = (stack.enter_context(servers.gridftp(wan, name, folder / name)) for name in ("source", "sink"))
        (source.root / "file").write_bytes(random.randbytes(size))
        words = [str(DEPOT), "serve", *OPEN, "--audit", str(folder / "audit")]
        depot = stack.enter_context(subprocess.Popen(wan.command("depot", words), stdout=subprocess.PIPE, text=True))
        stack.callback(depot.kill)
        if not (depot.stdout and depot.stdout.readline()):
            raise RuntimeError("the depot did not start")
        place = f"{wan.address('depot')}:4000"
        ends = source, sink
        rivals = {
            "directly": lambda: copy_on(wan, ends, "none"),
            "over the depot": lambda: copy_on(wan, ends, place),
        }
        title = f"depot: one file of {size >> 20} MiB over 122 ms, {loss:g} % loss on each of two legs, Mbit/s"
        show(title, rivals, 8e-6 * size, count)


def copy_on(wan: Wan, ends: tuple[GridFTPServer, GridFTPServer], via: str) -> Run:
    """Copy the file between two servers of a WAN, check it and its route, and delete it; return the measured run."""
    source, sink = ends
    target = sink.root / "copied"
    words = [COGET, "collect", source.url("file"), "--to", sink.url("copied"), "--via", via, "--json", "--quiet"]
    environment = {**os.environ, "XDG_CONFIG_HOME": str(sink.root), "COGET_HISTORY": str(sink.root / "history")}
    command = wan.command("client", words)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    report = json.loads(done.stdout)
    if report["pairs"][0]["routes"] != [via] or (target / "file").read_bytes() != (source.root / "file").read_bytes():
        raise RuntimeError(f"the copy went another way, or its bytes are wrong: {report['pairs'][0]['routes']}")
    shutil.rmtree(target)
    return Run(report["seconds"], 0.0, 0)


def show(title: str, rivals: dict[str, Callable[[], Run]], amount: float, count: int) -> None:
    """Run the rivals, and print a line for each: amount per second, and its ratio to that of the first rival."""
    runs = rounds(rivals, count)
    peer = next(iter(runs.values()))
    print(f"\n{title}, {count} rounds: median [least-most]")
    for name, mine in runs.items():
        ratios = [p.seconds / m.seconds for p, m in zip(peer, mine, strict=True)]
        rate = spread([amount / run.seconds for run in mine], "{:.0f}")
        cpu = median(run.cpu for run in mine)
        print(f"  {name:26}  {rate:>20}  ratio {spread(ratios):>18}  CPU {cpu:.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--wan-mib", type=int, default=16)
    parser.add_argument("--loss", type=float, default=0.1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="coget-bench-") as name, ExitStack() as stack:
        source = stack.enter_context(GridFTPServer(Path(name) / "source", "127.0.0.2", life=3600))
        sink = stack.enter_context(GridFTPServer(Path(name) / "sink", "127.0.0.3", life=3600))
        small(source, sink, options.files, options.rounds)
        shutil.rmtree(sink.root / "small")
        big(source, sink, int(options.gib * 1024) << 20, options.rounds)
        stack.close()
        over_depot(Path(name) / "wan", options.wan_mib << 20, options.loss, options.rounds)


if __name__ == "__main__":
    main()
