"""The journal's bytes: records written while a file is fetched, and their evaluation afterwards. Pure.

Assumptions about crashes
-------------------------
- A process that dies at any instant, also by SIGKILL, leaves all earlier records in the file, and a part or nothing
  of the record being written. Data are written before their record.
- A power cut may lose or reorder all unsynced writes, of the journal and of the data: a record may exist without
  its data. Nothing is synced while a transfer runs. Instead, each extent has its adler32, and is read again before
  it is trusted.
- If checksums are off, extents have no adler32. They are trusted only during the boot in which they were written
  (the header has its identifier), as no power cut can have happened.
- A disk that fills up may shorten a record; the writer overwrites it with the next one.
- A replica's version is recorded when it is first known, which for most replicas is after the header was written.
- Bytes may rot. Each record has its own crc32; from the first wrong record on, the journal is not trusted.

The bytes of lost records are fetched again. If a `revoke` is lost, wrong bytes come back as extents that look right;
the verification of the whole file finds them again.

The file
--------
    "coget journal 1\\n"       16 bytes; the number is the version of all that follows
    record                    the header, once
    record ...                extents, revocations and versions, in order of time

A record (integers are little-endian):

    +-------+--------+------+-----------------+
    | crc32 | length | kind | body            |
    | u32   | u32    | u8   | `length` bytes  |
    +-------+--------+------+-----------------+
    crc32 is of all bytes that follow it in the record.
"""

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from zlib_ng import zlib_ng

from coalloc.model.checksums import Checksum, Extent
from coalloc.util.intervals import Intervals

__all__ = [
    "Contents",
    "Header",
    "JournalOrigin",
    "decode",
    "encode_extent",
    "encode_header",
    "encode_origin",
    "encode_revoke",
]

MAGIC = b"coget journal "
PREAMBLE = MAGIC + b"1\n"
HEADER, EXTENT, REVOKE, ORIGIN = 0, 1, 2, 3

_FRAME = struct.Struct("<IIB")
_CRC = struct.Struct("<I")
_EXTENT = struct.Struct("<QQII?")
_REVOKE = struct.Struct("<QQ")


class JournalOrigin(NamedTuple):
    """A replica in the journal: its URL without password, and its version, as far as known.

    :param validator: a value that changes with the file (ETag, MDTM)
    :param checksums: the server's checksums of the whole file
    """

    url: str
    validator: str | None = None
    checksums: tuple[Checksum, ...] = ()


class Header(NamedTuple):
    """The description of the file that is fetched.

    :param size: bytes of the file
    :param origins: the replicas; an extent's `source` is an index into them
    :param checksums: expected checksums of the whole file
    :param boot: identifier of the boot during which the data were written
    """

    size: int
    origins: tuple[JournalOrigin, ...]
    checksums: tuple[Checksum, ...] = ()
    boot: str = ""


class Contents(NamedTuple):
    """The trustworthy contents of a journal, before byte `length`, at which damage begins, if any.

    `header` is None if it could not be read. `trouble` describes the damage in one sentence; None if there is none. The
    extents are those that no revocation touches; they are disjoint if the appended ones were.
    """

    header: Header | None
    extents: tuple[Extent, ...]
    length: int
    trouble: str | None = None


class _Wrong(Exception):
    """A torn or corrupt record; the message describes it."""


def _record(kind: int, body: bytes) -> bytes:
    head = _FRAME.pack(0, len(body), kind)[_CRC.size :]
    return _CRC.pack(zlib_ng.crc32(head + body)) + head + body


def encode_header(header: Header) -> bytes:
    """Return the beginning of a journal: the preamble and the header, whose body is a JSON object.

    {"size": 5, "boot": "...", "checksums": [[algorithm, value], ...],
     "origins": [[url, validator, [[algorithm, value], ...]], ...]}
    """
    document = {
        "size": header.size,
        "boot": header.boot,
        "origins": [list(origin) for origin in header.origins],
        "checksums": [[checksum.algorithm, checksum.value] for checksum in header.checksums],
    }
    return PREAMBLE + _record(HEADER, json.dumps(document).encode())


def _decode_header(body: bytes) -> Header:
    document = json.loads(body)
    return Header(
        size=int(document["size"]),
        origins=tuple(_origin(*origin) for origin in document["origins"]),
        checksums=_checksums(document["checksums"]),
        boot=document["boot"],
    )


def _origin(url: str, validator: str | None, checksums: Iterable[Sequence[str]] = ()) -> JournalOrigin:
    return JournalOrigin(url, validator, _checksums(checksums))


