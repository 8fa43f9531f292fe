"""The journal's bytes: decoding returns what was written, or a prefix of it, never anything else."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.model.checksums import Checksum, Extent
from coalloc.partial_file.format import Header, JournalOrigin, decode, encode_extent, encode_header, encode_revoke

SIZE = 1 << 40
HEADER = Header(
    size=SIZE,
    origins=(
        JournalOrigin("ftp://a/ü x"),
        JournalOrigin("https://b/x?q=1", '"etag"'),
        JournalOrigin("ftp://ann@c/x", "20260101"),
    ),
    checksums=(Checksum("sha256", "0" * 64), Checksum("adler32", "00000001")),
    boot="5f0c",
)

adler32s = st.none() | st.integers(0, 2**32 - 1)


@st.composite
def histories(draw):
    """Draw extents and revocations in some order; extents may overlap only after a revocation."""
    history, here = [], []
    for _ in range(draw(st.integers(0, 12))):
        start = draw(st.integers(0, SIZE - 1))
        end = draw(st.integers(start + 1, SIZE))
        if draw(st.booleans()):
            history.append((start, end))
            here = [e for e in here if e.end <= start or e.start >= end]
        elif not any(e.start < end and start < e.end for e in here):
            extent = Extent(start, end, draw(st.integers(0, 2)), draw(adler32s))
            history.append(extent)
            here.append(extent)
    return history


def encode(item):
    if isinstance(item, Extent):
        return encode_extent(item.start, item.end, item.source, item.adler32)
    return encode_revoke(*item)


def held(history):
    """Return the bytes present after a history."""
    here = []
    for item in history:
        if isinstance(item, Extent):
            here.append(item)
        else:
            here = [e for e in here if e.end <= item[0] or e.start >= item[1]]
    return tuple(here)


@given(histories())
def test_decoding_returns_the_encoded_records(history):
    data = encode_header(HEADER) + b"".join(map(encode, history))
    contents = decode(data)
    assert (contents.header, contents.extents, contents.length) == (HEADER, held(history), len(data))
    assert contents.trouble is None


HISTORY = [
    Extent(0, 10, 0, 5),
    Extent(10, 30, 1, None),
    (5, 6),
    Extent(0, 10, 2, 2**32 - 1),
    Extent(SIZE - 1, SIZE, 2, 0),
]
RECORDS = [encode_header(HEADER), *map(encode, HISTORY)]
EDGES = [sum(map(len, RECORDS[:n])) for n in range(len(RECORDS) + 1)]


def check_is_beginning(data, whole_records):
    """Check that `data` decodes like the first records."""
    contents = decode(data)
    assert contents.header == (HEADER if whole_records else None)
    assert contents.extents == held(HISTORY[: max(0, whole_records - 1)])
    if whole_records:
        assert contents.length == EDGES[whole_records]
    return contents


def test_journal_cut_at_any_byte_yields_the_whole_records_before_it():
    data = b"".join(RECORDS)
    for length in range(len(data) + 1):
        whole = max(n for n, edge in enumerate(EDGES) if edge <= length)
        contents = check_is_beginning(data[:length], whole)
        assert (contents.trouble is None) == (length in EDGES[1:])


def test_journal_with_any_bit_flipped_yields_the_records_before_it():
    data = b"".join(RECORDS)
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        whole = max(n for n, edge in enumerate(EDGES) if edge <= bit // 8)
        contents = check_is_beginning(bytes(flipped), whole)
        assert contents.trouble


@given(st.binary(max_size=200), st.booleans())
def test_garbage_is_never_believed(garbage, with_header):
    head = encode_header(HEADER) if with_header else b""
    contents = decode(head + garbage)
    assert contents.extents == ()
    assert contents.header == (HEADER if with_header else None)
    assert contents.trouble or (with_header and not garbage)


@pytest.mark.parametrize("data", [b"", b"coget journal", b"coget journal \n", b"coget journal \n more"])
def test_a_journal_without_a_version_is_torn(data):
    assert decode(data).trouble == "it is torn"


def test_another_version_is_named():
    data = encode_header(HEADER).replace(b"journal 1\n", b"journal 23\n")
    assert decode(data).trouble == "its version, 23, is not 1"
    assert decode(data).header is None


@pytest.mark.parametrize(
    "item",
    [Extent(10, 10, 0, 1), Extent(10, 9, 0, 1), Extent(SIZE - 1, SIZE + 1, 0, 1), Extent(0, 1, 3, 1)],
    ids=["empty", "backwards", "beyond the end", "of nobody"],
)
def test_an_extent_that_makes_no_sense_is_not_believed(item):
    contents = decode(encode_header(HEADER) + encode(item) + encode(Extent(0, 1, 0, 1)))
    assert contents.extents == ()
    assert "an extent" in contents.trouble


@pytest.mark.parametrize("body", [b"[]", b"{}", b"\xff", b'{"size": "x"}'])
def test_a_header_that_makes_no_sense_is_not_believed(body):
    rest = struct.pack("<IB", len(body), 0) + body
    contents = decode(b"coget journal 1\n" + struct.pack("<I", zlib.crc32(rest)) + rest)
    assert contents.header is None
    assert contents.trouble


def test_a_record_of_unknown_kind_ends_what_is_believed():
    rest = struct.pack("<IB", 0, 9)
    contents = decode(encode_header(HEADER) + struct.pack("<I", zlib.crc32(rest)) + rest + encode(HISTORY[0]))
    assert contents.extents == ()
    assert "unknown kind 9" in contents.trouble
