"""Checksums: names and values in user input, and combination against computation."""

import hashlib
import zlib

import awscrt.checksums
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.errors import UsageError
from coalloc.model.checksums import Checksum
from coalloc.util import checksums
from coalloc.util.checksums import (
    ALGORITHMS,
    adler32_combine,
    checksum,
    crc32_combine,
    hasher,
    normalise,
    parse,
    rolling,
)
from coalloc.util.crc_combination import CRC32C, CRC64NVME, crc_combine


@given(st.binary(), st.binary())
def test_combining_two_sums_is_summing_both_strings(first, second):
    whole = first + second
    assert adler32_combine(zlib.adler32(first), zlib.adler32(second), len(second)) == zlib.adler32(whole)
    assert crc32_combine(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(whole)
    for algorithm in ("crc32c", "crc64nvme"):
        start, update, combine = rolling(algorithm)
        one, two = (update(memoryview(part), start) for part in (first, second))
        assert combine(one, two, len(second)) == update(memoryview(whole), start) == update(memoryview(second), one)


@given(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1), st.integers(1, 1 << 50))
def test_combining_crcs_gives_what_their_authors_library_gives(first, second, length):
    assert crc_combine(CRC64NVME, first, second, length) == awscrt.checksums.combine_crc64nvme(first, second, length)
    low = first >> 32, second >> 32
    assert crc_combine(CRC32C, *low, length) == awscrt.checksums.combine_crc32c(*low, length)


@pytest.mark.parametrize(("algorithm", "value"), [("crc32c", "e3069283"), ("crc64nvme", "ae8b14860a799888")])
def test_the_check_values_of_the_catalogue_of_crcs(algorithm, value):
    found = hasher(algorithm)
    found.update(memoryview(b"123456789"))
    assert found.hexdigest() == value


def test_an_algorithm_without_its_package_is_unknown_and_the_remedy_names_it(monkeypatch):
    monkeypatch.setattr(checksums, "_lacks_package", lambda algorithm: algorithm == "crc64nvme")
    assert normalise("CRC64-NVME") is None
    with pytest.raises(UsageError, match="needs the package awscrt") as caught:
        parse("crc64nvme:0123456789abcdef")
    assert "coget[crc64]" in caught.value.remedy


def test_combining_holds_for_strings_longer_than_the_modulus():
    first, second = b"\xff" * 70_001, b"\xfe" * 131_042
    assert adler32_combine(zlib.adler32(first), zlib.adler32(second), len(second)) == zlib.adler32(first + second)


@given(st.integers(0, 65520), st.integers(1 << 33, 1 << 50))
def test_combining_with_zeros_longer_than_four_gib(low, length):
    """n zero bytes alone have A = 1 and B = n; after a string they keep A and add n A to B."""
    zeros = (length % 65521) << 16 | 1
    assert adler32_combine(low, zeros, length) == (length * low % 65521) << 16 | low


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(parts=st.lists(st.binary()))
def test_a_hasher_gives_what_the_standard_library_gives(algorithm, parts):
    ours = hasher(algorithm)
    for part in parts:
        ours.update(memoryview(part))
    whole = b"".join(parts)
    if algorithm in ("adler32", "crc32"):
        expected = f"{getattr(zlib, algorithm)(whole):08x}"
    elif algorithm.startswith("crc"):  # the standard library has no others
        expected = f"{getattr(awscrt.checksums, algorithm)(whole):0{ALGORITHMS[algorithm]}x}"
    else:
        expected = hashlib.new(algorithm, whole).hexdigest()
    assert ours.hexdigest() == expected
    assert len(expected) == ALGORITHMS[algorithm]


@pytest.mark.parametrize(
    ("written", "meant"),
    [("SHA-256", "sha256"), ("adler-32", "adler32"), ("ADLER32", "adler32"), (" md5 ", "md5"), ("sha_1", "sha1")],
)
def test_names_are_understood_as_people_write_them(written, meant):
    assert normalise(written) == meant


@pytest.mark.parametrize("name", ["", "whirlpool", "sha3-256", "none"])
def test_unsupported_algorithms_have_no_name(name):
    assert normalise(name) is None


def test_parse_lowers_and_strips():
    assert parse("SHA-1: DA39A3EE5E6B4B0D3255BFEF95601890AFD80709 ") == Checksum(
        "sha1", "da39a3ee5e6b4b0d3255bfef95601890afd80709"
    )


@pytest.mark.parametrize(
    ("text", "complaint", "remedy"),
    [
        ("d41d8cd98f00b204e9800998ecf8427e", "is not a checksum", "ALGORITHM:HEX"),
        ("whirlpool:00", "'whirlpool'", "sha256"),
        ("md5:d41d8", "5 characters instead of 32", "copy"),
        ("adler32:0000000g", "adler32", "copy"),
        ("adler32:", "0 characters instead of 8", "copy"),
    ],
)
def test_nonsense_is_refused_with_a_remedy(text, complaint, remedy):
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert complaint in caught.value.message
    assert remedy in caught.value.remedy


def test_checksum_takes_name_and_value_apart():
    assert checksum("Adler32", "00000001") == Checksum("adler32", "00000001")
