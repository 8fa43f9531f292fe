"""The benchmark of routes over depots: one file from one server, directly, over a depot, and with `--via auto`.

    python -m tests.benchmarks.depot_routes [NETWORK...] [--sizes 16K,1M] [--schemes http,ftp] [--seeds N]
        [--congestion cubic,reno,bbr] [--loss PERCENT]

Prints a table for each network: the rates by size, the gain of the depot, and the time of `auto` as a ratio to the
better of the two routes. Before, `coget probe --via auto` has measured the routes. Each cell is the median over the
seeds, with the least and the most; the seeds change the losses, and the order of the routes. `--loss` is the loss of
each leg; the direct route has that of both. Needs root, and the programs that tests/testbed needs.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.bench import in_memory
from tests.testbed import servers
from tests.testbed.topology import Topology
from tests.testbed.wan import Invalid, Wan

COGET = str(Path(sys.executable).with_name("coget"))
DEPOT = str(Path(sys.executable).with_name("coget-depot"))
OPEN = ("--listen", "0.0.0.0:4000", "--clients", "10.0.0.0/8", "--destinations", "10.0.0.0/8")
DIRECT, OVER, AUTO = "direct", "depot", "auto"
MODES = (DIRECT, OVER, AUTO)
UNITS = {"K": 1 << 10, "M": 1 << 20}
PROBES = 3
PROBED = 4 << 20
TRIES = 4
LIMIT = 300.0
"""Time limit of a run in seconds."""


@dataclass(frozen=True)
class Routes:
    """A network with two routes.

    :param says: what it is
    :param links: rate and delay (one way) of the links
    :param sizes: usual sizes of the file
    :param buffer: largest socket buffer of client and server, in bytes; None for the system's
    """

    says: str
    links: Mapping[str, Mapping[str, str]]
    sizes: str = "16K,64K,256K,1M,4M,16M,64M"
    buffer: int | None = None


def _routes(direct: str, near: str, far: str, rates: Sequence[str] = ("155mbit",) * 3) -> dict[str, dict[str, str]]:
    names = ("client-server", "client-depot", "depot-server")
    return {
        name: {"rate": rate, "delay": delay}
        for name, rate, delay in zip(names, rates, (direct, near, far), strict=True)
    }


SMALL = "16K,64K,256K,1M,4M"
UCSD = _routes("61ms", "43.5ms", "20ms")
NETWORKS = {
    "figure-2": Routes("ANL to UTK: direct 106 ms, legs 75 and 2.5 ms", _routes("53ms", "37.5ms", "1.25ms")),
    "figure-2-short": Routes(
        "the same with a direct route as short as the depot's, 77.5 ms", _routes("38.75ms", "37.5ms", "1.25ms")
    ),
    "figure-3": Routes("UCSD to UTK: direct 122 ms, legs 40 and 87 ms", UCSD),
    "figure-4": Routes("the same with buffers of 64 KB", UCSD, SMALL, 64 << 10),
    "figure-5": Routes("the same with buffers of 32 KB", UCSD, SMALL, 32 << 10),
    "twopaths": Routes(
        "100 Mbit/s direct, 150 Mbit/s by the depot",
        _routes("40ms", "20ms", "25ms", ("100mbit", "150mbit", "150mbit")),
        "1M,4M,16M,64M,256M",
    ),
}


@dataclass
class Cell:
    """The seconds of all runs with one size, by mode."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {mode: [] for mode in MODES})

    def ratios(self) -> list[float]:
        """Return the ratios of `auto` to the better route of the same seed."""
        own = self.seconds
        return [auto / min(direct, over) for direct, over, auto in zip(own[DIRECT], own[OVER], own[AUTO], strict=True)]


