"""A WAN on one machine: its hosts are network namespaces, and the emulator carries the packets of its links.

    with Wan(Topology.load("far")) as wan:
        subprocess.run(wan.command("client", ["ping", "-c1", "s1"]))
        wan.set("core-s1", rate="40mbit")
        wan.check()

Processes in a WAN end with it, and the WAN ends with this process. Its namespaces have no names, so several WANs may be
up at the same time. `servers` starts servers in its hosts, and `topology` describes networks.
"""

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import PATIENCE
from tests.testbed.driver import Emulator, EmulatorError
from tests.testbed.settings import MTU
from tests.testbed.topology import DIRECTIONS, Topology, TopologyError

__all__ = ["Invalid", "LinkStats", "Wan"]

IP_SECONDS = PATIENCE
DEVICE_QUEUE = 2000  # packets that the kernel keeps until the emulator reads them
MOST_LATE = 0.05  # share of all packets; with a queue of 50 ms, a few packets that are late by 1 or 2 ms matter little


class Invalid(Exception):
    """A failure of the emulator to keep up, so that a measurement is invalid; repeat it on a less busy machine."""


@dataclass(frozen=True)
class LinkStats:
    """Counters of one direction of a link since the last reset. They count packets of at most 1500 bytes.

    :param packets: packets that left the link
    :param bytes: bytes of these packets, with their IP headers
    :param queue_drops: packets dropped because the queue was full
    :param loss_drops: packets lost at random, as the settings say
    :param late: packets that left more than 1 ms late
    :param worst_late: the longest time by which a packet was late, in seconds
    :param rejected: packets that the kernel at the other end refused
    :param cross_packets: packets of cross traffic
    """

    packets: int
    bytes: int
    queue_drops: int
    loss_drops: int
    late: int
    worst_late: float
    rejected: int
    cross_packets: int


class Wan:
    """A WAN that is up within its `with` block.

    :raises EmulatorError: the WAN cannot be started; `driver.refusal` returns in advance why a machine cannot run one
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._settings = {(link.name, way): getattr(link, way) for link in topology.links for way in DIRECTIONS}
        self._directions = list(self._settings)

    def __enter__(self) -> "Wan":
        names = "".join(f"{self.address(host)} {host}\n" for host in self.topology.hosts)
        self._emulator = Emulator(f"127.0.0.1 localhost\n{names}")
        try:
            self._build()
        except BaseException:
            self._emulator.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._emulator.close()

    @property
    def folder(self) -> Path:
        """Return the directory for configurations and logs of servers; it is removed with the WAN."""
        return self._emulator.folder

    def address(self, host: str) -> str:
        """Return a host's only address, to which its name resolves in all hosts.

        :raises TopologyError: there is no such host
        """
        return f"10.77.{self._number(host) + 1}.1"

    def command(self, host: str, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command in a host, in the working directory of the caller.

        The process that it starts becomes the command (exec).

        :raises TopologyError: there is no such host
        """
        return self._emulator.enter(self._hosts[self._number(host)], command)

    def set(self, link: str, direction: str | None = None, **settings: object) -> None:
        """Change the settings of a running link, in one direction ("ab", "ba") or both.

        A new rate also applies to packets in the queue; new delay and loss apply only to packets that arrive later.

        :param settings: settings as in topologies, such as `rate="40mbit"`
        :raises TopologyError: there is no such link, or a setting is unknown or invalid
        """
        ways = [(link, direction)] if direction else [(link, way) for way in DIRECTIONS]
        for way in ways:
            if way not in self._settings:
                known = ", ".join(link.name for link in self.topology.links)
                raise TopologyError(f"no link {link} with direction {way[1]}; there are {known}, each with ab and ba")
            try:
                self._settings[way] = self._settings[way].changed(**settings)
            except TopologyError as error:
                raise TopologyError(f"{link}: {error}") from None
            self._emulator.set(self._directions.index(way), self._settings[way])

    def seed(self, number: int) -> None:
        """Restart the random numbers (loss, jitter, cross traffic) from a seed."""
        self._emulator.seed(number)

    def stats(self) -> dict[tuple[str, str], LinkStats]:
        """Return the counters of each direction of each link since the last reset, by link and "ab" or "ba"."""
        stats = [LinkStats(worst_late=numbers.pop("worst_late") / 1e9, **numbers) for numbers in self._emulator.stats()]
        return dict(zip(self._directions, stats, strict=True))

    def reset_stats(self) -> None:
        """Set all counters to 0."""
        self._emulator.reset()

    def check(self) -> None:
        """Check that the emulator has kept up since the last reset.

        :raises Invalid: it did not
        """
        missed, stats = self._emulator.missed(), self.stats()
        packets = sum(way.packets for way in stats.values())
        # One thread serves all links, so if it is late, it is late for all of them: the sum over links counts.
        late = sum(way.late for way in stats.values())
        rejected = sum(way.rejected for way in stats.values())
        if missed:
            raise Invalid(f"{missed} packets came faster than the emulator read them")
        if rejected:
            raise Invalid(f"{rejected} packets were not taken by the kernel")
        if late > MOST_LATE * packets:
            worst = max(way.worst_late for way in stats.values())
            raise Invalid(f"{late} of {packets} packets left more than 1 ms late, the worst {worst * 1e3:.0f} ms")

    def _number(self, host: str) -> int:
        if host not in self.topology.hosts:
            raise TopologyError(f"no host {host}; there are {', '.join(self.topology.hosts)}")
        return self.topology.hosts.index(host)

    def _build(self) -> None:
        self._hosts = [self._emulator.host(name) for name in self.topology.hosts]
        for link in self.topology.links:
            self._emulator.link(self._number(link.a), self._number(link.b), f"to-{link.b}", f"to-{link.a}")
        for number, way in enumerate(self._directions):
            self._emulator.set(number, self._settings[way])
        self._emulator.seed(self.topology.seed)
        for host in self.topology.hosts:
            self._give_addresses(host)
        self._emulator.reset()

    def _give_addresses(self, host: str) -> None:
        address, routes = self.address(host), self.topology.routes(host)
        lines = ["link set lo up", f"address add {address}/32 dev lo"]
        # Also those of links that no route from here uses: a route to here may.
        neighbours = [link.b if link.a == host else link.a for link in self.topology.links if host in (link.a, link.b)]
        lines += [f"link set to-{neighbour} mtu {MTU} txqueuelen {DEVICE_QUEUE} up" for neighbour in neighbours]
        # A namespace's sysctl refuses congestion controls that the machine does not allow; routes may name any.
        congestion = self.topology.congestion[host]
        lines += [
            f"route add {self.address(target)}/32 dev to-{neighbour} src {address} congctl {congestion}"
            for target, neighbour in routes.items()
        ]
        command = self.command(host, ["ip", "-batch", "-"])
        done = subprocess.run(
            command, input="\n".join(lines), capture_output=True, text=True, timeout=IP_SECONDS, check=False
        )
        if done.returncode:
            raise EmulatorError(f"{shlex.join(command)} in host {host}: {done.stderr.strip()}")
