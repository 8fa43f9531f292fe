"""The benchmark of a depot that is killed when half of a file has come.

    python -m tests.benchmarks.depot_killed [NETWORK...] [--size 128M] [--schemes http,ftp] [--seeds N]

The networks are those of `depot_routes`. Prints, for `--via` the depot and `--via auto`, the seconds from the kill to
the end, and their ratio to the time in which coget fetches a file with the other half of the bytes directly. The file
is compared with the server's. Each cell is the median over the seeds, with the least and the most.
"""

import argparse
import time
from collections.abc import Sequence

from tests.benchmarks.depot_routes import (
    AUTO,
    DIRECT,
    LIMIT,
    NETWORKS,
    OVER,
    PROBED,
    UNITS,
    Testbed,
    run,
    spread,
    testbed,
)

PACKETS = 1500 / 1448
"""Bytes on the link for each byte of the file."""
LOOK = 0.01


def main() -> None:
    """Print a table with a row for each network, scheme and route."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=["figure-2", "twopaths"])
    parser.add_argument("--size", default="128M")
    parser.add_argument("--schemes", default="http,ftp")
    parser.add_argument("--seeds", type=int, default=8)
    given = parser.parse_args()
    size = int(given.size[:-1]) * UNITS[given.size[-1]]
    print("| network | scheme | route | half directly, s | from the kill to the end, s | ratio |")
    print("|---|---|---|---|---|---|")
    for name in given.networks:
        for scheme in given.schemes.split(","):
            with testbed(NETWORKS[name], "cubic", 0.0, {size, size // 2, PROBED}) as bed:
                with bed.depot():
                    bed.probe(scheme, str(PROBED))
                seeds = range(1, given.seeds + 1)
                directly = [run(bed, scheme, str(size // 2), DIRECT, seed) for seed in seeds]
                for mode in (OVER, AUTO):
                    left = [killed(bed, scheme, size, mode, seed) for seed in seeds]
                    print(f"| {name} | {scheme} | {mode} | {_row(directly, left)} |", flush=True)


def killed(bed: Testbed, scheme: str, size: int, mode: str, seed: int) -> float:
    """Return the seconds from the kill of the depot, when half of the file has come, to the end."""
    bed.wan.seed(seed)
    bed.wan.reset_stats()
    with bed.depot() as depot, bed.started(*bed.command(scheme, str(size), mode)) as running:
        while _arrived(bed) < size * PACKETS / 2:
            if running.poll() is not None:
                raise RuntimeError(f"coget ended early: {running.communicate()[1]}")
            time.sleep(LOOK)
        depot.kill()
        killed_at = time.monotonic()
        _, errors = running.communicate(timeout=LIMIT)
        seconds = time.monotonic() - killed_at
    if running.returncode:
        raise RuntimeError(f"coget failed: {errors}")
    bed.check(str(size))
    return seconds


def _arrived(bed: Testbed) -> float:
    """Return the bytes that have left for the client."""
    stats = bed.wan.stats()
    return sum(stats[link, "ba"].bytes for link in ("client-server", "client-depot"))


def _row(directly: Sequence[float], left: Sequence[float]) -> str:
    ratios = [each / half for each, half in zip(left, directly, strict=True)]
    return " | ".join((spread(directly, ".3g"), spread(left, ".3g"), spread(ratios, ".2f")))


if __name__ == "__main__":
    main()
