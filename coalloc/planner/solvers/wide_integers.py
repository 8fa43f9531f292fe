"""Products and sums of integers that do not fit in 64 bits, many at once."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["exact_sum", "product"]

Integers = NDArray[np.int64]


def product(values: Integers, factor: int, shift: int, most: int) -> Integers:
    """Return min(value x factor / 2^shift, most) for each value, rounded down: exact for shift 0, else possibly less.

    The error is less than 1 + 2^-49 times the result.

    :param values: numbers from 0
    :param factor: 0 to 2^63 - 1
    :param most: 1 to 2^62
    """
    if shift:
        # Three roundings to 53 bits, and that of the product, each by a factor of 1 + 2^-53 at most: together less than
        # the 2^-50 that is subtracted.
        share = factor / 2**shift * (1 - 2.0**-50)
        found = np.minimum(values * share, 2.0**62).astype(np.int64)
    else:
        # If value >= enough, the result is `most`. Other products are below most + factor < 2^64.
        enough = min(-(-most // factor), 2**63 - 1) if factor else 2**63 - 1
        small = np.minimum(values, enough).view(np.uint64)
        np.multiply(small, np.uint64(factor), out=small)
        found = np.minimum(small, np.uint64(most), out=small).view(np.int64)
    least: Integers = np.minimum(found, most, out=found)
    return least


def exact_sum(values: Integers) -> int:
    """Return the exact sum, of any size: sums of upper and lower halves cannot overflow for less than 2^31 numbers."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFF_FFFF).sum())
