"""One run of `coget collect` on a WAN: sites with real GridFTP servers, and a link that may change during the run."""

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import yaml

from coalloc.planner.network import Demand, File, Host, Link, LinkKey, Network
from tests.benchmarks.clairvoyant import Change
from tests.benchmarks.ideal import payload_share
from tests.support.gridftp import GridFTPServer
from tests.testbed import servers
from tests.testbed.settings import Settings
from tests.testbed.topology import Topology
from tests.testbed.wan import Invalid, Wan

__all__ = ["SINK", "Run", "Site", "Situation", "collected"]

SINK = "t"
COGET = Path(sys.executable).with_name("coget")
LIMIT_SECONDS = 600
LOOK_SECONDS = 0.05
MOVING = 1_000_000
"""Number of bytes at the sink after which the data transfer counts as begun."""


@dataclass(frozen=True)
class Situation:
    """Files at sites, and the network between them.

    :param says: description, a phrase
    :param files: number of files at each site
    :param size: size of each file in bytes
    :param inward: rate of all links to the sink; None for the rates of the topology
    :param halves: source and sink of the link that drops to half of its rate during the run
    """

    says: str
    files: int = 2
    size: int = 50_000_000
    inward: str | None = None
    halves: tuple[str, str] | None = None

    @cached_property
    def topology(self) -> Topology:
        """Return the topology `collect`, with the rates of `inward`."""
        topology = Topology.load("collect")
        if self.inward is None:
            return topology
        links = (replace(link, ab=link.ab.changed(rate=self.inward)) for link in topology.links if link.b == SINK)
        others = (link for link in topology.links if link.b != SINK)
        return replace(topology, links=(*links, *others))

    @property
    def sites(self) -> list[str]:
        """Return the hosts that have files."""
        return sorted(set(self.topology.hosts) - {SINK})

    @cached_property
    def ways(self) -> dict[tuple[str, str], tuple[str, Literal["ab", "ba"], Settings]]:
        """Return, for each pair of adjacent hosts, the link between them, its direction and its settings."""
        ways: dict[tuple[str, str], tuple[str, Literal["ab", "ba"], Settings]] = {}
        for link in self.topology.links:
            ways[link.a, link.b] = link.name, "ab", link.ab
            ways[link.b, link.a] = link.name, "ba", link.ba
        return ways

    @property
    def network(self) -> Network:
        """Return the planner's network, with the links' payload rates."""
        links = (
            Link(LinkKey(*pair), int(settings.rate * payload_share())) for pair, (_, _, settings) in self.ways.items()
        )
        return Network.of(tuple(Host(host, relays=host != SINK) for host in self.topology.hosts), tuple(links))

    @property
    def demand(self) -> Demand:
        """Return a demand for all files at the sink."""
        held = ((site, number) for site in self.sites for number in range(self.files))
        return Demand(tuple(File(f"{site}{number}", self.size, (site,), (SINK,)) for site, number in held))

    @property
    def supply(self) -> dict[str, float]:
        """Return the bytes at each site."""
        return dict.fromkeys(self.sites, float(self.files * self.size))

    def change(self, at: float) -> Change | None:
        """Return the change of the link that halves, as a change at a second; None if no link changes."""
        if self.halves is None:
            return None
        return Change(at, self.halves, self.ways[self.halves][2].rate * payload_share() / 2)


@dataclass(frozen=True)
class Site:
    """The settings of a run: its directory, its kind of sink, and how it knows the network.

    :param sink: "here" for a local directory of the host `t`, where coget runs; "server" for a GridFTP server at `t`
    :param known: "file" for a network file with the topology's rates; "probe" for rates that `coget probe` measures
    """

    folder: Path
    sink: str = "here"
    known: str = "file"


@dataclass(frozen=True)
class Run:
    """The result of a run.

    :param seconds: makespan
    :param relayed: share of the bytes that went over relays
    :param rationale: why coget used these paths
    :param pairs: a line of text for each pair of hosts
    :param invalid: why the run does not count; empty if it does
    """

    seconds: float
    relayed: float
    rationale: str
    pairs: tuple[str, ...]
    invalid: str = ""


def collected(situation: Situation, method: str, change: Change | None, site: Site) -> Run:
    """Run `coget collect` in a new WAN.

    :param change: change of a link; its time counts from the first bytes at the sink
    :raises RuntimeError: coget failed, or a file differs from its original
    """
    with TemporaryDirectory(dir=site.folder) as home, Wan(situation.topology) as wan, ExitStack() as stack:
        field = _Field(situation, wan, Path(home), stack, site)
        network = field.probed() if site.known == "probe" else field.written()
        wan.reset_stats()
        with _meanwhile(situation, wan, change):
            report = field.collect(method, network)
        field.compare()
        run = _run(report, field.names)
        try:
            wan.check()
        except Invalid as error:
            return replace(run, invalid=str(error))
        return run


