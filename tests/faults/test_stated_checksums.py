"""Checksums that HTTP servers state: a wrong one is noticed, one that cannot be used is named."""

import base64
import hashlib

import pytest

from coalloc import api
from coalloc.errors import VerificationError
from coalloc.model.checksums import PieceHashes
from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.model.reports import Results
from coalloc.util.checksums import hasher
from tests.support.served_file import served_file

CONTENT = bytes(range(256)) * 300


def base64_of(algorithm: str, content: bytes = CONTENT) -> str:
    digest = hasher(algorithm)
    digest.update(memoryview(content))
    return base64.b64encode(bytes.fromhex(digest.hexdigest())).decode()


SHA256 = f"sha-256=:{base64_of('sha256')}:"
RIGHT = {
    "crc32c": {"Digest": f"crc32c={base64_of('crc32c')}"},
    "sha512": {"Repr-Digest": f"sha-512=:{base64_of('sha512')}:"},
    "md5": {"x-goog-hash": f"crc32c={base64_of('crc32c')},md5={base64_of('md5')}"},
    "crc64nvme": {"x-amz-checksum-crc64nvme": base64_of("crc64nvme"), "x-amz-checksum-type": "FULL_OBJECT"},
}
WRONG = [
    {"Digest": f"crc32c={base64_of('crc32c', b'other')}"},
    {"Digest": f"crc32c={hashlib.md5(b'other').hexdigest()[:8]}"},
    {"Repr-Digest": f"sha-512=:{base64_of('sha512', b'other')}:"},
    {"x-goog-hash": f"crc32c={base64_of('crc32c', b'other')}"},
    {"x-amz-checksum-crc64nvme": base64_of("crc64nvme", b"other")},
    {"ETag": f'"{hashlib.md5(b"other").hexdigest()}"', "Server": "AmazonS3"},
]


async def fetched(tmp_path, *urls, **options):
    (report,) = await api.download(api.Request(urls, output=tmp_path / "here", **options))
    assert (tmp_path / "here").read_bytes() == CONTENT
    return report


@pytest.mark.parametrize("algorithm", RIGHT)
async def test_a_right_checksum_of_the_server_is_compared(tmp_path, algorithm):
    async with served_file(CONTENT, RIGHT[algorithm]) as server:
        report = await fetched(tmp_path, server.url)
    assert (report.checksum.algorithm, report.basis) == (algorithm, "own word")
    assert not report.sources[0].unused_checksums


@pytest.mark.parametrize("headers", WRONG, ids=lambda headers: " ".join(headers.values())[:20])
async def test_a_wrong_checksum_of_the_server_is_not_accepted(tmp_path, headers):
    async with served_file(CONTENT, headers) as server:
        with pytest.raises(VerificationError, match="not the expected"):
            await api.download(api.Request((server.url,), output=tmp_path / "here"))
    assert not (tmp_path / "here").exists()


async def test_a_wrong_checksum_beside_a_right_stronger_one_is_named(tmp_path):
    wrong = base64_of("crc32c", b"other")
    async with served_file(CONTENT, {"Repr-Digest": f"{SHA256}, crc32c=:{wrong}:"}) as server:
        report = await fetched(tmp_path, server.url)
    assert report.checksum.algorithm == "sha256"
    (named,) = report.sources[0].unused_checksums
    assert named.startswith(f"crc32c (it states {base64.b64decode(wrong).hex()}, but the file has ")


async def test_of_many_slow_checksums_only_the_strongest_are_compared(tmp_path):
    names = {"sha512": "sha-512", "sha256": "sha-256", "sha1": "sha", "md5": "md5"}
    stated = ", ".join(f"{name}=:{base64_of(algorithm)}:" for algorithm, name in names.items())
    async with served_file(CONTENT, {"Repr-Digest": stated}) as server:
        report = await fetched(tmp_path, server.url)
    assert report.checksum.algorithm == "sha512"
    assert set(report.sources[0].unused_checksums) == {"sha1 (not compared)", "md5 (not compared)"}


async def test_a_wrong_checksum_beside_the_users_own_is_named(tmp_path):
    given = f"md5:{hashlib.md5(CONTENT).hexdigest()}"
    async with served_file(CONTENT, WRONG[0]) as server:
        report = await fetched(tmp_path, server.url, checksum=given)
    assert report.basis == "given"
    assert len(report.sources[0].unused_checksums) == 1


