"""The scenarios: their permanent names, the events in the network, and the goal of coget with default options.

`random-N` names the random network with seed N, which nobody has tuned anything for.

Topologies are those of `tests/testbed/topologies`, or random; sources are the hosts s1, s2, ..., the client is
`client`. The time of an event is given by the share of the file that the ideal transfer has by then. So it is the same
second for all rivals: a network does not wait for slow programs. After the last event a network does not change.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import exp, inf, log
from typing import Any, Literal

__all__ = ["RANDOM", "SCENARIOS", "Event", "Scenario", "named"]

Act = Literal["rate", "cross", "kill", "hole"]
RANDOM = "random"
"""Beginning of the names of random networks."""
FASTEST = 900
"""Most Mbit/s of all sources of a random network together, which the testbed can carry."""
NEAR = "<= 1.01, + 1 round trip and the start of the program"


@dataclass(frozen=True, slots=True)
class Event:
    """An event at a source, at the moment when the ideal transfer has `share` of the file.

    :param act: `rate`: the source's link drops to the share `left` of its rate; `cross`: cross traffic takes all but
        the share `left` of it; `kill`: its server gets SIGKILL; `hole`: all its packets are lost, in both directions
    """

    share: float
    source: str
    act: Act
    left: float = 0.0

    @property
    def says(self) -> str:
        """Return a description of the event."""
        match self.act:
            case "rate":
                return f"the link of {self.source} changes to {self.left:.0%} of its rate"
            case "cross":
                return f"other traffic takes {1 - self.left:.0%} of the link of {self.source}"
            case "kill":
                return f"the server of {self.source} is killed"
            case "hole":
                return f"all packets of {self.source} are lost"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario.

    :param says: description, a phrase
    :param bar: goal of coget, a phrase; the limits below are its numbers
    :param topology: name of the topology, or its description
    :param size: size of the file in bytes
    :param congestion: congestion controls of the servers; the scenario runs with each of them
    :param loss: loss rate of each source's link, in both directions
    :param rounds: default number of runs of each rival
    :param schemes: URL schemes of the sources for coget, used alternately
    :param extra: additional rivals of this scenario
    :param rerun: whether the client is killed at half of the bytes, and then run again
    :param most: largest time / ideal of coget (in `rerun`: bytes moved / size)
    :param most_of_extra: largest time of coget, divided by that of each of `extra`
    :param more_than_extra: seconds that coget may take longer than that
    :param fastest: whether coget must be faster than every peer
    """

    name: str
    says: str
    bar: str
    topology: str | Mapping[str, Any] = "hetero"
    size: int = 1 << 30
    congestion: tuple[str, ...] = ("cubic",)
    loss: str = "0%"
    rounds: int = 3
    events: tuple[Event, ...] = ()
    schemes: tuple[str, ...] = ("ftp",)
    extra: tuple[str, ...] = ()
    rerun: bool = False
    most: float = inf
    most_of_extra: float = inf
    more_than_extra: float = 0.0
    fastest: bool = False


def _bursts(seed: int, source: str, left: float, mean: float, until: float) -> Iterator[Event]:
    """Yield when cross traffic begins and ends. The times between are exponentially distributed.

    :param left: share of the link's rate that the traffic leaves
    :param mean: mean time between two events, as a share of the file
    :param until: time of the last event, as a share of the file
    """
    draw = random.Random(f"{seed} {source}")
    share, busy = 0.0, False
    while (share := share + draw.expovariate(1 / mean)) < until:
        busy = not busy
        yield Event(share, source, "cross", left if busy else 1.0)


