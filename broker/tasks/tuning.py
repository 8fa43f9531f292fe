"""How many lanes between two collections help; pure.

One more is tried while that brings more bytes, or files, per second; one is given up where it did not; when attempts
fail it is halved. Each step has its reason, which is kept. After FTS's optimizer (Karavakis et al., CHEP 2019), which
climbs in the same way on throughput and success.
"""

from typing import NamedTuple

__all__ = ["FIRST", "MOST", "Seen", "decide"]

FIRST, MOST = 4, 16
GAIN = 1.05
"""By so much the rate has to grow for a further lane to stay."""
FAILING = 0.2
"""Share of attempts that fail from which on less is tried."""
AGAIN = 300.0
"""Seconds after which one more is tried once more: networks change."""


class Seen(NamedTuple):
    """What a pair did since the last decision.

    :param rate: bytes per second, each file counted as if it had a megabyte more: small ones cost time, too
    :param failures: the share of attempts that failed
    :param busy: whether it had all its lanes in use
    """

    rate: float
    failures: float
    busy: bool


def decide(concurrency: int, before: Seen | None, tried: int, age: float, now: Seen) -> tuple[int, str]:
    """The next number of lanes, and why.

    :param before: what was seen when the number was last changed
    :param tried: by how much it was changed then
    :param age: seconds since
    """
    if now.failures >= FAILING:
        return max(1, concurrency // 2), f"{now.failures:.0%} of attempts failed: half as many lanes"
    if not now.busy:
        return concurrency, "not all lanes are in use"
    if before is None or before.rate <= 0:
        return min(MOST, concurrency + 1), "nothing to compare with yet: one more is tried"
    ratio = now.rate / before.rate
    if tried > 0 and ratio < GAIN:
        return max(1, concurrency - 1), f"one more lane brought {ratio - 1:+.0%}: it is given up"
    if tried > 0:
        return min(MOST, concurrency + 1), f"one more lane brought {ratio - 1:+.0%}: another is tried"
    if age >= AGAIN:
        return min(MOST, concurrency + 1), f"{age:.0f} s ago a further lane did not help: it is tried again"
    return concurrency, "a further lane did not help"
