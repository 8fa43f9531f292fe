"""Versions of a file in a later run: those that count as the same, and those that do not."""

import asyncio
import hashlib
import random

import pytest

from coalloc import api
from coalloc.download.continuation import Continuation
from coalloc.model.replicas import Stat
from coalloc.partial_file import JournalOrigin
from tests.support.coget import coget
from tests.support.served_file import served_file

SIZE = 3 << 20
OLD, NEW = (random.Random(seed).randbytes(SIZE) for seed in (1, 2))


def metalink(*urls, sha256="", pieces=()):
    whole = f'<hash type="sha-256">{sha256}</hash>' if sha256 else ""
    hashes = "".join(f"<hash>{value}</hash>" for value in pieces)
    hashed = f'<pieces type="sha-256" length="{1 << 20}">{hashes}</pieces>' if pieces else ""
    listed = "".join(f"<url>{url}</url>" for url in urls)
    size = f"<size>{SIZE}</size>" if sha256 else ""
    return (
        f'<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="file.bin">{size}{whole}{hashed}{listed}'
        "</file></metalink>"
    )


async def fetch_list(home, line):
    """Fetch what a list names; return the status, and what was printed."""
    (home / "list").write_text(f"{line}\n")
    done = await asyncio.to_thread(coget, ["-i", "list"], home)
    return done.returncode, done.stdout + done.stderr


async def fetch_metalink(home, text, *more):
    (home / "m.meta4").write_text(text)
    return await asyncio.to_thread(coget, ["m.meta4", "-o", *more], home)


@pytest.mark.parametrize(
    ("tag", "same", "changed"),
    [('"1"', True, False), ('W/"1"', False, False), ('"2"', False, True), (None, False, False)],
)
def test_a_weak_tag_neither_confirms_what_was_fetched_nor_denies_it(tag, same, changed):
    before = tag if tag and "1" in tag else '"1"'
    origin = JournalOrigin("http://a/x", before)
    continuation = Continuation({0: origin}, [origin])
    continuation.add_answer(0, Stat(SIZE, tag))
    assert continuation.confirmed == ({0} if same else set())
    assert continuation.begun_anew is changed


async def test_bytes_of_a_version_with_the_same_weak_tag_are_not_mixed(tmp_path):
    target, enough = tmp_path / "x", asyncio.Event()
    async with served_file(OLD, {"ETag": 'W/"v"'}, until=asyncio.Event()) as file:

        def watch(snapshot):
            if snapshot.done_bytes:
                enough.set()

        fetching = asyncio.create_task(api.download(api.Request((file.url,), target), watch))
        await enough.wait()
        fetching.cancel()
        await asyncio.wait({fetching})
        assert target.with_name("x.coget").exists()
        file.content = NEW
        file.until.set()
        await api.download(api.Request((file.url,), target))
    assert target.read_bytes() == NEW


@pytest.mark.parametrize("output", ["x", "-"])
async def test_hashes_of_pieces_that_do_not_fit_the_size_confirm_nothing(tmp_path, output):
    async with served_file(NEW) as file:
        done = await fetch_metalink(tmp_path, metalink(file.url, pieces=["0" * 64] * 2), output)
    assert done.returncode != 0
    assert "the Metalink has 2 hashes of 1048576 each" in done.stderr
    assert not (tmp_path / "x").exists()
    assert done.stdout == ""


async def test_an_earlier_fetch_does_not_outweigh_hashes_of_pieces(tmp_path):
    async with served_file(NEW, {"ETag": '"1"'}) as file:
        assert (await fetch_list(tmp_path, file.url))[0] == 0
        (tmp_path / "m.meta4").write_text(metalink(file.url, pieces=["0" * 64] * 3))
        status, shown = await fetch_list(tmp_path, "m.meta4")
    assert status != 0, shown
    assert "were here already" not in shown


async def test_a_replica_that_was_found_wrong_is_no_origin_of_the_file(tmp_path):
    async with (
        served_file(OLD, {"ETag": '"a"'}, until=asyncio.Event()) as right,
        served_file(NEW, {"ETag": '"b"'}) as wrong,
    ):
        (tmp_path / "m.meta4").write_text(metalink(right.url, wrong.url, sha256=hashlib.sha256(OLD).hexdigest()))
        fetching = asyncio.create_task(fetch_list(tmp_path, "m.meta4"))
        async with asyncio.timeout(60):
            while not wrong.bytes:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
        right.until.set()
        assert (await fetching)[0] == 0
        assert (tmp_path / "file.bin").read_bytes() == OLD
        assert (await fetch_list(tmp_path, wrong.url))[0] == 0
        assert (tmp_path / "file.bin").read_bytes() == NEW  # and not taken for fetched already
