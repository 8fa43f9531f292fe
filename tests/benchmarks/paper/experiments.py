"""The paper's experiments as data: sites, routes, schemes, file sizes, and how rates change with time. Pure.

Source: Vazhkudai, "Enabling the Co-Allocation of Grid Data Transfers" (2003), sections 4.1 to 4.3, figures 4 to 11.
The servers, clients, schemes, block counts and file sizes are the paper's. The numbers of its figure 3, the rates and
round-trip times between the sites, have not survived. So those of `ROUTES` are our choice; they agree with the text,
which says which servers are slow, similar or fast, and that each site has Ethernet of 100 Mbit/s.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from random import Random

__all__ = ["ETHERNET", "EXPERIMENTS", "SCALE", "SIZES", "Experiment", "Route", "Scheme"]

SCALE = 50
"""Factor by which files on the testbed are smaller than in the paper; rates are not scaled."""
SIZES = (10, 100, 1000)
"""File sizes of the paper in MB, without its 500 MB."""

ETHERNET = 100.0
"""Mbit/s at each site."""
STRETCH = 1.0
"""Mean seconds between two changes of a route's rate: 50 s at the paper's sizes."""
LEAST, MOST = 0.6, 1.4
"""Range of a route's rate divided by its mean rate; uniformly distributed."""
FORESEEN = 60.0
"""Seconds of weather; longer than any run."""


@dataclass(frozen=True, slots=True)
class Route:
    """The route between a server's site and the client's: mean rate in Mbit/s, round-trip time in milliseconds."""

    mbit: float
    round_trip: float


ROUTES = {
    ("LBL", "ANL"): Route(85, 50),
    ("ISI", "ANL"): Route(20, 62),
    ("UFL", "ANL"): Route(18, 44),
    ("ANL", "UFL"): Route(36, 44),
    ("ISI", "UFL"): Route(18, 68),
    ("BU", "UFL"): Route(16, 40),
}


@dataclass(frozen=True, slots=True)
class Scheme:
    """One bar of a figure: a strategy, with its block count, or one server alone."""

    name: str
    strategy: str
    blocks: int | None = None
    server: str | None = None

    @property
    def options(self) -> list[str]:
        """Return coget's command-line options."""
        return ["--strategy", self.strategy, *(["--blocks", str(self.blocks)] if self.blocks else [])]


BALANCED = [Scheme(f"{name}-{k}", name, k) for name in ("conservative", "aggressive") for k in (5, 10, 15)]
FIVE = [scheme for scheme in BALANCED if scheme.blocks == 5]
STATIC = [Scheme("brute", "brute"), Scheme("history", "history")]
ADAPTIVE = Scheme("adaptive", "adaptive")


@dataclass(frozen=True, slots=True)
class Experiment:
    """Servers at some sites, a client at another, and the schemes that are compared.

    :param client: site of the client
    :param sites: sites of the servers, the fastest first
    :param coallocated: schemes that use all servers
    :param alone: whether there are also runs in which each server alone delivers the whole file
    :param shared: whether all servers are behind one bottleneck, the route from their site
    """

    client: str
    sites: tuple[str, ...]
    coallocated: tuple[Scheme, ...]
    alone: bool = True
    shared: bool = False

    @property
    def name(self) -> str:
        return f"{'+'.join(self.sites)}-{self.client}".lower()

    @property
    def servers(self) -> list[str]:
        """Return the names of the servers' hosts; two servers at one site are numbered."""
        twice = len(set(self.sites)) < len(self.sites)
        return [f"{site}{number}" if twice else site for number, site in enumerate(self.sites, 1)]

    @property
    def singles(self) -> list[Scheme]:
        """Return the base schemes: each server alone."""
        return [Scheme(f"{server} alone", "single", server=server) for server in self.servers if self.alone]

    @property
    def schemes(self) -> list[Scheme]:
        """Return the schemes in the order of the paper's bars."""
        return [*self.singles, *self.coallocated]

    @property
    def routes(self) -> dict[str, Route]:
        """Return the routes, whose rates change, by the testbed link that emulates each."""
        if self.shared:
            return {"core-neck": ROUTES[self.sites[0], self.client]}
        return {
            f"core-{server}": ROUTES[site, self.client] for server, site in zip(self.servers, self.sites, strict=True)
        }

    @property
    def links(self) -> dict[str, dict[str, str]]:
        """Return the links of the testbed and their settings; the first is the client's Ethernet."""
        near = {"rate": f"{ETHERNET}mbit", "delay": "0.025ms"}
        links = {"client-core": near}
        for link, route in self.routes.items():
            links[link] = {"rate": f"{route.mbit}mbit", "delay": f"{route.round_trip / 2}ms"}
        if self.shared:
            links |= {f"neck-{server}": near for server in self.servers}
        return links

    def weather(self, seed: int) -> list[tuple[float, str, float]]:
        """Return the changes of rates in order of time: (second, link, Mbit/s). Each link has one at second 0.

        They depend only on the seed, so that all schemes meet the same network.
        """
        return sorted(chain.from_iterable(_changes(link, route.mbit, seed) for link, route in self.routes.items()))


def _changes(link: str, mbit: float, seed: int) -> Iterator[tuple[float, str, float]]:
    draw = Random(f"{seed} {link}")
    second = 0.0
    while second < FORESEEN:
        yield second, link, min(ETHERNET, mbit * draw.uniform(LEAST, MOST))
        second += draw.expovariate(1 / STRETCH)


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("ANL", ("ISI", "UFL"), (*STATIC, *BALANCED, ADAPTIVE)),
        Experiment("UFL", ("ISI", "ISI"), (*STATIC, *FIVE, ADAPTIVE), shared=True),
        Experiment("UFL", ("ISI", "BU"), (*STATIC, *FIVE, ADAPTIVE)),
        Experiment("UFL", ("ANL", "ISI"), (*STATIC, *BALANCED, ADAPTIVE)),
        Experiment("UFL", ("ANL", "ISI", "BU"), (*STATIC, *FIVE, ADAPTIVE)),
        Experiment("ANL", ("LBL", "UFL"), (*STATIC, *BALANCED, ADAPTIVE)),
        Experiment("ANL", ("LBL", "LBL"), (*STATIC, *FIVE, ADAPTIVE), shared=True),
        Experiment("ANL", ("LBL", "ISI"), (*BALANCED, ADAPTIVE), alone=False),
        Experiment("ANL", ("LBL", "ISI", "UFL"), (*BALANCED, ADAPTIVE), alone=False),
    )
}
"""Experiments by name; the longest come first."""