CROSS = sorted([*_bursts(1, "s1", 0.25, 0.1, 8.0), *_bursts(1, "s2", 0.25, 0.1, 8.0)], key=lambda event: event.share)
SHORT = sorted(
    (event for number in range(1, 5) for event in _bursts(2, f"s{number}", 0.4, 0.04, 3.0)),
    key=lambda event: event.share,
)
HALF_GIB = 1 << 29

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("hetero", "400/200/100/50 Mbit/s", "<= 1.02", most=1.02),
        Scenario(
            "slow",
            "hetero; the fastest source drops to a tenth of its rate at 50 %",
            "<= 1.02",
            events=(Event(0.5, "s1", "rate", 0.1),),
            most=1.02,
        ),
        Scenario(
            "late",
            "hetero; the fastest source drops to a tenth of its rate at 90 %",
            "<= 1.05",
            events=(Event(0.9, "s1", "rate", 0.1),),
            most=1.05,
        ),
        Scenario(
            "recover",
            "hetero; the fastest source drops to a tenth of its rate at 50 %, and recovers at 75 %",
            "<= 1.03",
            events=(Event(0.5, "s1", "rate", 0.1), Event(0.75, "s1", "rate", 1.0)),
            most=1.03,
        ),
        Scenario(
            "kill",
            "hetero; the server of the fastest source gets SIGKILL at 50 %",
            "<= 1.02",
            events=(Event(0.5, "s1", "kill"),),
            most=1.02,
        ),
        Scenario(
            "hole",
            "hetero; all packets of the fastest source are lost from 50 % on",
            "<= 1.03",
            events=(Event(0.5, "s1", "hole"),),
            most=1.03,
        ),
        Scenario("strag", "400/200/100/2 Mbit/s", "<= 1.03", topology="strag", most=1.03),
        Scenario(
            "far",
            "400/200/100 Mbit/s at 10/40/80 ms one way",
            "<= 1.08",
            topology="far",
            congestion=("cubic", "bbr"),
            most=1.08,
        ),
        Scenario(
            "farloss",
            "far, with 0.1 % loss",
            "<= 1.10, never slower than globus-url-copy -p 8",
            topology="far",
            congestion=("cubic", "bbr"),
            loss="0.1%",
            rounds=8,
            extra=("globus-url-copy-p8",),
            most=1.10,
            most_of_extra=1.0,
        ),
        Scenario(
            "shared",
            "two sources behind one bottleneck",
            "<= 1.02 of the better source alone",
            topology="shared",
            extra=("coget-best",),
            most_of_extra=1.02,
        ),
        Scenario(
            "small",
            "10 MB at 40 ms one way",
            "<= the best source alone + 1 round trip",
            topology="small",
            size=10_000_000,
            rounds=5,
            extra=("coget-best",),
            most_of_extra=1.0,
            more_than_extra=0.08,
        ),
        Scenario("many", "16 sources", "<= 1.03", topology="many", most=1.03),
        Scenario(
            "cross",
            "hetero; bursts of cross traffic take 3/4 of the two fastest links",
            "faster than every peer",
            events=tuple(CROSS),
            fastest=True,
        ),
        Scenario(
            "mixed",
            "hetero; the servers for coget use GridFTP and HTTPS alternately",
            "<= 1.02",
            schemes=("ftp", "https"),
            most=1.02,
        ),
        Scenario("uneven", "270/160/130/45/12 Mbit/s at 2/15/40/25/60 ms one way", NEAR, "uneven", HALF_GIB),
        Scenario(
            "uneven-changing",
            "uneven; s1 drops to 15 % at 35 % and recovers at 80 %, s2 drops to 10 % at 60 %",
            NEAR,
            "uneven",
            HALF_GIB,
            events=(
                Event(0.35, "s1", "rate", 0.15),
                Event(0.6, "s2", "rate", 0.1),
                Event(0.8, "s1", "rate", 1.0),
            ),
        ),
        Scenario(
            "bursts",
            "350/210/120/60 Mbit/s; short bursts of cross traffic take 60 % of each link",
            NEAR,
            "near",
            HALF_GIB,
            events=tuple(SHORT),
        ),
        Scenario("pair", "420/330 Mbit/s at 5 ms one way", NEAR, "pair", HALF_GIB),
        Scenario(
            "vanish",
            "300/150/80 Mbit/s at 20/60/110 ms one way, 0.03 % loss; packets of s2 vanish from 70 % on",
            "<= 1.15",
            "distant",
            HALF_GIB,
            ("cubic", "bbr"),
            "0.03%",
            8,
            (Event(0.7, "s2", "hole"),),
            most=1.15,
        ),
        Scenario(
            "tiny",
            "2 MB; 100 Mbit/s at 5 ms, 200 Mbit/s at 30 ms one way",
            "<= 1.3 of the best other program by HTTP",
            "tiny",
            2_000_000,
            rounds=5,
        ),
        Scenario(
            "rerun",
            "hetero; the client gets SIGKILL at half of the bytes; then the same command runs again",
            "<= 1.02 of the bytes",
            rerun=True,
            most=1.02,
        ),
    )
}


