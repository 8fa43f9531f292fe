"""A partial file against a plain model: a bytearray that records the first writer of each byte."""

import hashlib
import itertools
import os
import stat
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.errors import SinkError
from coalloc.model.checksums import Extent
from coalloc.partial_file import PartialFile
from coalloc.partial_file.sparse_file import BLOCK
from coalloc.testing.failing_disk import FailingDisk
from coalloc.util.checksums import hasher
from tests.support.effort import effort

SIZE = 200
CONTENT = bytes((11 * i + i * i // 3) % 256 for i in range(SIZE))
BAD = bytes(byte ^ 0x55 for byte in CONTENT)

position = st.integers(0, SIZE)
write = st.tuples(st.just("write"), st.integers(0, 3), position, position)
revoke = st.tuples(st.just("revoke"), st.just(0), position, position)


def content_of(source):
    """Return the bytes of a source; source 3 is a bad replica."""
    return BAD if source == 3 else CONTENT


def deliver(partial, source, start, end):
    return partial.write(source, start, memoryview(content_of(source))[start:end])


def fill(partial, content=CONTENT):
    partial.write(0, 0, memoryview(content))


@pytest.fixture
def target(tmp_path):
    return tmp_path / "a file ü.bin"


@pytest.fixture(scope="module")
def shared_target(tmp_path_factory):
    """Return one target for all examples of a property; each example removes its data or starts over."""
    return tmp_path_factory.mktemp("shared") / "target"


class Model:
    """The expected state of a partial file after some operations."""

    def __init__(self):
        self.data = bytearray(SIZE)
        self.owner = [None] * SIZE
        self.duplicates = 0

    def apply(self, kind, source, start, end):
        for i in range(start, end):
            if kind == "revoke":
                self.owner[i] = None
            elif self.owner[i] is None:
                self.owner[i] = source
                self.data[i] = content_of(source)[i]
            else:
                self.duplicates += 1


def check(partial, model, keeps):
    held = [i for i in range(SIZE) if model.owner[i] is not None]
    assert [i for a, b in partial.missing() for i in range(a, b)] == sorted(set(range(SIZE)) - set(held))
    assert partial.duplicate_bytes == model.duplicates
    pieces = partial.pieces()
    assert [(i, piece.source) for piece in pieces for i in range(piece.start, piece.end)] == [
        (i, model.owner[i]) for i in held
    ]
    for piece in pieces:
        assert piece.adler32 == (zlib.adler32(model.data[piece.start : piece.end]) if keeps else None)
    for before, after in itertools.pairwise(pieces):
        assert (before.end, before.source) != (after.start, after.source), "neighbours of one source are one piece"


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("expected", [["crc32c"], ["sha256", "crc32"]], ids=" ".join)
@settings(max_examples=effort(15, 60))
@given(operations=st.lists(write | revoke, max_size=25), most=st.sampled_from([None, 1, 7]))
def test_any_order_of_writes_gives_what_the_model_gives(shared_target, keeps, expected, operations, most):
    model = Model()
    with PartialFile(shared_target, keep_checksums=keeps, disk=FailingDisk(most=most)) as partial:
        partial.begin(SIZE, algorithms=expected)
        for kind, source, start, end in operations:
            if kind == "revoke":
                partial.revoke(start, end)
            else:
                fresh = deliver(partial, source, start, max(start, end))
                assert sum(e.end - e.start for e in fresh) == model.owner[start:end].count(None)
                for extent in fresh:
                    data = content_of(source)[extent.start : extent.end]
                    assert extent.adler32 == (zlib.adler32(data) if keeps else None)
            model.apply(kind, source, start, end)
        check(partial, model, keeps)
        for start, end in partial.missing():
            deliver(partial, 1, start, end)
            model.apply("write", 1, start, end)
        assert partial.digest("adler32") == f"{zlib.adler32(model.data):08x}"
        assert partial.digest("crc32") == f"{zlib.crc32(model.data):08x}"
        crc32c = hasher("crc32c")
        crc32c.update(memoryview(model.data))
        assert partial.digest("crc32c") == crc32c.hexdigest()
        for algorithm in ("md5", "sha256"):
            assert partial.digest(algorithm) == hashlib.new(algorithm, model.data).hexdigest()
        assert partial.digest("adler32", 3, 150) == f"{zlib.adler32(model.data[3:150]):08x}"
        assert partial.digest("md5", 3, 150) == hashlib.md5(model.data[3:150]).hexdigest()
        partial.publish()
    assert shared_target.read_bytes() == model.data
    assert list(shared_target.parent.iterdir()) == [shared_target]


@settings(max_examples=effort(15, 60))
@given(
    operations=st.lists(write, max_size=20),
    lies=st.lists(st.integers(0, SIZE - 1), max_size=4),
    keeps=st.booleans(),
    expected=st.sampled_from([None, "crc32", "md5"]),
)
def test_a_later_run_keeps_just_what_is_still_right(shared_target, operations, lies, keeps, expected):
    extents = []
    model = Model()
    with PartialFile(shared_target) as partial:
        partial.begin(SIZE)
        for operation in operations:
            extents += deliver(partial, operation[1], operation[2], max(operation[2:]))
            model.apply(*operation)
    if extents:
        with open(partial.journal_path.with_name("data"), "r+b") as data:
            for i in lies:
                data.seek(i)
                data.write(bytes([model.data[i] ^ 1]))
    with PartialFile(shared_target, keep_checksums=keeps) as partial:
        kept = partial.begin(SIZE, extents, [expected] if expected else [])
        assert kept == [e for e in extents if not any(e.start <= i < e.end for i in lies)]
        for lost in [e for e in extents if e not in kept]:
            model.apply("revoke", None, lost.start, lost.end)
        model.duplicates = 0
        check(partial, model, keeps)
        for start, end in partial.missing():
            deliver(partial, 0, start, end)
            model.apply("write", 0, start, end)
        assert partial.digest(expected or "crc32") == (
            hashlib.md5(model.data).hexdigest() if expected == "md5" else f"{zlib.crc32(model.data):08x}"
        )
        partial.publish()


def test_extents_without_checksum_are_accepted_unchecked(target):
    with PartialFile(target, keep_checksums=False) as partial:
        partial.begin(SIZE)
        extents = deliver(partial, 2, 50, 70)
    with PartialFile(target) as partial:
        assert partial.begin(SIZE, extents) == extents
        assert partial.pieces() == [Extent(50, 70, 2, zlib.adler32(CONTENT[50:70]))]


def test_extents_outside_the_file_or_over_each_other_are_dropped(target):
    adler32 = zlib.adler32(CONTENT[0:10])
    with PartialFile(target) as partial:
        partial.begin(SIZE)
        deliver(partial, 0, 0, 10)
    good = Extent(0, 10, 0, adler32)
    with PartialFile(target) as partial:
        assert partial.begin(SIZE, [Extent(0, 10, 1, 5), good, Extent(5, 9, 1), Extent(190, 201, 0)]) == [good]


def test_missing_data_file_invalidates_all_extents_even_without_checksums(target):
    with PartialFile(target, keep_checksums=False) as partial:
        partial.begin(SIZE)
        extents = deliver(partial, 0, 0, 10)
    partial.journal_path.with_name("data").unlink()
    with PartialFile(target, keep_checksums=False) as partial:
        assert partial.begin(SIZE, extents) == []
        assert partial.missing() == [(0, SIZE)]


def test_data_of_another_size_starts_over(target):
    with PartialFile(target) as partial:
        partial.begin(SIZE)
        extents = deliver(partial, 0, 0, 10)
    with PartialFile(target) as partial:
        assert partial.begin(SIZE + 1, extents) == []


def test_an_empty_file_is_whole_at_once(target):
    with PartialFile(target) as partial:
        partial.begin(0, algorithms=["sha1"])
        assert partial.missing() == []
        assert partial.digest("sha1") == hashlib.sha1(b"").hexdigest()
        assert partial.digest("adler32") == "00000001"
        partial.publish()
    assert target.read_bytes() == b""


def test_the_name_appears_only_when_the_file_is_whole(target):
    with PartialFile(target) as partial:
        partial.begin(SIZE)
        deliver(partial, 0, 0, SIZE - 1)
        with pytest.raises(RuntimeError, match="is incomplete"):
            partial.publish()
        assert not target.exists()
        deliver(partial, 0, SIZE - 1, SIZE)
        partial.publish()
    assert target.read_bytes() == CONTENT


def test_an_older_file_is_replaced_and_the_new_one_has_common_rights(target):
    target.write_bytes(b"old")
    umask = os.umask(0o027)
    try:
        with PartialFile(target) as partial:
            partial.begin(SIZE)
            fill(partial)
            assert target.read_bytes() == b"old"
            partial.publish()
    finally:
        os.umask(umask)
    assert target.read_bytes() == CONTENT
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_data_is_sparse(target):
    with PartialFile(target) as partial:
        partial.begin(1 << 30)
        partial.write(0, 1 << 29, memoryview(CONTENT))
        assert partial.journal_path.with_name("data").stat().st_blocks * 512 < 1 << 20


def test_a_digest_follows_the_front_and_survives_a_bad_replica(target):
    """The follower has read bad blocks when they are revoked; the digest is that of the good ones."""
    good = os.urandom(1 << 20) * 13
    bad = b"\0" * BLOCK
    with PartialFile(target) as partial:
        partial.begin(len(good) + 5, algorithms=["sha256"])
        partial.write(0, 0, memoryview(good)[:BLOCK])
        partial.write(1, BLOCK, memoryview(bad))
        partial.write(0, 2 * BLOCK, memoryview(good)[2 * BLOCK :])
        partial.write(0, len(good), memoryview(b"tail!"))
        assert partial.digest("sha256") != hashlib.sha256(good + b"tail!").hexdigest()
        partial.revoke(BLOCK, 2 * BLOCK)
        partial.write(2, BLOCK, memoryview(good)[BLOCK : 2 * BLOCK])
        assert partial.digest("sha256") == hashlib.sha256(good + b"tail!").hexdigest()


def test_run_without_fetched_bytes_leaves_no_files(target):
    with PartialFile(target):
        pass
    assert list(target.parent.iterdir()) == []
    with PartialFile(target) as partial:
        partial.begin(SIZE)
    assert list(target.parent.iterdir()) == []


def test_a_run_that_came_to_nothing_leaves_the_earlier_ones_bytes(target):
    with PartialFile(target) as partial:
        partial.begin(SIZE)
        extents = deliver(partial, 0, 0, 10)
    with PartialFile(target):
        pass
    with PartialFile(target) as partial:
        assert partial.begin(SIZE, extents) == extents


def test_using_it_before_begin_or_after_close_is_a_defect(target):
    with PartialFile(target) as partial, pytest.raises(RuntimeError, match="before begin"):
        deliver(partial, 0, 0, 10)
    with pytest.raises(RuntimeError, match="after close"):
        partial.publish()
    partial.close()


def test_a_failing_read_at_resume_is_reported_and_costs_nothing(target):
    with PartialFile(target) as partial:
        partial.begin(SIZE)
        extents = deliver(partial, 0, 0, 10)
    disk = FailingDisk()
    disk.reads = False
    with PartialFile(target, disk=disk) as partial, pytest.raises(SinkError, match="cannot read"):
        partial.begin(SIZE, extents)
    with PartialFile(target) as partial:
        assert partial.begin(SIZE, extents) == extents


def test_the_followers_failure_comes_out_with_the_digest(target):
    disk = FailingDisk()
    with PartialFile(target, disk=disk) as partial:
        partial.begin(2 * BLOCK, algorithms=["md5"])
        disk.reads = False
        partial.write(0, 0, memoryview(bytes(2 * BLOCK)))
        with pytest.raises(SinkError, match="Input/output error"):
            partial.digest("md5")