async def test_a_checksum_that_is_stated_only_with_a_range_is_compared(tmp_path):
    """The answer to HEAD has no length, so that the file is asked for by ranges."""
    async with served_file(CONTENT, WRONG[0]) as server:
        answer = server.answer
        server.answer = lambda head: (
            (b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n".decode(), b"") if head.startswith("HEAD") else answer(head)
        )
        with pytest.raises(VerificationError, match="not the expected"):
            await api.download(api.Request((server.url,), output=tmp_path / "here"))


@pytest.mark.usefixtures("late_answers")
async def test_a_wrong_checksum_of_the_last_server_to_answer_is_not_accepted(tmp_path):
    async with served_file(CONTENT) as silent, served_file(CONTENT, WRONG[0]) as wrong:
        with pytest.raises(VerificationError, match="not the expected"):
            await api.download(api.Request((silent.url, wrong.url), output=tmp_path / "here"))


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({"Digest": "whirlpool=abcd"}, "whirlpool (unknown algorithm)"),
        ({"x-amz-checksum-crc32c": "AAAAAA==-7"}, "crc32c (composed of the checksums of parts)"),
        ({"Digest": "md5=" + "A" * 9000}, "md5 (unknown notation)"),
    ],
)
async def test_a_checksum_that_cannot_be_used_is_named(tmp_path, headers, named):
    async with served_file(CONTENT, headers) as server:
        report = await fetched(tmp_path, server.url)
    assert report.basis == "none"
    assert report.sources[0].unused_checksums == (named,)


async def test_a_reader_in_order_learns_of_a_wrong_checksum():
    wrong, results = base64_of("crc32c", b"other"), Results()

    async def read(*urls):
        return b"".join([bytes(data) async for data in api.stream(api.Request(urls), results=results)])

    async with served_file(CONTENT, {"Repr-Digest": f"{SHA256}, crc32c=:{wrong}:"}) as server:
        assert await read(server.url) == CONTENT
        assert results.done[0].sources[0].unused_checksums[0].startswith("crc32c (it states ")
        server.headers = WRONG[0]
        with pytest.raises(VerificationError, match="not the expected"):
            await read(server.url)


async def test_hashes_of_pieces_count_more_than_the_word_of_the_server(tmp_path):
    evil = bytes(reversed(CONTENT))
    async with served_file(evil, {"Repr-Digest": f"sha-256=:{base64_of('sha256', evil)}:"}) as server:
        hashes = PieceHashes("sha256", len(CONTENT), (hashlib.sha256(CONTENT).hexdigest(),))
        file = ReplicaSet("here", (Replica(server.url),), size=len(CONTENT), pieces=hashes)
        with pytest.raises(VerificationError):
            await api.download(api.Request((), output=tmp_path / "here", file=file))
    assert not (tmp_path / "here").exists()


@pytest.mark.usefixtures("late_answers")
async def test_replicas_that_contradict_each_other_by_different_algorithms_are_no_file(tmp_path):
    other = bytes(reversed(CONTENT))
    stated = {"x-goog-hash": f"md5={base64_of('md5')}"}, {"Repr-Digest": f"sha-256=:{base64_of('sha256', other)}:"}
    async with served_file(CONTENT, stated[0]) as one, served_file(other, stated[1]) as two:
        with pytest.raises(VerificationError, match="different files"):
            await api.download(api.Request((one.url, two.url), output=tmp_path / "here"))
    assert not (tmp_path / "here").exists()


async def test_a_digest_of_an_answer_without_a_body_is_not_of_the_file(tmp_path):
    def headers(method):
        return {"Content-Digest": f"sha-256=:{base64_of('sha256', CONTENT if method == 'GET' else b'')}:"}

    async with served_file(CONTENT, headers) as server:
        await fetched(tmp_path, server.url)


async def test_random_reads_do_not_use_servers_that_nobody_named(tmp_path):
    """Nothing would notice their wrong bytes."""
    async with served_file(bytes(len(CONTENT))) as guest:
        link = {"Link": f"<{guest.url}>; rel=duplicate", "Repr-Digest": SHA256}
        async with served_file(CONTENT, link) as server:
            reader = await api.open_reader(api.Request((server.url,)))
            try:
                for start in range(0, 50_000, 1000):
                    assert await reader.read(start, start + 1000) == CONTENT[start : start + 1000]
            finally:
                await reader.close()
    assert not guest.requests
