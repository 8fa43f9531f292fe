"""Checksums: the supported algorithms, the notation of values, and the checksum of two concatenated strings.

Algorithm names are in lower case without dashes (`sha256`), values in lower-case hex of full length. The callers decide
which checksum a transfer needs, and how to handle a wrong one.
"""

import re
from collections.abc import Callable
from typing import Protocol

from zlib_ng import zlib_ng

from coalloc.errors import UsageError
from coalloc.model import Checksum

__all__ = ["ALGORITHMS", "Hasher", "adler32_combine", "checksum", "crc32_combine", "hasher", "normalise", "parse"]

ALGORITHMS = {
    "adler32": 8,
    "crc32": 8,
    "md5": 32,
    "sha1": 40,
    "sha224": 56,
    "sha256": 64,
    "sha384": 96,
    "sha512": 128,
}
"""Supported algorithms, with the number of hex digits of their values."""

_ADLER_BASE = 65521


class Hasher(Protocol):
    """An object that computes a digest, with the methods of hashlib's objects that coget uses."""

    def update(self, data: memoryview, /) -> None:
        """Process the next bytes."""
        ...

    def hexdigest(self) -> str:
        """Return the digest of all bytes so far, in lower-case hex."""
        ...


class _Rolling:
    """A 32-bit sum with the interface of a hashlib object."""

    def __init__(self, function: Callable[[memoryview, int], int], start: int) -> None:
        self._function = function
        self._value = start

    def update(self, data: memoryview, /) -> None:
        self._value = self._function(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def hasher(algorithm: str) -> Hasher:
    """Return a new hasher for one of `ALGORITHMS`."""
    if algorithm == "adler32":
        return _Rolling(zlib_ng.adler32, 1)
    if algorithm == "crc32":
        return _Rolling(zlib_ng.crc32, 0)
    import hashlib  # loads OpenSSL, which most transfers do not need

    return hashlib.new(algorithm, usedforsecurity=False)


def normalise(name: str) -> str | None:
    """Return the algorithm with this name, as users, servers or Metalinks write it; None if it is not supported.

    >>> normalise("SHA-256"), normalise("ADLER32"), normalise("whirlpool")
    ('sha256', 'adler32', None)
    """
    plain = name.strip().lower().replace("-", "").replace("_", "")
    return plain if plain in ALGORITHMS else None


def checksum(name: str, value: str) -> Checksum:
    """Return a checksum from an algorithm's name and a hex value in upper or lower case.

    :raises UsageError: if the algorithm is unknown, or the value is not hex of the right length
    """
    algorithm = normalise(name)
    if algorithm is None:
        raise UsageError(f"unknown checksum algorithm '{name}'", f"use one of {', '.join(ALGORITHMS)}")
    digits, plain = ALGORITHMS[algorithm], value.strip().lower()
    if not re.fullmatch(f"[0-9a-f]{{{digits}}}", plain):
        raise UsageError(
            f"invalid {algorithm} '{value}': {len(plain)} characters instead of {digits} hex digits",
            "copy the complete value again from the file's publisher",
        )
    return Checksum(algorithm, plain)


def parse(text: str) -> Checksum:
    """Parse a checksum written as "ALGORITHM:HEX".

    >>> parse("Adler-32:0A1B2C3D")
    Checksum(algorithm='adler32', value='0a1b2c3d')

    :raises UsageError: if there is no colon, or as in `checksum`
    """
    name, colon, value = text.partition(":")
    if not colon:
        raise UsageError(f"'{text}' is not a checksum", "write it as ALGORITHM:HEX, for example md5:<32 hex digits>")
    return checksum(name, value)


def adler32_combine(first: int, second: int, second_length: int) -> int:
    """Return the adler32 of two concatenated strings, from the adler32 of each and the second's length in bytes.

    The adler32 of d1..dn is (A, B) mod 65521, where A = 1 + d1 + ... + dn, and B is the sum of the n values that A has
    after each byte. Let (A1, B1) be that of the first string, and (A2, B2) that of the second, of n bytes. In the
    concatenation, A is A1 instead of 1 when the second string begins, so A1 - 1 higher throughout it: A ends as
    A2 + (A1 - 1), and B as B1 + B2 + n (A1 - 1).
    """
    head = (first & 0xFFFF) - 1
    a = (head + (second & 0xFFFF)) % _ADLER_BASE
    b = ((first >> 16) + (second >> 16) + second_length * head) % _ADLER_BASE
    return b << 16 | a


def crc32_combine(first: int, second: int, second_length: int) -> int:
    """Return the crc32 of two concatenated strings, from the crc32 of each and the second's length in bytes."""
    return zlib_ng.crc32_combine(first, second, second_length)