@dataclass(frozen=True)
class Testbed:
    """The programs in a running network.

    :param url: returns the URL of a file, by scheme
    :param congestion: congestion control of all hosts
    """

    wan: Wan
    folder: Path
    url: Mapping[str, Callable[[str], str]]
    congestion: str

    def coget(self, words: Sequence[str], history: Path) -> str:
        """Run coget at the client, and return its output."""
        with self.started(words, history) as running:
            output, errors = running.communicate(timeout=LIMIT)
        if running.returncode:
            raise RuntimeError(f"{' '.join(words)}: {errors.strip()}")
        return output

    def started(self, words: Sequence[str], history: Path) -> "subprocess.Popen[str]":
        """Start coget at the client."""
        environment = {**os.environ, "COGET_HISTORY": str(history), "XDG_CONFIG_HOME": str(self.folder)}
        command = self.wan.command("client", [COGET, *words])
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def fetch(self, scheme: str, name: str, mode: str) -> float:
        """Fetch a file, check it, and return the seconds from coget's report."""
        seconds = json.loads(self.coget(*self.command(scheme, name, mode)))["seconds"]
        self.check(name)
        return float(seconds)

    def command(self, scheme: str, name: str, mode: str) -> tuple[list[str], Path]:
        """Return the words of the command that fetches a file, and the history that it uses."""
        via = {DIRECT: "none", OVER: f"{self.wan.address('depot')}:4000", AUTO: AUTO}[mode]
        history = self._known(scheme) if mode == AUTO else self.folder / f"{mode}.sqlite"
        words = ["--quiet", "--json", "--via", via, "--overwrite", self.url[scheme](name), "-o", str(self._here)]
        return words, history

    def check(self, name: str) -> None:
        """Compare the fetched file with the server's, and delete it."""
        if self._here.read_bytes() != (self.folder / "export" / name).read_bytes():
            raise RuntimeError(f"{name} came with wrong bytes")
        self._here.unlink()

    @property
    def _here(self) -> Path:
        return self.folder / "here"

    def probe(self, scheme: str, name: str) -> None:
        """Measure the routes, as `auto` finds them known."""
        for _ in range(PROBES):
            words = ["probe", "--via", "auto", "--bytes", str(PROBED), self.url[scheme](name)]
            self.coget(words, self._known(scheme))

    @contextmanager
    def depot(self) -> Iterator["subprocess.Popen[str]"]:
        """Run the depot."""
        words = [DEPOT, "serve", *OPEN, "--audit", str(self.folder / "audit"), "--congestion", self.congestion]
        with subprocess.Popen(self.wan.command("depot", words), stdout=subprocess.PIPE, text=True) as running:
            try:
                if not (running.stdout and running.stdout.readline()):
                    raise RuntimeError("the depot did not start")
                yield running
            finally:
                running.kill()

    def _known(self, scheme: str) -> Path:
        return self.folder / f"known-{scheme}.sqlite"