def named(name: str) -> Scenario:
    """Return the scenario with this name. :raises KeyError: if there is none"""
    kind, _, seed = name.partition("-")
    return _random(int(seed)) if kind == RANDOM and seed.isdecimal() else SCENARIOS[name]


def _random(seed: int) -> Scenario:
    """Return a random network: two to eight sources of 5 to 500 Mbit/s, 0.1 to 100 ms away, with up to five events.

    A third of the networks has random loss. One source at least stays as it is.
    """
    draw = random.Random(f"network {seed}")
    names = [f"s{i + 1}" for i in range(draw.randint(2, 8))]
    rates = [_between(draw, 5, 500) for _ in names]
    rates = [rate * min(1.0, FASTEST / sum(rates)) for rate in rates]
    delays = [_between(draw, 0.1, 100) for _ in names]
    links = {
        f"client-{name}": {"rate": f"{rate:.3g}mbit", "delay": f"{delay:.3g}ms"}
        for name, rate, delay in zip(names, rates, delays, strict=True)
    }
    loss = f"{_between(draw, 0.005, 0.1):.2g}%" if draw.random() < 1 / 3 else "0%"
    lucky = draw.choice(names)
    events = [event for name in names if name != lucky and draw.random() < 0.4 for event in _trouble(draw, name)]
    says = ", ".join(f"{rate:.0f} at {delay:.1f} ms" for rate, delay in zip(rates, delays, strict=True))
    return Scenario(
        f"{RANDOM}-{seed}",
        f"Mbit/s: {says} one way" + (f"; {loss} loss" if loss != "0%" else ""),
        "<= 1.15" if loss != "0%" else NEAR,
        {"links": links},
        size=int(sum(rates) * 1e6 / 8 * draw.uniform(4, 12)),
        congestion=(draw.choice(["cubic", "bbr"]),),
        loss=loss,
        events=tuple(sorted(events, key=lambda event: event.share)),
        schemes=draw.choice([("ftp",), ("http",), ("ftp", "http")]),
        most=1.15 if loss != "0%" else inf,
    )


def _between(draw: random.Random, low: float, high: float) -> float:
    """Return a number whose logarithm is uniformly distributed."""
    return exp(draw.uniform(log(low), log(high)))


def _trouble(draw: random.Random, source: str) -> list[Event]:
    """Return what happens to a source: it slows down, recovers, fails, or has bursts of cross traffic."""
    at, left = draw.uniform(0.05, 0.95), draw.uniform(0.05, 0.6)
    match draw.choice(["rate", "recover", "kill", "hole", "cross"]):
        case "rate":
            return [Event(at, source, "rate", left)]
        case "recover":
            return [Event(at, source, "rate", left), Event(draw.uniform(at, 1.0), source, "rate", 1.0)]
        case "kill":
            return [Event(at, source, "kill")]
        case "hole":
            return [Event(at, source, "hole")]
        case _:
            return list(_bursts(draw.getrandbits(32), source, left, 0.1, 8.0))
