"""The benchmark of many small files: coget and rclone, each of one directory of a WebDAV server, over a WAN.

    python -m tests.benchmarks.webdav [--files 10000] [--size 10000] [--rounds 3] [--rtt 20] [--transfers 16]

The server is Apache. Each round runs the rivals in a new random order; a ratio compares runs of one round. After each
run, all bytes are compared with the source. It needs root, for the WAN.
"""

import argparse
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks.loopback import COGET, MEMORY, Run, measure, rounds, spread
from tests.support.apache import Apache
from tests.testbed.topology import Topology
from tests.testbed.wan import Wan


def main() -> None:
    """Print a row for each rival."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=10_000, help="bytes of each file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rtt", type=float, default=20, help="round-trip time in milliseconds")
    parser.add_argument("--transfers", default="16", help="rclone's --transfers")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="coget-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        content = _make(folder / "root" / "run", given.files, given.size)
        link = {"rate": "1gbit", "delay": f"{given.rtt / 2}ms"}
        wan = stack.enter_context(Wan(Topology.load({"links": {"client-s1": link}})))
        server = stack.enter_context(_apache(wan, folder))
        target = folder / "target"
        os.environ["RCLONE_CONFIG"] = os.devnull
        web = server.url("run/").replace("dav://", "http://")
        rclone = ["rclone", "copy", ":webdav:", str(target), "--webdav-url", web, "--transfers", given.transfers]
        rivals = {
            "rclone": _fresh(target, content, wan.command("client", rclone)),
            "coget": _fresh(
                target, content, wan.command("client", [*COGET, "-r", server.url("run/"), "-o", str(target)])
            ),
        }
        runs = rounds(rivals, given.rounds)
    load = f"load {os.getloadavg()[0]:.1f}"
    print(f"\n{given.files} files of {given.size} bytes, {given.rtt:g} ms, {load}: median [least-most]")
    for name, mine in runs.items():
        ratios = [peer.seconds / run.seconds for peer, run in zip(runs["rclone"], mine, strict=True)]
        print(
            f"{name:8}  {spread([run.seconds for run in mine])} s  {spread([run.cpu for run in mine])} s of CPU"
            f"  speed ratio to rclone {spread(ratios)}"
        )
    print("wanted: speed ratio of coget >= 1.0")


def _make(folder: Path, count: int, size: int) -> dict[str, bytes]:
    folder.mkdir(parents=True)
    content = {f"{number:05}.root": random.randbytes(size) for number in range(count)}
    for name, body in content.items():
        (folder / name).write_bytes(body)
    return content


def _apache(wan: Wan, folder: Path) -> Apache:
    return Apache(folder / "root", folder / "apache", host=wan.address("s1"), port=8080, prefix=wan.command("s1", []))


def _fresh(target: Path, content: dict[str, bytes], command: list[str]) -> Callable[[], Run]:
    """Return a function that deletes `target`, runs and measures the command, and compares the files."""

    def run() -> Run:
        shutil.rmtree(target, ignore_errors=True)
        measured = measure(command)
        if {path.name: path.read_bytes() for path in target.iterdir()} != content:
            raise SystemExit(f"wrong files: {' '.join(command)}")
        return measured

    return run


if __name__ == "__main__":
    main()