def main() -> None:
    """Print a table for each network, congestion control and scheme."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(NETWORKS)} (default: all)")
    parser.add_argument("--sizes", help="sizes of the file, in K or M (default: those of the network)")
    parser.add_argument("--schemes", default="http,ftp")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--congestion", default="cubic")
    parser.add_argument("--loss", type=float, default=0.0, help="per cent of the packets that each leg loses")
    given = parser.parse_args()
    for name in given.networks or NETWORKS:
        network = NETWORKS[name]
        sizes = [int(text[:-1]) * UNITS[text[-1]] for text in (given.sizes or network.sizes).split(",")]
        for congestion in given.congestion.split(","):
            for scheme in given.schemes.split(","):
                cells = measure(network, scheme, congestion, given.loss, sizes, given.seeds)
                loss = f", {given.loss:g} % loss on each leg" if given.loss else ""
                print(f"\n{name}: {network.says}; {scheme}, {congestion}{loss}\n\n{table(cells)}", flush=True)


def measure(
    network: Routes, scheme: str, congestion: str, loss: float, sizes: Sequence[int], seeds: int
) -> dict[int, Cell]:
    """Return the runs by size."""
    cells = {size: Cell() for size in sizes}
    with testbed(network, congestion, loss, {*sizes, PROBED}) as bed, bed.depot():
        bed.probe(scheme, str(PROBED))
        for seed in range(1, seeds + 1):
            for size in sizes:
                modes = list(MODES)
                random.Random(f"{seed} {size}").shuffle(modes)
                for mode in modes:
                    cells[size].seconds[mode].append(run(bed, scheme, str(size), mode, seed))
    return cells


def run(bed: Testbed, scheme: str, name: str, mode: str, seed: int) -> float:
    """Return the seconds of one fetch; repeat it if the emulator did not keep up."""
    for _ in range(TRIES):
        bed.wan.seed(seed)
        bed.wan.reset_stats()
        seconds = bed.fetch(scheme, name, mode)
        try:
            bed.wan.check()
        except Invalid as error:
            print(f"repeated: {error}", file=sys.stderr)
            time.sleep(1)
        else:
            return seconds
    raise RuntimeError("the testbed cannot keep up: other programs run on this machine")


@contextmanager
def testbed(network: Routes, congestion: str, loss: float, sizes: set[int]) -> Iterator[Testbed]:
    """Run a network with its servers."""
    # Packets take the route with the least delay: until all routes are set, that is the direct one.
    near = {
        name: {**link, "delay": "1ms" if name == "client-server" else "10ms"} for name, link in network.links.items()
    }
    with (
        in_memory() as folder,
        Wan(Topology.load({"links": near, "congestion": congestion})) as wan,
        ExitStack() as stack,
    ):
        for name, link in network.links.items():
            lost = 1 - (1 - loss / 100) ** (2 if name == "client-server" else 1)
            wan.set(name, delay=link["delay"], loss=f"{lost:.8%}")
        if network.buffer:
            for host in ("client", "server"):
                for kind in ("rmem", "wmem"):
                    setting = f"net.ipv4.tcp_{kind}=4096 {network.buffer} {network.buffer}"
                    subprocess.run(wan.command(host, ["sysctl", "-qw", setting]), check=True)
        (folder / "export").mkdir()
        for size in sizes:
            (folder / "export" / str(size)).write_bytes(os.urandom(size))
        web = stack.enter_context(servers.nginx(wan, "server", folder / "export"))
        gridftp = stack.enter_context(servers.gridftp(wan, "server", folder / "export"))
        (folder / "coget").mkdir()
        (folder / "coget" / "config.toml").write_text(f'depots = ["{wan.address("depot")}:4000"]\n')
        yield Testbed(wan, folder, {"http": web.url, "ftp": gridftp.url}, congestion)


def table(cells: Mapping[int, Cell]) -> str:
    """Return a table in Markdown with a row per size."""
    lines = [
        "| size | direct, Mbit/s | depot, Mbit/s | gain | auto, Mbit/s | auto / better, time |",
        "|---|---|---|---|---|---|",
    ]
    for size, cell in cells.items():
        rates = {mode: [8e-6 * size / seconds for seconds in cell.seconds[mode]] for mode in MODES}
        gains = [over / direct for direct, over in zip(rates[DIRECT], rates[OVER], strict=True)]
        shown = [spread(rates[DIRECT], ".3g"), spread(rates[OVER], ".3g"), spread(gains, ".2f")]
        shown += [spread(rates[AUTO], ".3g"), spread(cell.ratios(), ".2f")]
        lines.append(f"| {_named(size)} | {' | '.join(shown)} |")
    return "\n".join(lines)


def spread(values: Sequence[float], how: str) -> str:
    """Return the median, the least and the most."""
    return f"{statistics.median(values):{how}} [{min(values):{how}}-{max(values):{how}}]"


def _named(size: int) -> str:
    return f"{size >> 20}M" if size >= 1 << 20 else f"{size >> 10}K"


if __name__ == "__main__":
    main()
