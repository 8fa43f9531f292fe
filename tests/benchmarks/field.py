"""The environment of one run: a scenario's network, the servers for one rival, and the events during the run.

All of it is created anew for each run, so that nothing remains of the previous one. `tests.benchmarks.plan` determines
the times of the events, and `tests.benchmarks.race` runs the rival.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Protocol

from tests.benchmarks.ideal import HEADERS
from tests.benchmarks.plan import CLIENT, Plan, Way
from tests.benchmarks.scenarios import Event
from tests.support.gsi import Authority, Identity
from tests.testbed import servers
from tests.testbed.wan import LinkStats, Wan

__all__ = ["Field"]


class Server(Protocol):
    def url(self, name: str) -> str: ...
    def kill(self) -> None: ...


class Field:
    """A network with servers, up within its `with` block.

    :param schemes: URL scheme of each source's server, by host
    :param folder: directory that the servers serve
    :ivar authority: certificate of the authority that signed the servers' certificates; None without https
    """

    def __init__(self, plan: Plan, schemes: Mapping[str, str], folder: Path) -> None:
        self.plan = plan
        self._schemes = schemes
        self._folder = folder
        self._stack = ExitStack()
        self._identity: Identity | None = None
        self.authority: Path | None = None

    def __enter__(self) -> "Field":
        with self._stack:
            self._wan = self._stack.enter_context(Wan(self.plan.topology))
            if "https" in self._schemes.values():
                self._certify()
            self._servers = {host: self._stack.enter_context(self._server(host)) for host in self.plan.sources}
            self._wan.reset_stats()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def url(self, host: str, name: str) -> str:
        """Return the URL of the file at a host."""
        return self._servers[host].url(name)

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the words that run a command at the client."""
        return self._wan.command(CLIENT, words)

    def sent(self) -> dict[str, int]:
        """Return the payload bytes that each source has sent towards the client, as counted on its link."""
        stats = self._wan.stats()
        return {host: _payload(stats, self.plan.ways[host]) for host in self.plan.sources}

    def moved(self) -> int:
        """Return the payload bytes that arrived at the client, as counted on its links."""
        stats = self._wan.stats()
        return sum(_payload(stats, way) for way in self.plan.ways.values() if way.onward == CLIENT)

    def events(self) -> list[tuple[float, Callable[[], None]]]:
        """Return the time of each event, in seconds after the start, and the function that triggers it."""
        return [(at, lambda event=event: self._happen(event)) for at, event in self.plan.timeline]

    def check(self) -> None:
        """Check that the network behaved as specified. :raises Invalid: if it did not"""
        self._wan.check()

    def _server(self, host: str) -> AbstractContextManager[Server]:
        match self._schemes[host]:
            case "ftp":
                return servers.gridftp(self._wan, host, self._folder)
            case "root":
                return servers.xrootd(self._wan, host, self._folder)
            case scheme:
                return servers.nginx(self._wan, host, self._folder, self._identity if scheme == "https" else None)

    def _certify(self) -> None:
        """Create a certificate authority, and one certificate for all hosts."""
        grid = Authority(self._wan.folder / "authority")
        addresses = ",".join(f"IP:{self._wan.address(host)}" for host in self.plan.sources)
        self._identity, self.authority = grid.host(names=addresses), grid.authority.certificate

    def _happen(self, event: Event) -> None:
        way = self.plan.ways[event.source]
        rate = way.settings.rate * 8
        match event.act:
            case "kill":
                self._servers[event.source].kill()
            case "hole":
                self._wan.set(way.link, loss="100%")
            case "rate":
                self._wan.set(way.link, way.direction, rate=f"{rate * event.left:.0f}bit")
            case "cross":
                taken = {"rate": f"{rate * (1 - event.left):.0f}bit"} if event.left < 1 else None
                self._wan.set(way.link, way.direction, cross=taken)


def _payload(stats: Mapping[tuple[str, str], LinkStats], way: Way) -> int:
    count = stats[way.link, way.direction]
    return count.bytes - HEADERS * count.packets
