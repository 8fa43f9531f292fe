"""Combination of the CRCs of two strings to that of their concatenation, for CRCs whose library cannot do it. Pure.

A CRC is a polynomial over GF(2) modulo another one, P. In the reflected form, which all CRCs here have, the highest bit
of a value is the coefficient of x^0. The CRC of a concatenation is that of the second string, plus that of the first
one times x^n modulo P, where n is the number of the second string's bits. The inversions at the start and at the end of
these CRCs cancel each other out.
"""

from functools import lru_cache

__all__ = ["CRC32C", "CRC64NVME", "crc_combine"]

CRC32C = 32, 0x82F63B78
CRC64NVME = 64, 0x9A6C9329AC4BC9B5
"""Width in bits, and P without its highest term, reflected."""

Kind = tuple[int, int]


def crc_combine(kind: Kind, first: int, second: int, second_length: int) -> int:
    """Return the CRC of two concatenated strings, from the CRC of each and the second's length in bytes."""
    return _product(kind, _shift(kind, second_length), first) ^ second


def _product(kind: Kind, a: int, b: int) -> int:
    """Return the product of two polynomials modulo P."""
    width, polynomial = kind
    result, bit = 0, 1 << (width - 1)
    while a:
        if a & bit:
            result ^= b
            a ^= bit
        bit >>= 1
        b = b >> 1 ^ polynomial if b & 1 else b >> 1
    return result


@lru_cache(maxsize=1024)  # pieces of some lengths are frequent
def _shift(kind: Kind, nbytes: int) -> int:
    """Return x^(8 nbytes) modulo P."""
    result, power = 1 << (kind[0] - 1), 3  # x^0, and x^(2^3)
    while nbytes:
        if nbytes & 1:
            result = _product(kind, _power(kind, power), result)
        nbytes, power = nbytes >> 1, power + 1
    return result


@lru_cache(maxsize=256)
def _power(kind: Kind, exponent: int) -> int:
    """Return x^(2^exponent) modulo P."""
    if exponent == 0:
        return 1 << (kind[0] - 2)
    half = _power(kind, exponent - 1)
    return _product(kind, half, half)
