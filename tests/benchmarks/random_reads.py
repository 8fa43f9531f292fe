"""The benchmark of random reads: coget's file system beside fsspec's http, with the same servers in the same run.

    python -m tests.benchmarks.random_reads [--reads 1000] [--delay 0.02]

Three HTTP servers answer after a delay, and one of them stalls for a second in one of 20 answers. Each rival reads
64 KiB at random offsets, one read after another. coget has all three replicas; fsspec's http has one URL per read, and
takes the servers in turn. `http, no stalls` has one server that never stalls, and so shows the noise of this machine.

The figures are the median, the 99th percentile, their ratio, the longest read, and the bytes that the servers sent
divided by those that were asked for. The targets are a ratio of 2, or that of `http, no stalls` if that is larger, and
1.05 for the bytes. `one call` reads all of them by `cat_ranges`.
"""

import argparse
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import median

import fsspec

from coalloc.plugins.fsspec_system import CogetFileSystem
from tests.support.stalling_web import StallingWeb

SIZE, LENGTH = 128 << 20, 64 << 10
STALL_SECONDS = 1.0

Read = Callable[[int, int], bytes]


def measured(read: Read, starts: Sequence[int], content: bytes, servers: Sequence[StallingWeb]) -> str:
    """Return the figures of a rival as a line of a table."""
    read(0, LENGTH)  # connects
    before, seconds = sum(server.sent for server in servers), []
    for start in starts:
        began = time.perf_counter()
        data = read(start, start + LENGTH)
        seconds.append(time.perf_counter() - began)
        assert data == content[start : start + LENGTH]
    sent = sum(server.sent for server in servers) - before
    seconds.sort()
    usual, late = median(seconds), seconds[int(len(seconds) * 0.99)]
    more = sent / (len(starts) * LENGTH)
    return f"{1000 * usual:8.1f} {1000 * late:8.1f} {late / usual:8.2f} {1000 * seconds[-1]:8.1f} {more:8.3f}"


def together(files: fsspec.AbstractFileSystem, path: str, starts: Sequence[int], content: bytes) -> float:
    """Return the seconds of all reads in one call."""
    began = time.perf_counter()
    ends = [start + LENGTH for start in starts]
    found = files.cat_ranges([path] * len(starts), list(starts), ends, on_error="raise")
    assert found == [content[start:end] for start, end in zip(starts, ends, strict=True)]
    return time.perf_counter() - began


def web_file_system() -> fsspec.AbstractFileSystem | None:
    """Return fsspec's http; None if aiohttp, which it needs, is not installed."""
    try:
        return fsspec.filesystem("http")
    except ImportError as error:
        print(f"fsspec's http is left out: {error}")
        return None


def main() -> None:
    """Run all rivals, and print a table."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    options.add_argument("--reads", type=int, default=1000, help="Number of reads.")
    options.add_argument("--delay", type=float, default=0.02, help="Seconds before each answer of a server.")
    given = options.parse_args()
    chance = random.Random(1)
    content = chance.randbytes(SIZE)
    starts = [chance.randrange(SIZE - LENGTH) for _ in range(given.reads)]
    with ExitStack() as stack:
        stalls = (STALL_SECONDS, 0.0, 0.0)
        servers = [stack.enter_context(StallingWeb(content, given.delay, each)) for each in stalls]
        urls = [server.url for server in servers]
        coget, web = CogetFileSystem(), web_file_system()
        print(f"{'':16} {'median':>8} {'p99':>8} {'p99/med':>8} {'longest':>8} {'bytes':>8}   (ms)")
        names = "|".join(urls)
        print(f"{'coget':16}", measured(lambda a, b: coget.cat_file(names, a, b), starts, content, servers))
        if web:
            turns = iter(range(10**9))
            http: Read = lambda a, b: web.cat_file(urls[next(turns) % 3], a, b)  # noqa: E731
            print(f"{'fsspec http':16}", measured(http, starts, content, servers))
            good: Read = lambda a, b: web.cat_file(urls[1], a, b)  # noqa: E731
            print(f"{'http, no stalls':16}", measured(good, starts, content, servers))
        print(f"{'coget, one call':16} {together(coget, names, starts, content):8.2f} s in all")
        if web:
            print(f"{'http, one call':16} {together(web, urls[1], starts, content):8.2f} s in all, no stalls")


if __name__ == "__main__":
    main()
