"""Resuming: recognition of the same file, and the numbers of its extents' sources."""

import pytest

from coalloc.model.checksums import Checksum, Extent
from coalloc.partial_file.format import Header, JournalOrigin
from coalloc.partial_file.resume import carry_over, staged, why_not

A, B, C = JournalOrigin("ftp://a/x"), JournalOrigin("ftp://b/x", "v1"), JournalOrigin("ftp://c/x")
MD5, OTHER_MD5 = Checksum("md5", "0" * 32), Checksum("md5", "1" * 32)
SHA1 = Checksum("sha1", "0" * 40)
THEN = Header(100, (A, B), (), "boot1")


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (THEN, THEN),
        (THEN, THEN._replace(origins=(B, C))),
        (THEN, THEN._replace(origins=(A, JournalOrigin("ftp://b/x")))),
        (THEN, THEN._replace(boot="boot2")),
        (THEN, THEN._replace(checksums=(MD5,))),
        (THEN._replace(checksums=(MD5,)), THEN._replace(checksums=(SHA1,))),
        (THEN._replace(checksums=(MD5,)), THEN._replace(checksums=(MD5,), origins=(C,))),
        (THEN._replace(checksums=(MD5,)), THEN._replace(checksums=(MD5,), origins=(B._replace(validator="v2"),))),
        (THEN, THEN._replace(origins=(A, B._replace(validator="v2")))),
    ],
    ids=[
        "nothing changed",
        "one replica in common",
        "its validator is not known now",
        "started again",
        "a checksum is expected only now",
        "another kind of checksum is expected",
        "same checksum, other places",
        "same checksum, new validator",
        "a new validator, which others judge",
    ],
)
def test_it_goes_on(then, now):
    assert why_not(then, now) is None


@pytest.mark.parametrize(
    ("then", "now", "reason"),
    [
        (THEN, THEN._replace(size=101), "the file changed from 100 to 101 bytes"),
        (
            THEN._replace(checksums=(SHA1, MD5)),
            THEN._replace(checksums=(SHA1, OTHER_MD5)),
            "the expected md5 has changed",
        ),
        (THEN, THEN._replace(origins=(C,)), "the sources have changed"),
    ],
)
def test_changed_size_checksum_or_sources_start_over_with_a_reason(then, now, reason):
    assert reason in why_not(then, now)


def test_sources_have_todays_numbers_and_those_that_gave_bytes_then_come_after():
    now = THEN._replace(origins=(C, JournalOrigin("ftp://b/x", "v2")))
    extents = [Extent(5, 9, 1, 8)]
    header, carried = carry_over(THEN, extents, now)
    assert header.origins == (*now.origins, B), "what b gave then is not what it gives now"
    assert carried == [Extent(5, 9, 2, 8)]


def test_without_checksums_only_the_same_boot_is_believed():
    extents = [Extent(0, 5, 0), Extent(5, 9, 1, 8)]
    assert len(carry_over(THEN, extents, THEN)[1]) == 2
    assert [extent[:2] for extent in carry_over(THEN, extents, THEN._replace(boot="boot2"))[1]] == [(5, 9)]


def test_staged_extents_are_kept_only_if_the_next_run_uses_relays():
    relay = JournalOrigin(staged(A.url))
    then, extents = THEN._replace(origins=(A, relay)), [Extent(0, 5, 1, 7), Extent(5, 9, 0, 8)]
    assert len(carry_over(then, extents, then)[1]) == 2
    assert [extent[:2] for extent in carry_over(then, extents, THEN)[1]] == [(5, 9)]
    assert why_not(then._replace(origins=(B, relay)), then._replace(origins=(C, JournalOrigin(staged(C.url)))))
