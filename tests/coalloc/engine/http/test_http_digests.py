"""Checksums in HTTP headers, as servers and attackers write them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.engine.http.digests import stated_digests
from tests.support.effort import effort

SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
MD5 = "098f6bcd4621d373cade4e832627b4f6"
PARTS = "composed of the checksums of parts"
TAGGED = {"server": "AmazonS3", "etag": f'"{MD5}"'}


@pytest.mark.parametrize(
    ("headers", "usable"),
    [
        ({}, []),
        ({"digest": "md5=CY9rzUYh03PK3k6DJie09g=="}, [("md5", MD5)]),
        ({"digest": "md5=098F6BCD4621D373CADE4E832627B4F6"}, [("md5", MD5)]),
        ({"digest": "SHA=qUqP5cyxm6YcTAhz05Hph5gvu9M="}, [("sha1", "a94a8fe5ccb19ba61c4c0873d391e987982fbbd3")]),
        ({"repr-digest": "sha-256=:n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=:"}, [("sha256", SHA256)]),
        ({"content-digest": "sha-256=:n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=:"}, [("sha256", SHA256)]),
        ({"repr-digest": "adler=:BF0BwQ==:;x=1, crc32c=:hqByuA==:"}, [("adler32", "045d01c1"), ("crc32c", "86a072b8")]),
        ({"x-goog-hash": "crc32c=hqByuA==, md5=CY9rzUYh03PK3k6DJie09g=="}, [("crc32c", "86a072b8"), ("md5", MD5)]),
        ({"x-amz-checksum-crc32": "AAAAAQ==", "x-amz-checksum-type": "FULL_OBJECT"}, [("crc32", "00000001")]),
        ({"digest": "md5=CY9rzUYh03PK3k6DJie09g==", "etag": f'"{MD5}"'}, [("md5", MD5)]),
        (TAGGED, [("md5", MD5)]),
        ({**TAGGED, "x-amz-server-side-encryption": "AES256"}, [("md5", MD5)]),
    ],
)  # fmt: skip
def test_usable_checksums(headers, usable):
    assert [tuple(each) for each in stated_digests(headers, whole=True).usable] == usable
    assert not stated_digests(headers, whole=True).unused


@pytest.mark.parametrize(
    ("headers", "unused"),
    [
        ({"digest": "adler32=45d01c1,md5=nonsense,whirlpool=00,=,"}, {
            "adler32 (unknown notation)", "md5 (unknown notation)", "whirlpool (unknown algorithm)"}),
        ({"x-amz-checksum-sha256": "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=-3"}, {f"sha256 ({PARTS})"}),
        ({"x-amz-checksum-crc32": "AAAAAA==", "x-amz-checksum-type": "COMPOSITE"}, {f"crc32 ({PARTS})"}),
        ({"x-goog-hash": "crc32c=hqByuA==", "x-goog-stored-content-encoding": "gzip"}, {
            "crc32c (of the compressed file)"}),
        ({"digest": f"md5={MD5}", "repr-digest": f"md5=:{MD5[::-1]}:"}, {"md5 (several values)"}),
        ({"digest": f"md5={MD5}, md5={MD5[::-1]}, sha=x"}, {"md5 (several values)", "sha (unknown notation)"}),
        ({"digest": "\x1b[31mred=1"}, {"\\x1b[31mred (unknown algorithm)"}),
    ],
)  # fmt: skip
def test_unusable_checksums_are_named(headers, unused):
    assert set(stated_digests(headers, whole=True).unused) == unused
    assert not stated_digests(headers, whole=True).usable


@pytest.mark.parametrize(
    ("headers", "unused"),
    [
        ({"content-digest": "md5=:CY9rzUYh03PK3k6DJie09g==:"}, ()),
        ({"x-amz-checksum-md5": "CY9rzUYh03PK3k6DJie09g=="}, ("md5 (perhaps of a range)",)),
    ],
)
def test_a_checksum_of_a_range_is_not_taken_for_one_of_the_file(headers, unused):
    assert stated_digests(headers, whole=True).usable
    assert stated_digests(headers, whole=False) == ((), unused)


@pytest.mark.parametrize(
    "more",
    [
        {"server": "MinIO"},
        {"etag": f'W/"{MD5}"'},
        {"etag": f'"{MD5}-2"'},
        {"x-amz-server-side-encryption": "aws:kms"},
        {"x-amz-server-side-encryption-customer-algorithm": "AES256"},
        {"x-amz-storage-class": "EXPRESS_ONEZONE"},
    ],
)
def test_an_entity_tag_is_an_md5_only_where_amazon_says_so(more):
    assert stated_digests({**TAGGED, **more}, whole=True) == ((), ())


NAMES = ["digest", "repr-digest", "content-digest", "x-goog-hash", "x-amz-checksum-md5", "x-amz-checksum-", "etag"]


@settings(max_examples=effort(30, 500))
@given(st.dictionaries(st.sampled_from(NAMES), st.text(max_size=50) | st.just("md5=" + "A" * 60_000)), st.booleans())
def test_any_headers_are_read_and_little_is_said_about_them(headers, whole):
    stated = stated_digests(headers, whole=whole)
    assert len(stated.unused) <= 8
    assert all(len(each) < 150 for each in stated.unused)
