"""Adaptation of the number of lanes between two collections.

A lane is added while this increases the rate of bytes or files; it is removed again if it did not; and the number is
halved if too many attempts fail. Each step is stored with its reason. This hill climbing follows the optimizer of FTS
(Karavakis et al., CHEP 2019).
"""

from typing import NamedTuple

__all__ = ["FIRST", "MOST", "PairTraffic", "decide"]

FIRST, MOST = 4, 16
GAIN = 1.05
"""Factor by which the rate must grow for an added lane to stay."""
FAILING = 0.2
"""Share of failed attempts from which the number of lanes is halved."""
AGAIN = 300.0
"""Seconds before another lane is tried again, since networks change."""


class PairTraffic(NamedTuple):
    """The traffic of a pair of collections since the last decision.

    :param rate: bytes per second; each file counts 1 MiB more than its size, since small files take time, too
    :param failures: share of failed attempts, from 0 to 1
    :param busy: whether all lanes of the pair were in use
    """

    rate: float
    failures: float
    busy: bool


def decide(concurrency: int, before: PairTraffic | None, tried: int, age: float, now: PairTraffic) -> tuple[int, str]:
    """Return the new number of lanes, and the reason for it.

    :param before: traffic when the number last changed; None if it never did
    :param tried: last change of the number
    :param age: seconds since the last change
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
