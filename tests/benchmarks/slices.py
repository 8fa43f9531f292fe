"""The benchmark of xarray on a WAN: opening and slicing a netCDF file of 1 GB, beside fsspec's http and ftp.

    python -m tests.benchmarks.slices [--rounds 5] [--megabytes 1000] [--trip 40ms] [--rate 200mbit]

A server at a round-trip time of 40 ms has the file, by http and by ftp; for `coget, two servers`, another one has it,
too. In each round, each rival opens the file in a new process, and reads a series of values at one place, some whole
maps, and a region over some time: with the defaults of its file system, as users write it. All must read the same.

Prints seconds, and the ratio to coget with the same server and protocol in the same round: medians, with the least and
the most of all rounds.

`python -m tests.benchmarks.slices read URL` is the process that reads.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks.bench import in_memory
from tests.benchmarks.depot_routes import spread
from tests.support.vsftpd import Vsftpd
from tests.testbed import servers
from tests.testbed.topology import Topology
from tests.testbed.wan import Invalid, Wan

HOUSE = Path(__file__).parents[2]
NAME = "sea.nc"
LIMIT = 600
TRIES = 3
EDGE, CHUNK = 500, 250
STEPS = ("open", "series", "maps", "region")
BASE = {"coget http": "coget http", "fsspec http": "coget http", "coget ftp": "coget ftp", "fsspec ftp": "coget ftp"}
"""The rival that each is compared with."""


def write(path: Path, megabytes: int) -> None:
    """Write a file of random values, in one chunk for each hour and quarter of the map."""
    import h5netcdf
    import numpy

    hours = max(1, megabytes * 1_000_000 // (4 * EDGE * EDGE))
    chance = numpy.random.default_rng(1)
    with h5netcdf.File(path, "w") as file:
        file.dimensions = {"time": hours, "lat": EDGE, "lon": EDGE}
        for name, length in file.dimensions.items():
            file.create_variable(name, (name,), data=numpy.arange(len(length), dtype="f8"))
        data = file.create_variable("t", ("time", "lat", "lon"), "f4", chunks=(1, CHUNK, CHUNK))
        for hour in range(hours):
            data[hour] = chance.random((EDGE, EDGE), dtype="f4")


def read(url: str) -> None:
    """Print the seconds of each step, and a digest of the values."""
    import fsspec
    import h5netcdf  # noqa: F401 - what all rivals import is not measured
    import xarray

    xarray.backends.list_engines()
    digest, seconds = hashlib.sha256(), {}
    began = time.perf_counter()
    with fsspec.open(url).open() as file, xarray.open_dataset(file, engine="h5netcdf") as sea:
        hours, values = sea.sizes["time"], sea["t"]
        seconds["open"] = time.perf_counter() - began
        for step, wanted in {
            "series": {"time": slice(0, hours, max(1, hours // 40)), "lat": 100, "lon": 300},
            "maps": {"time": slice(hours // 2, hours // 2 + 20)},
            "region": {"time": slice(hours // 4, hours // 4 + 40), "lat": slice(0, 100), "lon": slice(50, 150)},
        }.items():
            began = time.perf_counter()
            digest.update(values.isel(wanted).values.tobytes())
            seconds[step] = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "digest": digest.hexdigest()}))


def measured(wan: Wan, url: str) -> tuple[Mapping[str, float], str]:
    """Return the seconds of each step of a process that reads a URL, and the digest of what it read."""
    command = wan.command("client", [sys.executable, "-m", "tests.benchmarks.slices", "read", url])
    for _ in range(TRIES):
        wan.reset_stats()
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, cwd=HOUSE)
        if done.returncode:
            raise RuntimeError(f"{url}: {done.stderr[-2000:]}")
        try:
            wan.check()
        except Invalid as why:
            print(f"  repeated: {why}", file=sys.stderr)
            continue
        found = json.loads(done.stdout)
        return found["seconds"], found["digest"]
    raise Invalid(f"{TRIES} runs in a row: this machine is too busy")


def main() -> None:
    """Run all rivals in turn, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the file")
    parser.add_argument("--trip", type=int, default=40, help="round-trip time, in milliseconds")
    parser.add_argument("--rate", default="200mbit", help="rate of each server")
    given = parser.parse_args()
    far = {"rate": given.rate, "delay": f"{given.trip / 2}ms"}
    links = {"client-core": {"rate": "1gbit", "delay": "0ms"}, "core-s1": far, "core-s2": far}
    topology = Topology.load({"links": links, "congestion": "cubic"})
    runs: dict[str, list[Mapping[str, float]]] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(in_memory())
        write(folder / NAME, given.megabytes)
        wan = stack.enter_context(Wan(topology))
        web, other = (stack.enter_context(servers.nginx(wan, host, folder)).url(NAME) for host in ("s1", "s2"))
        ftp = stack.enter_context(
            Vsftpd(folder, wan.folder / "vsftpd", host=wan.address("s1"), port=21, prefix=wan.command("s1", []))
        ).url(NAME)
        rivals = {
            "coget http": f"coget://{web}",
            "fsspec http": web,
            "coget ftp": f"coget://{ftp}",
            "fsspec ftp": ftp,
            "coget, two servers": f"coget://{web}|{other}",
        }
        digests = set()
        for number in range(given.rounds):
            order = list(rivals.items())
            for name, url in order[number % len(order) :] + order[: number % len(order)]:
                seconds, digest = measured(wan, url)
                runs.setdefault(name, []).append({**seconds, "all": sum(seconds.values())})
                digests.add(digest)
        assert len(digests) == 1, "the rivals have read different values"
    print(table(runs))


def table(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Return a row for each rival."""
    columns = (*STEPS, "all")
    lines = [f"| | {', s | '.join(columns)}, s | time / coget's |", f"|---{'|---' * len(columns)}|---|"]
    for name, own in runs.items():
        base = runs[BASE.get(name, "coget http")]
        cells = [spread([each[step] for each in own], ".2f") for step in columns]
        ratio = spread([each["all"] / beside["all"] for each, beside in zip(own, base, strict=True)], ".2f")
        lines.append(f"| {name} | {' | '.join(cells)} | {ratio} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["read"]:
        read(sys.argv[2])
    else:
        main()
