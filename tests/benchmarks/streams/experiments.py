"""The experiments of IQ-Paths, section VI, as data: streams, and the cross traffic of two paths.

Rates, frames and record sizes are the paper's. Its NLANR traces are not published any more; `traces` has others. The
means and deviations of the cross traffic follow from the paper's tables: the rates that plain fair queuing reached.
"""

from dataclasses import dataclass
from random import Random

from coalloc.guarantees.streams import Stream

__all__ = ["EXPERIMENTS", "FRAMES", "SHORTAGE", "Experiment", "Feed"]

FRAMES = 25
"""Frames, or records, per second."""
MBIT = 1e6 / 8


@dataclass(frozen=True)
class Feed:
    """The data of a stream.

    :param target: Mbit/s that the application wants
    :param packet: bytes of a packet
    :param guaranteed: Mbit/s that are guaranteed with 95 %; None for best effort
    :param paced: whether frames come one by one; otherwise all data is there from the beginning
    :param deviation: standard deviation of the rate from second to second, in Mbit/s
    """

    name: str
    target: float
    packet: int
    guaranteed: float | None = None
    paced: bool = True
    deviation: float = 0.0

    @property
    def stream(self) -> Stream:
        """Return the stream as the product knows it."""
        rate = None if self.guaranteed is None else self.guaranteed * MBIT
        peak = (self.target + 4 * self.deviation) * MBIT if self.deviation else None
        return Stream(self.name, rate, packet=self.packet, peak=peak)

    def frames(self, seconds: int, seed: int) -> list[int]:
        """Return the number of packets of each frame."""
        chance = Random(f"{self.name} {seed}")
        away, due, found = 0.0, 0.0, []
        for _ in range(seconds):
            away = 0.8 * away + 0.6 * chance.gauss(0, self.deviation)
            for _ in range(FRAMES):
                due += max(0.3 * self.target, self.target + away) * MBIT / FRAMES / self.packet
                found.append(int(due + 1e-6))
                due -= found[-1]
        return found


@dataclass(frozen=True)
class Experiment:
    """Streams over two paths.

    :param means: Mbit/s of cross traffic on each path
    :param deviations: standard deviation of it in the paper, in Mbit/s
    :param full: whether it is also repeated with the deviation that the trace has
    """

    title: str
    feeds: tuple[Feed, ...]
    means: tuple[float, float]
    deviations: tuple[float, float]
    full: bool = True


ATOM, BOND1 = Feed("Atom", 3.249, 8123, 3.249), Feed("Bond1", 22.148, 15820, 22.148)
EXPERIMENTS = {
    "II": Experiment("SmartPointer on one path", (ATOM, BOND1), (73.2, 71.5), (0.5, 6.0), full=False),
    "III": Experiment("SmartPointer", (ATOM, BOND1, Feed("Bond2", 70.34, 14068)), (54.2, 61.4), (8.0, 3.0)),
    "IV": Experiment(
        "GridFTP",
        (
            Feed("DT1", 34.56, 17280, 34.56, paced=False),
            Feed("DT2", 25.6, 16000, 25.6, paced=False),
            Feed("DT3", 76.8, 16000, paced=False),
        ),
        (31.5, 31.5),
        (4.0, 4.0),
    ),
    "V": Experiment(
        "MPEG-4 FGS",
        (Feed("Base", 1.482, 500, 1.22, deviation=0.16), Feed("Enhanced", 11.2901, 1000)),
        (93.85, 93.85),
        (2.05, 2.05),
        full=False,
    ),
}
SHORTAGE = Experiment(
    "three paths",
    (
        Feed("one", 22.5, 15000, 22.5, paced=False),
        Feed("two", 37.5, 15000, 37.5, paced=False),
        Feed("rest", 90.0, 15000, paced=False),
    ),
    (0.0, 0.0),
    (0.0, 0.0),
)
"""Streams of 15 and 25 % of the mean of three paths of 50 Mbit/s on average, which often have less."""