def _checksums(pairs: Iterable[Sequence[str]]) -> tuple[Checksum, ...]:
    return tuple(Checksum(algorithm, value) for algorithm, value in pairs)


def encode_origin(source: int, origin: JournalOrigin) -> bytes:
    """Encode a replica's version as JSON: {"source": 0, "origin": [url, validator, [[algorithm, value], ...]]}."""
    return _record(ORIGIN, json.dumps({"source": source, "origin": list(origin)}).encode())


def _decode_origin(body: bytes, header: Header) -> Header:
    document = json.loads(body)
    source, origin = document["source"], _origin(*document["origin"])
    if not 0 <= source < len(header.origins) or origin.url != header.origins[source].url:
        raise ValueError(f"the identity of an unknown source {source}")
    return header._replace(origins=(*header.origins[:source], origin, *header.origins[source + 1 :]))


def encode_extent(start: int, end: int, source: int, adler32: int | None) -> bytes:
    """Encode an extent: bytes [start, end) have arrived from `source`.

    +-------+-----+--------+---------+------+
    | start | end | source | adler32 | kept |
    | u64   | u64 | u32    | u32     | u8   |
    +-------+-----+--------+---------+------+

    kept is 1 if there is an adler32; otherwise both are 0.
    """
    return _record(EXTENT, _EXTENT.pack(start, end, source, adler32 or 0, adler32 is not None))


def _decode_extent(body: bytes, header: Header) -> Extent:
    start, end, source, adler32, has_sum = _EXTENT.unpack(body)
    if not start < end <= header.size or source >= len(header.origins):
        raise ValueError(f"an extent [{start}, {end}) of source {source}")
    return Extent(start, end, source, adler32 if has_sum else None)


def encode_revoke(start: int, end: int) -> bytes:
    """Encode a revocation: bytes [start, end) are missing again.

    +-------+-----+
    | start | end |
    | u64   | u64 |
    +-------+-----+
    """
    return _record(REVOKE, _REVOKE.pack(start, end))


def _decode_revoke(body: bytes) -> tuple[int, int]:
    start, end = _REVOKE.unpack(body)
    return start, end


def _left(changes: Sequence[Extent | tuple[int, int]]) -> tuple[Extent, ...]:
    """Return the extents that no later revocation touches; drop partly revoked ones, as their adler32 is useless."""
    revoked, left = Intervals(), list[Extent]()
    for change in reversed(changes):
        if not isinstance(change, Extent):
            revoked.add(*change)
        elif not revoked.within(change.start, change.end):
            left.append(change)
    return tuple(reversed(left))


def decode(data: bytes) -> Contents:
    """Decode a journal up to the first damage. Never raises: damage is described in `trouble`."""
    if not data.startswith(PREAMBLE):
        first, newline, _ = data[:40].partition(b"\n")
        version = first[len(MAGIC) :].strip() if newline and data.startswith(MAGIC) else b""
        trouble = f"its version, {version.decode(errors='replace')}, is not 1" if version else "it is torn"
        return Contents(None, (), 0, trouble)
    header, changes, length = None, list[Extent | tuple[int, int]](), len(PREAMBLE)
    try:
        for kind, body, end in _records(data, length):
            if header is None:
                header = _decode_header(body)
            elif kind == EXTENT:
                changes.append(_decode_extent(body, header))
            elif kind == REVOKE:
                changes.append(_decode_revoke(body))
            elif kind == ORIGIN:
                header = _decode_origin(body, header)
            else:
                raise _Wrong(f"a record of unknown kind {kind}")
            length = end
    except (_Wrong, ValueError, KeyError, TypeError, struct.error) as error:
        return Contents(header, _left(changes), length, f"at byte {length} there is {error}")
    return Contents(header, _left(changes), length, None if header else "it has no header")


def _records(data: bytes, at: int) -> Iterator[tuple[int, bytes, int]]:
    """Yield the kind, the body and the end of each intact record."""
    while at < len(data):
        if len(data) - at < _FRAME.size:
            raise _Wrong("a torn record")
        crc32, length, kind = _FRAME.unpack_from(data, at)
        end = at + _FRAME.size + length
        if end > len(data):
            raise _Wrong("a torn record")
        if zlib_ng.crc32(data[at + _CRC.size : end]) != crc32:
            raise _Wrong("a corrupt record")
        yield kind, data[at + _FRAME.size : end], end
        at = end
