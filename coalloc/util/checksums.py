"""Checksums: the supported algorithms, the notation of values, and the checksum of two concatenated strings.

Algorithm names are in lower case without dashes (`sha256`), values in lower-case hex of full length. The callers decide
which checksum a transfer needs, and how to handle a wrong one.
"""

import re
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from typing import NamedTuple, Protocol

from zlib_ng import zlib_ng

from coalloc.errors import UsageError
from coalloc.model.checksums import Checksum
from coalloc.util.crc_combination import CRC32C, CRC64NVME, crc_combine

__all__ = [
    "ALGORITHMS",
    "ROLLING",
    "Hasher",
    "RollingChecksum",
    "adler32_combine",
    "checksum",
    "crc32_combine",
    "hasher",
    "normalise",
    "parse",
    "rolling",
]

ALGORITHMS = {
    "adler32": 8,
    "crc32": 8,
    "crc32c": 8,
    "crc64nvme": 16,
    "md5": 32,
    "sha1": 40,
    "sha224": 56,
    "sha256": 64,
    "sha384": 96,
    "sha512": 128,
}
"""Supported algorithms, the weakest first, with the number of hex digits of their values."""

ROLLING = ("adler32", "crc32", "crc32c", "crc64nvme")
"""The algorithms of `rolling`."""

_ADLER_BASE = 65521


class Hasher(Protocol):
    """An object that computes a digest, with the methods of hashlib's objects that coget uses."""

    def update(self, data: memoryview, /) -> None:
        """Process the next bytes."""
        ...

    def hexdigest(self) -> str:
        """Return the digest of all bytes so far, in lower-case hex."""
        ...


class RollingChecksum(NamedTuple):
    """A checksum that can be continued and combined.

    :param start: the checksum of no bytes
    :param update: `update(data, value)`: return the checksum of the bytes summed up in `value`, followed by `data`
    :param combine: `combine(first, second, length)`: return the checksum of two concatenated strings, from the checksum
        of each and the second's length in bytes
    """

    start: int
    update: Callable[[memoryview, int], int]
    combine: Callable[[int, int, int], int]


@cache
def rolling(algorithm: str) -> RollingChecksum:
    """Return the functions of one of `ROLLING`."""
    match algorithm:
        case "adler32":
            return RollingChecksum(1, zlib_ng.adler32, adler32_combine)
        case "crc32":
            return RollingChecksum(0, zlib_ng.crc32, crc32_combine)
        case "crc32c":
            import google_crc32c  # imported here because most transfers do not need it

            def crc32c(data: memoryview, value: int) -> int:
                return int(google_crc32c.extend(value, bytes(data)))  # it accepts only bytes

            return RollingChecksum(0, crc32c, partial(crc_combine, CRC32C))
        case "crc64nvme":
            from awscrt.checksums import crc64nvme  # imported here because it is optional, and takes 0.1 s

            return RollingChecksum(0, crc64nvme, partial(crc_combine, CRC64NVME))
    raise ValueError(algorithm)


class _RollingHasher:
    """A rolling checksum with the interface of a hashlib object."""

    def __init__(self, algorithm: str) -> None:
        self._digits = ALGORITHMS[algorithm]
        self._value, self._update, _ = rolling(algorithm)

    def update(self, data: memoryview, /) -> None:
        self._value = self._update(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:0{self._digits}x}"


def hasher(algorithm: str) -> Hasher:
    """Return a new hasher for one of `ALGORITHMS`."""
    if algorithm in ROLLING:
        return _RollingHasher(algorithm)
    import hashlib  # loads OpenSSL, which most transfers do not need

    return hashlib.new(algorithm, usedforsecurity=False)


def normalise(name: str) -> str | None:
    """Return the algorithm with this name, as users, servers or Metalinks write it; None if it is not supported here.

    >>> normalise("SHA-256"), normalise("ADLER32"), normalise("whirlpool")
    ('sha256', 'adler32', None)
    """
    plain = _plain(name)
    return plain if plain in ALGORITHMS and not _lacks_package(plain) else None


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "").replace("_", "")


@cache
def _lacks_package(algorithm: str) -> bool:
    """Return whether the package of an optional algorithm is not installed."""
    return algorithm == "crc64nvme" and find_spec("awscrt") is None


def checksum(name: str, value: str) -> Checksum:
    """Return a checksum from an algorithm's name and a hex value in upper or lower case.

    :raises UsageError: if the algorithm is unknown or its package missing, or the value is not hex of the right length
    """
    algorithm = normalise(name)
    if algorithm is None and _plain(name) in ALGORITHMS:
        raise UsageError(f"{_plain(name)} needs the package awscrt", "install it: pip install 'coget[crc64]'")
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
