"""The number of lanes that helps between two collections; pure.

One more lane is tried while that brings more bytes, or files, per second; one is given up if it did not; the number is
halved when attempts fail. Each step is kept with its reason. It follows the optimizer of FTS (Karavakis et al., CHEP
2019), which climbs in the same way on throughput and success.
"""

from typing import NamedTuple

__all__ = ["FIRST", "MOST", "PairTraffic", "decide"]

FIRST, MOST = 4, 16
GAIN = 1.05
"""Factor by which the rate has to grow for one more lane to stay."""
FAILING = 0.2
"""Share of failed attempts from which on the number of lanes is halved."""
AGAIN = 300.0
"""Seconds after which one more lane is tried again, since networks change."""


class PairTraffic(NamedTuple):
    """The traffic of a pair since the last decision.

    :param rate: bytes per second, with a megabyte added for each file, since small files cost time, too
    :param failures: share of attempts that failed
    :param busy: whether all its lanes were in use
    """

    rate: float
    failures: float
    busy: bool


def decide(concurrency: int, before: PairTraffic | None, tried: int, age: float, now: PairTraffic) -> tuple[int, str]:
    """Return the next number of lanes, and the reason.

    :param before: traffic when the number was last changed
    :param tried: size of that change
    :param age: seconds since that change
    :param now: current traffic
    """
    if now.failures >= FAILING:
        return max(1, concurrency // 2), f"{now.failures:.0%} of attempts failed: half as many lanes"
    if not now.busy:
        return concurrency, "not all lanes are in use"
    if before is None or before.rate <= 0:
        return min(MOST, concurrency + 1), "no earlier rate to compare with: trying one more lane"
    ratio = now.rate / before.rate
    if tried > 0 and ratio < GAIN:
        return max(1, concurrency - 1), f"one more lane brought {ratio - 1:+.0%}: removed again"
    if tried > 0:
        return min(MOST, concurrency + 1), f"one more lane brought {ratio - 1:+.0%}: trying another"
    if age >= AGAIN:
        return min(MOST, concurrency + 1), f"{age:.0f} s ago a further lane did not help: trying it again"
    return concurrency, "a further lane did not help"
