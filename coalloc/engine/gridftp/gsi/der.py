"""Parser of certificates and revocation lists without a library: names, serial numbers, dates (DER). No I/O.

This module verifies no signatures. OpenSSL has verified the certificates. The lists come from the directory of
authorities; a user who can write to it could as well add an authority.
"""

from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime
from re import DOTALL, search
from typing import NamedTuple

__all__ = [
    "Element",
    "RevocationList",
    "X509Certificate",
    "certificate",
    "elements",
    "encoded",
    "first",
    "from_pem",
    "revocation_list",
]

INTEGER, SEQUENCE, UTC_TIME, TIME, VERSION = 0x02, 0x30, 0x17, 0x18, 0xA0


class Element(NamedTuple):
    """A DER element: its tag, its content, and its whole encoding."""

    tag: int
    content: bytes
    whole: bytes


class X509Certificate(NamedTuple):
    """The relevant fields of a certificate; names are DER."""

    serial: bytes
    issuer: bytes
    subject: bytes


class RevocationList(NamedTuple):
    """The relevant fields of a revocation list; serial numbers are encoded as in certificates."""

    issuer: bytes
    begin: datetime
    end: datetime | None
    serials: frozenset[bytes]

    def is_current(self, now: datetime) -> bool:
        return self.begin <= now and (self.end is None or now < self.end)


def certificate(der: bytes) -> X509Certificate:
    """Parse a certificate.

    :raises ValueError: when it is malformed
    """
    fields = _signed(der)
    if fields[0].tag == VERSION:
        fields = fields[1:]
    serial, _, issuer, _, subject = fields[:5]
    return X509Certificate(serial.content, issuer.whole, subject.whole)


def revocation_list(der: bytes) -> RevocationList:
    """Parse a revocation list.

    :raises ValueError: when it is malformed
    """
    fields = _signed(der)
    if fields[0].tag == INTEGER:
        fields = fields[1:]
    _, issuer, begin, *rest = fields
    end = rest.pop(0) if rest and rest[0].tag in (UTC_TIME, TIME) else None
    revoked = elements(rest[0].content) if rest and rest[0].tag == SEQUENCE else iter(())
    serials = frozenset(first(each.content).content for each in revoked)
    return RevocationList(issuer.whole, _moment(begin), end and _moment(end), serials)


def from_pem(content: bytes, kind: bytes) -> bytes:
    """Return the first object of a kind (such as X509 CRL) in a PEM file; return other content, DER, unchanged.

    :raises ValueError: when a PEM file has no such object
    """
    if b"-----BEGIN" not in content:
        return content
    found = search(b"-----BEGIN " + kind + rb"-----(.*?)-----END " + kind + b"-----", content, DOTALL)
    if found is None:
        raise ValueError(f"no {kind.decode()}")
    return b64decode(found[1])


def elements(der: bytes) -> Iterator[Element]:
    """Yield consecutive elements.

    :raises ValueError: when an element is cut short, or has no definite length
    """
    at = 0
    while at < len(der):
        begin, length = at + 2, der[at + 1] if at + 1 < len(der) else 0x80
        definite = length != 0x80
        if length & 0x80:
            begin += length & 0x7F
            length = int.from_bytes(der[at + 2 : begin], "big")
        if not definite or begin + length > len(der):
            raise ValueError("DER is cut short, or has no definite length")
        yield Element(der[at], der[begin : begin + length], der[at : begin + length])
        at = begin + length


def first(der: bytes) -> Element:
    """Return the first element.

    :raises ValueError: when there is none
    """
    found = next(elements(der), None)
    if found is None:
        raise ValueError("no element")
    return found


def encoded(tag: int, content: bytes) -> bytes:
    """Return the encoding of an element."""
    length = len(content)
    if length < 0x80:
        return bytes((tag, length)) + content
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(size))) + size + content


def _signed(der: bytes) -> list[Element]:
    """Return the fields of the signed part of a certificate or list."""
    outer = first(der)
    inner = first(outer.content) if outer.tag == SEQUENCE else outer
    fields = list(elements(inner.content)) if inner.tag == SEQUENCE else []
    if len(fields) < 3:
        raise ValueError("no signed object")
    return fields


def _moment(element: Element) -> datetime:
    text = element.content.decode("ascii")
    if element.tag == UTC_TIME:  # RFC 5280: two digits of the year, from 1950 to 2049
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