class _Field:
    """The servers in a WAN, and the commands that use them."""

    def __init__(self, situation: Situation, wan: Wan, home: Path, stack: ExitStack, site: Site) -> None:
        self._situation, self._wan, self._home = situation, wan, home
        hosts = [*situation.sites, SINK] if site.sink == "server" else situation.sites
        for host in situation.sites:
            _write(home / host, host, situation)
        self._servers: dict[str, GridFTPServer] = {
            host: stack.enter_context(servers.gridftp(wan, host, home / host)) for host in hosts
        }
        self._output = home / SINK if site.sink == "server" else home / "output"
        self._to = f"{self._servers[SINK].url('')}/" if site.sink == "server" else str(self._output)

    @property
    def names(self) -> dict[str, str]:
        """Return the host of each server, by the URL that coget's report uses for it."""
        return {f"ftp://{server.host}:{server.port}": host for host, server in self._servers.items()}

    def written(self) -> Path:
        """Write a network file with the topology's rates; return its path."""
        urls = {host: {"url": label} for label, host in self.names.items()}
        links = self._situation.network.links.values()
        rates = {f"{link.key.source} -> {link.key.sink}": link.capacity for link in links}
        path = self._home / "network.yaml"
        path.write_text(yaml.safe_dump({"hosts": {SINK: {}, **urls}, "links": rates}))
        return path

    def probed(self) -> Path:
        """Measure the network with `coget probe`; return the path of the network file."""
        path = self._home / "network.yaml"
        self._coget("probe", "-o", str(path), *(f"{server.url('')}/" for server in self._servers.values()))
        return path

    def collect(self, method: str, network: Path) -> dict[str, Any]:
        """Run `coget collect` at the sink; return its JSON report."""
        sources = [f"{self._servers[host].url('run')}/" for host in self._situation.sites]
        words = ["collect", *sources, "--to", self._to, "--method", method, "--network", str(network), "--json"]
        report: dict[str, Any] = json.loads(self._coget(*words))
        return report

    def compare(self) -> None:
        """Compare all files with their originals.

        :raises RuntimeError: a file differs
        """
        for file in self._situation.demand.files:
            if (self._output / file.name).read_bytes() != (
                self._home / file.holders[0] / "run" / file.name
            ).read_bytes():
                raise RuntimeError(f"{file.name} differs from its original")

    def _coget(self, *words: str) -> str:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        env = {**kept, "HOME": str(self._home), "COGET_HISTORY": str(self._home / "history.sqlite")}
        command = self._wan.command(SINK, [str(COGET), *words])
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
        if done.returncode:
            raise RuntimeError(f"coget {words[0]} ended with {done.returncode}: {done.stderr}")
        return done.stdout


def _write(root: Path, host: str, situation: Situation) -> None:
    """Write the files of a host: random bytes that depend only on the names of the files."""
    (root / "run").mkdir(parents=True)
    for file in situation.demand.files:
        if file.holders == (host,):
            (root / "run" / file.name).write_bytes(random.Random(file.name).randbytes(file.size))


@contextmanager
def _meanwhile(situation: Situation, wan: Wan, change: Change | None) -> Iterator[None]:
    """Apply a change to the network in a thread during the `with` block; its time counts from the first bytes."""
    if change is None:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_happen, args=(situation, wan, change, over))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _happen(situation: Situation, wan: Wan, change: Change, over: threading.Event) -> None:
    link, way, settings = situation.ways[change.pair]
    inward = [situation.ways[pair][:2] for pair in situation.ways if pair[1] == SINK]
    while sum(stats.bytes for key, stats in wan.stats().items() if key in inward) < MOVING:
        if over.wait(LOOK_SECONDS):
            return
    if not over.wait(change.at):
        wan.set(link, way, rate=f"{settings.rate * 8 / 2:.0f}bit")


def _run(report: Mapping[str, Any], names: Mapping[str, str]) -> Run:
    pairs = tuple(_said(pair, names) for pair in report["pairs"])
    return Run(report["seconds"], report["staged_bytes"] / report["size"], report["rationale"], pairs)


def _said(pair: Mapping[str, Any], names: Mapping[str, str]) -> str:
    between = f"{names.get(pair['source'])} -> {names.get(pair['sink'], SINK)}"
    moved = f"{pair['bytes'] / 1e6:.1f} MB in {pair['pieces']} pieces"
    return (
        f"  {between}: {moved}, {pair['rate'] * 8 / 1e6:.1f} Mbit/s for {pair['seconds']:.1f} s {pair['error'] or ''}"
    )
