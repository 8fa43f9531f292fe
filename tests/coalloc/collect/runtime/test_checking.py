"""Comparison of files at a destination with their origins, piece by piece."""

import hashlib
import zlib
from dataclasses import replace

import pytest

from coalloc.collect.runtime.checking import check
from coalloc.collect.runtime.item import CollectItem
from coalloc.errors import VerificationError
from coalloc.model.checksums import Checksum, PieceHashes

CONTENT = bytes(range(200))
PIECES = [(0, 50), (50, 120), (120, 200)]


def says(content):
    async def ask(algorithm, start, end):
        return f"{getattr(zlib, algorithm)(content[start:end]):08x}" if algorithm in ("adler32", "crc32") else None

    return ask


async def silent(algorithm, start, end):
    return None


def item(expected=None, content=CONTENT):
    return CollectItem("x", len(content), {"a": "/x"}, expected)


def spoiled(*at):
    return bytes(byte ^ (i in at) for i, byte in enumerate(CONTENT))


async def test_the_same_bytes_are_verified():
    assert (await check(item(), PIECES, says(CONTENT), says(CONTENT)))[1:] == (True, (), True)


async def test_the_pieces_that_differ_are_named():
    verdict = await check(item(), PIECES, says(CONTENT), says(spoiled(60, 199)))
    assert not verdict.verified
    assert verdict.wrong == ((50, 120), (120, 200))


@pytest.mark.parametrize("ends", [(silent, says(CONTENT)), (says(CONTENT), silent)])
async def test_file_is_neither_verified_nor_wrong_if_one_end_has_no_checksum(ends):
    assert (await check(item(), PIECES, *ends))[1:] == (False, (), False)


@pytest.mark.parametrize("name", ["sha256", "md5"])
async def test_any_checksum_that_both_ends_know_will_do(name):
    async def only(algorithm, start, end):
        return hashlib.new(name, CONTENT[start:end]).hexdigest() if algorithm == name else None

    assert (await check(item(), PIECES, knows(CONTENT, name), only)).verified
    assert (await check(item(), PIECES, knows(spoiled(7), name), only)).wrong == ((0, 200),)


async def test_expected_checksum_decides():
    expected = Checksum("crc32", f"{zlib.crc32(CONTENT):08x}")
    assert await check(item(expected), PIECES, silent, says(CONTENT)) == (expected, True, (), True)
    assert (await check(item(expected), PIECES, silent, says(spoiled(3)))).wrong == ((0, 200),)
    with pytest.raises(VerificationError, match="here and at its origin"):
        await check(item(expected), PIECES, says(spoiled(3)), says(spoiled(3)))


async def test_a_file_without_a_byte():
    assert (await check(item(content=b""), [], silent, silent)).verified


def forged():
    """Return other bytes with the same adler32."""
    content = bytearray(CONTENT)
    for at, by in ((10, 1), (11, -2), (12, 1)):
        content[at] += by
    assert zlib.adler32(content) == zlib.adler32(CONTENT)
    return bytes(content)


def knows(content, *names):
    weak = says(content)

    async def ask(algorithm, start, end):
        if algorithm in names:
            return hashlib.new(algorithm, content[start:end]).hexdigest()
        return await weak(algorithm, start, end)

    return ask


@pytest.mark.parametrize("name", ["sha256", "sha1", "md5"])
async def test_strong_checksum_finds_bytes_forged_by_a_relay(name):
    ends = knows(CONTENT, name), knows(forged(), name)
    assert (await check(item(), PIECES, *ends)).verified, "adler32 does not tell"
    verdict = await check(item(), PIECES, *ends, relayed=True)
    assert (verdict.verified, verdict.wrong) == (False, ((0, 200),))
    good = await check(item(), PIECES, knows(CONTENT, name), knows(CONTENT, name), relayed=True)
    assert (good.verified, good.checksum.algorithm) == (True, name)


async def test_weak_checksum_does_not_verify_relayed_files():
    ends = knows(CONTENT, "md5"), knows(CONTENT, "sha256")
    assert (await check(item(), PIECES, *ends, relayed=True))[1:] == (False, (), True)
    expected = Checksum("crc32", f"{zlib.crc32(CONTENT):08x}")
    assert not (await check(item(expected), PIECES, *ends, relayed=True)).verified
    strong = Checksum("sha256", hashlib.sha256(CONTENT).hexdigest())
    assert (await check(item(strong), PIECES, silent, ends[1], relayed=True)).verified


async def test_expected_checksum_of_an_uncomputed_algorithm_verifies_no_file():
    expected = Checksum("sha384", "0" * 96)
    assert not (await check(item(expected), PIECES, says(CONTENT), says(CONTENT))).verified


async def test_an_expected_checksum_that_only_the_origin_computes_decides():
    wrong, right = Checksum("sha384", "0" * 96), Checksum("sha384", hashlib.sha384(CONTENT).hexdigest())

    async def origin(algorithm, start, end):
        computed = hashlib.sha384(CONTENT[start:end]).hexdigest() if algorithm == "sha384" else None
        return computed or await says(CONTENT)(algorithm, start, end)

    ends = origin, says(CONTENT)
    assert (await check(item(right), PIECES, *ends)).verified
    with pytest.raises(VerificationError, match="here and at its origin"):
        await check(item(wrong), PIECES, *ends)


def with_hashes(content, algorithm="sha256", length=90):
    parts = (content[start : start + length] for start in range(0, len(content), length))
    digest = zlib.crc32 if algorithm == "crc32" else lambda part: int(hashlib.new(algorithm, part).hexdigest(), 16)
    values = tuple(f"{digest(part):0{8 if algorithm == 'crc32' else 64}x}" for part in parts)
    return replace(item(), pieces=PieceHashes(algorithm, length, values))


async def test_hashes_of_pieces_name_the_wrong_ones():
    ends = silent, knows(CONTENT, "sha256")
    assert (await check(with_hashes(CONTENT), PIECES, *ends))[1:] == (True, (), True)
    assert (await check(with_hashes(spoiled(91, 199)), PIECES, *ends)).wrong == ((90, 180), (180, 200))


async def test_hashes_of_pieces_count_more_than_the_origin():
    ends = knows(spoiled(3), "sha256"), knows(spoiled(3), "sha256")
    assert (await check(with_hashes(CONTENT), PIECES, *ends)).wrong == ((0, 90),)


async def test_hashes_of_pieces_that_cannot_be_computed_refuse_the_file():
    with pytest.raises(VerificationError, match="cannot compute"):
        await check(with_hashes(CONTENT), PIECES, knows(CONTENT, "sha256"), says(CONTENT))


async def test_weak_hashes_of_pieces_do_not_verify_relayed_files():
    weak = with_hashes(CONTENT, "crc32")
    assert (await check(weak, PIECES, silent, says(CONTENT))).verified
    assert (await check(weak, PIECES, silent, says(CONTENT), relayed=True))[1:] == (False, (), True)


async def test_expected_checksum_shows_that_a_relayed_file_is_no_mixture_even_if_it_is_weak():
    expected = Checksum("crc32", f"{zlib.crc32(CONTENT):08x}")
    assert (await check(item(expected), PIECES, silent, says(CONTENT), relayed=True))[1:] == (False, (), True)
