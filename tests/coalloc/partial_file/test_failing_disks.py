"""Disks that are full, small, forbidden or broken: an injected disk, and as root and with limits, real ones."""

import errno
import os
import resource
import signal
import subprocess

import pytest

from coalloc.errors import DiskFull, SinkError
from coalloc.partial_file import PartialFile
from coalloc.testing.failing_disk import FailingDisk
from coalloc.util.disk import Disk
from tests.support.mounts import small_tmpfs

CONTENT = memoryview(os.urandom(1 << 20))

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
not_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")


@pytest.fixture
def target(tmp_path):
    return tmp_path / "target"


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of one MiB."""
    with small_tmpfs(tmp_path / "small", 1 << 20) as where:
        yield where


class Blind(Disk):
    """The real disk without its free space, as with quotas and busy neighbours."""

    def free(self, directory):
        return None


@pytest.mark.parametrize(
    ("error", "reason", "remedy"),
    [
        (errno.ENOSPC, "No space left", "free some space"),
        (errno.EDQUOT, "quota", "quota"),
        (errno.EIO, "Input/output error", "disk may be failing"),
        (errno.EROFS, "Read-only", "can be written"),
        (errno.EFBIG, "too large", "ulimit"),
        (errno.ENXIO, "No such device", "another place"),
    ],
)
def test_failed_write_reports_reason_and_remedy(target, error, reason, remedy):
    with PartialFile(target, disk=FailingDisk(room=5, error=error)) as partial:
        partial.begin(100)
        with pytest.raises(SinkError, match=reason) as caught:
            partial.write(0, 0, CONTENT[:10])
        assert remedy in caught.value.remedy
        assert str(target) in caught.value.message


def test_a_write_that_failed_is_not_held_and_the_rest_goes_on_later(target):
    disk = FailingDisk(room=15)
    with PartialFile(target, disk=disk) as partial:
        partial.begin(20)
        extents = partial.write(0, 0, CONTENT[:10])
        with pytest.raises(SinkError):
            partial.write(0, 10, CONTENT[10:20])
        assert partial.missing() == [(10, 20)]
    with PartialFile(target) as partial:
        assert partial.begin(20, extents) == extents
        partial.write(0, 10, CONTENT[10:20])
        partial.publish()
    assert target.read_bytes() == CONTENT[:20]


def test_bytes_that_do_not_reach_the_medium_give_no_name(target):
    disk = FailingDisk()
    disk.syncs = False
    with PartialFile(target, disk=disk) as partial:
        partial.begin(10)
        extents = partial.write(0, 0, CONTENT[:10])
        with pytest.raises(SinkError, match="Input/output error"):
            partial.publish()
    assert not target.exists()
    with PartialFile(target) as partial:
        assert partial.begin(10, extents) == extents


def test_too_little_room_is_seen_before_the_start(target):
    free = Disk().free(target.parent)
    needed = 2 * free
    with PartialFile(target) as partial, pytest.raises(SinkError) as caught:
        partial.begin(needed)
    assert str(target.parent) in caught.value.message
    assert f"but {needed} more are needed" in caught.value.message
    assert list(target.parent.iterdir()) == []


def test_too_little_room_keeps_what_an_earlier_run_left(target):
    with PartialFile(target) as partial:
        partial.begin(100)
        extents = partial.write(0, 0, CONTENT[:10])
    with PartialFile(target) as partial, pytest.raises(DiskFull, match="needed"):
        partial.begin(1 << 60, extents)
    with PartialFile(target) as partial:
        assert partial.begin(100, extents) == extents


@as_root
def test_a_small_file_system_is_seen_before_the_start(small_disk):
    with PartialFile(small_disk / "x") as partial, pytest.raises(DiskFull, match="bytes free"):
        partial.begin(1 << 21)


@as_root
def test_resumed_bytes_need_no_free_space(small_disk):
    """800 KiB of 1000 KiB have arrived: the 200 KiB that are free must be enough."""
    size = 1000 << 10
    with PartialFile(small_disk / "x") as partial:
        partial.begin(size)
        extents = partial.write(0, 0, CONTENT[: 800 << 10])
    with PartialFile(small_disk / "x") as partial:
        assert partial.begin(size, extents) == extents
        partial.write(0, 800 << 10, CONTENT[800 << 10 : size])
        partial.publish()
    assert (small_disk / "x").read_bytes() == CONTENT[:size]


@as_root
def test_a_disk_that_gets_full_ends_with_a_state_that_can_go_on(small_disk):
    size, step, extents = 2 << 20, 64 << 10, []
    twice = memoryview(bytes(CONTENT) * 2)

    def fetch(partial):
        for start, end in partial.missing():
            for at in range(start, end, step):
                extents.extend(partial.write(0, at, twice[at : min(at + step, end)]))

    with PartialFile(small_disk / "x", disk=Blind()) as partial:
        partial.begin(size)
        with pytest.raises(DiskFull, match="No space left"):
            fetch(partial)
    assert extents
    subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
    before = list(extents)
    with PartialFile(small_disk / "x") as partial:
        assert partial.begin(size, before) == before
        fetch(partial)
        partial.publish()
    assert (small_disk / "x").read_bytes() == twice


@pytest.fixture
def file_size_limit():
    """Limit all files of this process to 64 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    yield 1 << 16
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, before)


def test_a_file_larger_than_the_limit_is_refused_at_the_start(target, file_size_limit):
    with PartialFile(target) as partial, pytest.raises(SinkError, match="File too large") as caught:
        partial.begin(file_size_limit + 1)
    assert "ulimit" in caught.value.remedy


@not_root
def test_a_directory_that_may_not_be_written(target):
    target.parent.chmod(0o555)
    with pytest.raises(SinkError, match="Permission denied"):
        PartialFile(target)


@as_root
def test_a_read_only_file_system(small_disk):
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(SinkError, match="Read-only") as caught:
        PartialFile(small_disk / "x")
    assert "choose" in caught.value.remedy
