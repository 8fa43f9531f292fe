"""The scenarios: their permanent names, what the network does, and the bar for coget with default options. Data only.

Topologies are those of `tests/testbed/topologies`; sources are the hosts s1, s2, ..., the client is `client`. Moments
are told by the share of the file that the ideal has by then, so that they are the same seconds for all rivals: a
network does not wait for anybody. After its last event a network stays as it is.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["SCENARIOS", "Event", "Scenario"]

Act = Literal["rate", "cross", "kill", "hole"]


@dataclass(frozen=True, slots=True)
class Event:
    """An event at a source, at the moment when the ideal has `share` of the file.

    `rate`: its link carries `left` of its rate. `cross`: other traffic takes all but `left` of it. `kill`: SIGKILL to
    its server. `hole`: its packets vanish, both ways.
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
    """One line of the results.

    :param says: what it is, in a sentence
    :param bar: what coget is to reach
    :param congestion: congestion controls of the servers; the scenario runs with each
    :param loss: of each source's link, both ways
    :param size: of the file, bytes
    :param rounds: how many runs of each rival make a median
    :param schemes: what the sources speak to coget, in turn
    :param extra: rivals that only this scenario needs
    :param rerun: the client is killed at half, and run again
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
    """Return the on and off times of cross traffic: `mean` of the file each time, exponentially distributed."""
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
            "slow", "hetero; the fastest drops to a tenth at 50 %", "<= 1.02", events=(Event(0.5, "s1", "rate", 0.1),)
        ),
        Scenario(
            "late", "hetero; the fastest drops to a tenth at 90 %", "<= 1.05", events=(Event(0.9, "s1", "rate", 0.1),)
        ),
        Scenario(
            "recover",
            "hetero; the fastest drops to a tenth at 50 %, and comes back at 75 %",
            "<= 1.03",
            events=(Event(0.5, "s1", "rate", 0.1), Event(0.75, "s1", "rate", 1.0)),
        ),
        Scenario(
            "kill", "hetero; the fastest's server gets SIGKILL at 50 %", "<= 1.02", events=(Event(0.5, "s1", "kill"),)
        ),
        Scenario("hole", "hetero; the fastest's packets vanish at 50 %", "<= 1.03", events=(Event(0.5, "s1", "hole"),)),
        Scenario("strag", "400/200/100/2 Mbit/s", "<= 1.03", topology="strag"),
        Scenario(
            "far", "400/200/100 Mbit/s at 10/40/80 ms one way", "<= 1.08", topology="far", congestion=("cubic", "bbr")
        ),
        Scenario(
            "farloss",
            "far, with 0.1 % loss",
            "<= 1.10, never behind globus-url-copy -p 8",
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
            "cross", "hetero; bursts take 3/4 of the two fastest links", "ahead of every peer", events=tuple(CROSS)
        ),
        Scenario(
            "mixed",
            "hetero; GridFTP and HTTPS replicas in turn for coget, HTTP for the others",
            "<= 1.02",
            schemes=("ftp", "https"),
        ),
        Scenario(
            "rerun",
            "hetero; SIGKILL to the client at half, and the same command again",
            "<= 1.02 of the bytes",
            rerun=True,
        ),
    )
}
