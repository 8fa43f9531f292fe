"""Names in certificates: their Globus notation, and the hashes that name the files of authorities. No I/O."""

import hashlib
import re
from collections.abc import Iterator

from coalloc.engine.gridftp.gsi.der import Element, elements, encoded, first

__all__ = ["ambiguous", "globus_name", "hashes"]

SHORT = {
    "1.2.840.113549.1.9.1": "emailAddress",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
    "2.5.4.3": "CN",
    "2.5.4.4": "SN",
    "2.5.4.5": "serialNumber",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "street",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.12": "title",
    "2.5.4.13": "description",
    "2.5.4.17": "postalCode",
    "2.5.4.41": "name",
    "2.5.4.42": "GN",
    "2.5.4.43": "initials",
    "2.5.4.44": "generationQualifier",
    "2.5.4.46": "dnQualifier",
    "2.5.4.65": "pseudonym",
    "2.5.4.97": "organizationIdentifier",
}
"""OpenSSL's names of attributes."""
SEQUENCE, SET, UTF8 = 0x30, 0x31, 0x0C
ENCODINGS = {UTF8: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1A: "ascii"}
ENCODINGS |= {0x1C: "utf-32-be", 0x1E: "utf-16-be"}
"""Encodings of string types by tag; values of these types are compared without regard to case and blanks."""


def globus_name(name: bytes) -> str:
    """Return a name (DER) in Globus notation: /C=CH/O=Grid/CN=se1.example."""
    return "".join(f"/{kind}={value}" for kind, value in _parts(name))


def ambiguous(name: bytes) -> bool:
    """Return whether a value in a name (DER) could be read as further parts of the name in Globus notation."""
    return any(re.search(r"/[A-Za-z0-9.]+=", value) for _, value in _parts(name))


def hashes(name: bytes) -> tuple[str, str]:
    """Return the stems of an authority's file names: the hash of its name by OpenSSL, and by OpenSSL before 1.0."""
    new = hashlib.sha1(_canonical(name), usedforsecurity=False).digest()
    old = hashlib.md5(name, usedforsecurity=False).digest()
    return _stem(new), _stem(old)


def _stem(digest: bytes) -> str:
    return f"{int.from_bytes(digest[:4], 'little'):08x}"


def _parts(name: bytes) -> Iterator[tuple[str, str]]:
    for relative in elements(first(name).content):
        for pair in elements(relative.content):
            kind, value = elements(pair.content)
            number = _dotted(kind.content)
            yield SHORT.get(number, number), value.content.decode(ENCODINGS.get(value.tag, "latin-1"), errors="replace")


def _dotted(content: bytes) -> str:
    numbers, number = [], 0
    if not content or content[-1] & 0x80:
        raise ValueError("no object identifier")
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _canonical(name: bytes) -> bytes:
    """Return the form of a name that OpenSSL hashes: text as lower-case UTF-8 with single blanks, without header."""
    canonical = b""
    for relative in elements(first(name).content):
        pairs = [tuple(elements(pair.content)) for pair in elements(relative.content)]
        plain = sorted(encoded(SEQUENCE, kind.whole + _text(value)) for kind, value in pairs)
        canonical += encoded(SET, b"".join(plain))
    return canonical


def _text(value: Element) -> bytes:
    encoding = ENCODINGS.get(value.tag)
    if encoding is None:
        return value.whole
    text = value.content.decode(encoding, errors="replace").encode()
    return encoded(UTF8, b" ".join(text.split()).lower())
