"""The gain of several sources at once over the best single one; pure."""

import math
from collections.abc import Sequence

from broker.reports.document import Fact

__all__ = ["FEWEST", "gained"]

FEWEST = 10
"""Downloads below which a mean is not reliable."""


def gained(label: str, beside: Sequence[tuple[float, float]], days: int) -> Fact:
    """Return the geometric mean of the speed-ups of downloads; a fact without a value if there are too few.

    :param beside: for each download, the seconds from the best single source in hindsight, and the actual seconds
    :param days: period that the downloads are of

    >>> gained("Gain", [(4.0, 2.0), (2.0, 2.0)] * 5, 28).value
    1.414
    """
    known = [math.log(single / seconds) for single, seconds in beside if single > 0 and seconds > 0]
    if len(known) < FEWEST:
        return Fact(label, None, "factor", f"{len(known)} downloads in {days} days are too few to say")
    mean = math.exp(math.fsum(known) / len(known))
    said = f"geometric mean of {len(known):,} downloads in {days} days, each beside its best single source in hindsight"
    return Fact(label, round(mean, 3), "factor", said)
