"""The scenarios: their permanent names, the events in the network, and the goal of coget with default options.

Topologies are those of `tests/testbed/topologies`; sources are the hosts s1, s2, ..., the client is `client`. The time
of an event is given by the share of the file that the ideal transfer has by then. So it is the same second for all
rivals: a network does not wait for slow programs. After the last event a network does not change any more.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["SCENARIOS", "Event", "Scenario"]

Act = Literal["rate", "cross", "kill", "hole"]


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
                return f"the link of {self.source} goes to {self.left:.0%}"
            case "cross":
                return f"others take {1 - self.left:.0%} of {self.source}"
            case "kill":
                return f"the server of {self.source} is killed"
            case "hole":
                return f"packets of {self.source} vanish"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario.

    :param says: description, a phrase
    :param bar: goal of coget
    :param topology: name of the topology
    :param size: size of the file in bytes
    :param congestion: congestion controls of the servers; the scenario runs with each of them
    :param loss: loss rate of each source's link, in both directions
    :param rounds: default number of runs of each rival
    :param schemes: URL schemes of the sources for coget, used alternately
    :param extra: additional rivals of this scenario
    :param rerun: whether the client is killed at half of the bytes, and then run again
    """

    name: str
    says: str
    bar: str
    topology: str = "hetero"
    size: int = 1 << 30
    congestion: tuple[str, ...] = ("cubic",)
    loss: str = "0%"
    rounds: int = 3
    events: tuple[Event, ...] = ()
    schemes: tuple[str, ...] = ("ftp",)
    extra: tuple[str, ...] = ()
    rerun: bool = False


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

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("hetero", "400/200/100/50 Mbit/s", "<= 1.02"),
        Scenario(
            "slow",
            "hetero; the fastest source drops to a tenth of its rate at 50 %",
            "<= 1.02",
            events=(Event(0.5, "s1", "rate", 0.1),),
        ),
        Scenario(
            "late",
            "hetero; the fastest source drops to a tenth of its rate at 90 %",
            "<= 1.05",
            events=(Event(0.9, "s1", "rate", 0.1),),
        ),
        Scenario(
            "recover",
            "hetero; the fastest source drops to a tenth of its rate at 50 %, and recovers at 75 %",
            "<= 1.03",
            events=(Event(0.5, "s1", "rate", 0.1), Event(0.75, "s1", "rate", 1.0)),
        ),
        Scenario(
            "kill",
            "hetero; the server of the fastest source gets SIGKILL at 50 %",
            "<= 1.02",
            events=(Event(0.5, "s1", "kill"),),
        ),
        Scenario(
            "hole",
            "hetero; all packets of the fastest source are lost from 50 % on",
            "<= 1.03",
            events=(Event(0.5, "s1", "hole"),),
        ),
        Scenario("strag", "400/200/100/2 Mbit/s", "<= 1.03", topology="strag"),
        Scenario(
            "far", "400/200/100 Mbit/s at 10/40/80 ms one way", "<= 1.08", topology="far", congestion=("cubic", "bbr")
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
        ),
        Scenario(
            "shared",
            "two sources behind one bottleneck",
            "<= 1.02 of the better source alone",
            topology="shared",
            extra=("coget-best",),
        ),
        Scenario(
            "small",
            "10 MB at 40 ms one way",
            "<= the best source alone + 1 round trip",
            topology="small",
            size=10_000_000,
            rounds=5,
            extra=("coget-best",),
        ),
        Scenario("many", "16 sources", "<= 1.03", topology="many"),
        Scenario(
            "cross",
            "hetero; bursts of cross traffic take 3/4 of the two fastest links",
            "faster than every peer",
            events=tuple(CROSS),
        ),
        Scenario(
            "mixed",
            "hetero; the servers for coget use GridFTP and HTTPS alternately",
            "<= 1.02",
            schemes=("ftp", "https"),
        ),
        Scenario(
            "rerun",
            "hetero; the client gets SIGKILL at half of the bytes; then the same command runs again",
            "<= 1.02 of the bytes",
            rerun=True,
        ),
    )
}
