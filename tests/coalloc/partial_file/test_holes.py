"""Sparse files stay sparse: long runs of zeros take no blocks, whatever was at their place before."""

import errno
import hashlib
import os
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.errors import SinkError
from coalloc.model.checksums import Extent
from coalloc.partial_file import PartialFile
from coalloc.partial_file.holes import STEP, zero_runs
from coalloc.testing.failing_disk import FailingDisk
from coalloc.util.disk import Disk

MIB = 1 << 20
NOISE = random.Random(4).randbytes(MIB)
CONTENT = NOISE + bytes(14 * MIB) + NOISE
CHUNK = 300_001


class NoPunching(Disk):
    """A disk that cannot punch holes."""

    def punch(self, fd, offset, length, /):
        raise OSError(errno.EOPNOTSUPP, "no")


@pytest.fixture
def target(tmp_path):
    (tmp_path / "probe").touch()
    os.truncate(tmp_path / "probe", MIB)
    if (tmp_path / "probe").stat().st_blocks:
        pytest.skip("this file system has no holes")
    (tmp_path / "probe").unlink()
    return tmp_path / "target"


SIZE = len(CONTENT)


def fill(partial, start=0, end=SIZE, content=CONTENT):
    for at in range(start, end, CHUNK):
        partial.write(0, at, memoryview(content)[at : min(at + CHUNK, end)])


def blocks(path):
    return path.stat().st_blocks * 512


def test_a_sparse_file_stays_sparse_and_has_the_checksums_of_all_its_bytes(target):
    with PartialFile(target) as partial:
        partial.begin(len(CONTENT), algorithms=["sha256"])
        fill(partial)
        assert partial.digest("adler32") == f"{zlib.adler32(CONTENT):08x}"
        assert partial.digest("sha256") == hashlib.sha256(CONTENT).hexdigest()
        partial.publish()
    assert target.read_bytes() == CONTENT
    assert 2 * MIB <= blocks(target) < 3 * MIB


@pytest.mark.parametrize(("disk", "most"), [(Disk(), 3 * MIB), (NoPunching(), 17 * MIB)])
def test_zeros_replace_what_an_earlier_run_or_a_liar_wrote_there(target, disk, most):
    """An earlier run left noise that it did not record; wrong bytes are revoked, and come again as zeros."""
    noise = (NOISE * 16)[: len(CONTENT)]
    with PartialFile(target, disk=disk) as partial:
        partial.begin(len(CONTENT))
        fill(partial, 0, 8 * MIB, noise)
    with PartialFile(target, disk=disk) as partial:
        partial.begin(len(CONTENT), [Extent(0, MIB, 0, zlib.adler32(NOISE))])
        fill(partial, 8 * MIB, 12 * MIB, noise)
        partial.revoke(8 * MIB, 12 * MIB)
        fill(partial)
        assert partial.digest("md5") == hashlib.md5(CONTENT).hexdigest()
        partial.publish()
    assert target.read_bytes() == CONTENT
    assert blocks(target) < most


def test_a_full_disk_takes_a_sparse_file(target):
    with PartialFile(target, disk=FailingDisk(room=3 * MIB)) as partial:
        partial.begin(len(CONTENT))
        fill(partial)
        partial.publish()
    with PartialFile(target, disk=FailingDisk(room=3 * MIB)) as partial:
        partial.begin(len(CONTENT))
        with pytest.raises(SinkError):
            fill(partial, content=(NOISE * 16)[: len(CONTENT)])


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 4 * STEP)), max_size=6))
def test_only_zeros_are_found_and_no_long_run_is_missed(parts):
    data = b"".join(bytes(count) if zero else b"\0" * (count - 1) + b"x" for zero, count in parts)
    runs = zero_runs(memoryview(data))
    assert not any(data[start:end].strip(b"\0") for start, end in runs)
    assert runs == sorted(runs)
    covered = {start for first, last in runs for start in range(first, last, STEP)}
    for start in range(0, len(data) - STEP + 1, STEP):
        assert (start in covered) == (not data[start : start + STEP].strip(b"\0"))
