"""Files at a destination beside their origins: what differs is found, piece by piece."""

import zlib

import pytest

from coalloc.errors import VerificationError
from coalloc.model import Checksum
from coalloc.staging.checking import check
from coalloc.staging.item import Item

CONTENT = bytes(range(200))
PIECES = [(0, 50), (50, 120), (120, 200)]


def says(content):
    async def ask(algorithm, start, end):
        return f"{getattr(zlib, algorithm)(content[start:end]):08x}" if algorithm in ("adler32", "crc32") else None

    return ask


async def silent(algorithm, start, end):
    return None


def item(expected=None, content=CONTENT):
    return Item("x", len(content), {"a": "/x"}, expected)


def spoiled(*at):
    return bytes(byte ^ (i in at) for i, byte in enumerate(CONTENT))


async def test_the_same_bytes_are_verified():
    assert (await check(item(), PIECES, says(CONTENT), says(CONTENT)))[1:] == (True, ())


async def test_the_pieces_that_differ_are_named():
    verdict = await check(item(), PIECES, says(CONTENT), says(spoiled(60, 199)))
    assert not verdict.verified
    assert verdict.wrong == ((50, 120), (120, 200))


@pytest.mark.parametrize("ends", [(silent, says(CONTENT)), (says(CONTENT), silent)])
async def test_where_one_end_knows_no_checksum_nothing_is_verified_and_nothing_wrong(ends):
    assert (await check(item(), PIECES, *ends))[1:] == (False, ())


async def test_what_is_expected_decides():
    expected = Checksum("crc32", f"{zlib.crc32(CONTENT):08x}")
    assert await check(item(expected), PIECES, silent, says(CONTENT)) == (expected, True, ())
    assert (await check(item(expected), PIECES, silent, says(spoiled(3)))).wrong == ((0, 200),)
    with pytest.raises(VerificationError, match="neither here nor at its origin"):
        await check(item(expected), PIECES, says(spoiled(3)), says(spoiled(3)))


async def test_a_file_without_a_byte():
    assert (await check(item(content=b""), [], silent, silent)).verified
