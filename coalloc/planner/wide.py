"""Products of 63-bit integers, many at once: NumPy has no integers of 128 bits, and floats would not be exact."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["exact_sum", "floor_shifted"]

Integers = NDArray[np.int64]
_LOW = np.uint64(0xFFFF_FFFF)
_HALF = np.uint64(32)


def floor_shifted(values: Integers, factor: int, shift: int, most: int) -> Integers:
    """min(floor(value x factor / 2^shift), most) for each value, exactly.

    :param values: from 0
    :param factor: 0 to 2^63 - 1
    :param most: 1 to 2^62
    """
    if not factor:
        return np.zeros_like(values)
    # value >= enough gives value x factor >= most x 2^shift, so that the result is `most` in any case; all others have
    # a product below most x 2^shift + factor, and a result that fits.
    enough = -(-(most << shift) // factor)
    small = np.minimum(values, min(enough, 2**63 - 1))
    if enough * factor < 2**63:
        found: Integers = np.minimum((small * factor) >> shift, most)
    else:
        found = np.minimum(_long_product(small, factor, shift), np.uint64(most)).astype(np.int64)
    return found


def _long_product(values: Integers, factor: int, shift: int) -> NDArray[np.uint64]:
    # As on paper, with digits of 32 bits: v = a 2^32 + b, f = c 2^32 + d, v f = ac 2^64 + (ad + bc) 2^32 + bd.
    # a, c < 2^31, so that ad + (bd >> 32) + (bc mod 2^32) < 2^63 - 2^31 + 2^32 + 2^32 < 2^64: no sum overflows.
    v = values.astype(np.uint64)
    a, b = v >> _HALF, v & _LOW
    c, d = np.uint64(factor >> 32), np.uint64(factor & 0xFFFF_FFFF)
    least, cross = b * d, b * c
    middle = a * d + (least >> _HALF) + (cross & _LOW)
    high = a * c + (middle >> _HALF) + (cross >> _HALF)
    low = (middle << _HALF) | (least & _LOW)
    # The result is at most most + factor / 2^shift < 2^64: nothing is shifted out.
    found: NDArray[np.uint64]
    if shift >= 64:
        found = high >> np.uint64(min(shift - 64, 63))
    else:
        found = (high << np.uint64(64 - shift)) | (low >> np.uint64(shift)) if shift else low
    return found


def exact_sum(values: Integers) -> int:
    """The sum, however large: the halves of fewer than 2^31 numbers cannot overflow."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFF_FFFF).sum())
