"""The transfers of the demonstration: rates that vary with the hour, links that change, and failures."""

import math
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from broker.demo.world import DAY, PEOPLE, PROBER, WEEKS, DemoLink, World
from broker.models.history import Observed

__all__ = ["DemoTransfer", "rate", "transfers"]

LASTS = 0.85
"""Correlation between the network states of a link's successive transfers."""
RAMP = 1.0
"""Seconds lost until the full rate is reached, per second of set-up time."""
WORSE = 5.0
"""Factor on the scatter of a "worse" link's rates since the start of the last full week."""
WEEK = 7 * DAY
UNUSED = 24 * DAY
PROBED = 64_000_000
SIZES = ((2e6, 0.08), (40e6, 0.12), (400e6, 0.35), (1.6e9, 0.3), (5e9, 0.15))
"""File sizes in bytes, each with its relative frequency."""
FAULTS = (
    ("failed", "no byte came for 30 seconds"),
    ("failed", "the connection was lost: Connection reset by peer"),
    ("failed", "421 Too many connections, try again later"),
    ("corrupt", "its checksum is not that of the dataset"),
)


class DemoTransfer(NamedTuple):
    """A transfer with the subject that reported it."""

    subject: str
    observed: Observed


def transfers(made: World, seed: int, end: float) -> list[DemoTransfer]:
    """Return all transfers of the eight weeks before the end, ordered by their own end.

    One user a day uses each link, so that reports by day and user keep the order of each link's transfers.
    """
    found = []
    for number, link in enumerate(made.links):
        chance = Random(f"traffic {seed} {number}")
        found += [each for each in _of_link(link, f"demo.{number}", chance, end) if each.observed.ended <= end]
    return sorted(found, key=lambda each: each.observed.ended)


def rate(link: DemoLink, age: float, gust: float, nbytes: int) -> float:
    """Return the bytes per second of a transfer.

    :param age: seconds from the transfer's start to the end of the history
    :param gust: state of the network: 0 is normal, most values are between -2 and 2
    """
    busy = (1 - math.cos(2 * math.pi * age / DAY)) / 2
    slower = math.log(3) * (1 - age / (WEEKS * WEEK)) if link.story == "drifting" else 0.0
    large = link.rate * math.exp(link.spread * gust - link.swing * busy - slower)
    return nbytes / (nbytes / large + RAMP * min(link.setup, 1.0))


def _of_link(link: DemoLink, key: str, chance: Random, end: float) -> Iterator[DemoTransfer]:
    gust = 0.0
    for number, (subject, age) in enumerate(_begun(link, chance)):
        gust = LASTS * gust + math.sqrt(1 - LASTS**2) * chance.gauss(0, 1)
        nbytes = PROBED if subject == PROBER else _size(chance)
        worse = WORSE if link.story == "worse" and end - age > (end // WEEK - 1) * WEEK else 1.0
        seconds = nbytes / rate(link, age, worse * (gust + 0.4 * chance.gauss(0, 1)), nbytes)
        setup = link.setup * chance.lognormvariate(0, 0.2)
        fault = _fault(nbytes, chance) if chance.random() < link.failing else {"bytes": nbytes}
        busy = setup + seconds * int(fault["bytes"]) / nbytes
        began = end - age
        observed = Observed(
            id=f"{key}.{number}",
            source=link.source.source,
            sink=link.sink,
            started=began,
            ended=began + max(busy, 0.01) * chance.uniform(1.0, 1.05),
            busy_seconds=busy,
            setup_seconds=setup,
            ranges=1,
            streams=1 if nbytes < 100e6 else 4,
            concurrency=chance.choice((0, 0, 1, 2)),
            **fault,
        )
        yield DemoTransfer(subject, observed)


def _begun(link: DemoLink, chance: Random) -> Iterator[tuple[str, float]]:
    """Yield the user of each transfer, and the seconds from its start to the end of the history, oldest first."""
    for day in range(WEEKS * 7, 0, -1):
        subject = PROBER if link.story == "probed" else chance.choice(PEOPLE)
        count = math.floor(link.a_day * chance.uniform(0.5, 1.5) + chance.random())
        for age in sorted(((day - chance.random()) * DAY for _ in range(count)), reverse=True):
            if link.story != "stale" or age > UNUSED:
                yield subject, age


def _size(chance: Random) -> int:
    (usual,) = chance.choices([size for size, _ in SIZES], [often for _, often in SIZES])
    return max(1, int(usual * chance.lognormvariate(0, 0.5)))


def _fault(nbytes: int, chance: Random) -> dict[str, Any]:
    outcome, error = chance.choice(FAULTS)
    came = nbytes if outcome == "corrupt" else int(nbytes * chance.random())
    return {"outcome": outcome, "error": error, "bytes": came}
