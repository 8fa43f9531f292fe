"""Publishing: the name appears by one rename, which replaces a file only with permission."""

import errno
import os

import pytest

from coalloc.errors import SinkError, TargetExists
from coalloc.partial_file import PartialFile
from coalloc.util.disk import Disk

CONTENT = b"what was fetched"


class Older(Disk):
    """A file system without some calls: `lacks` are their names."""

    def __init__(self, *lacks, error=errno.EINVAL):
        self.lacks = lacks
        self.error = error

    def rename_new(self, *names):
        if "rename_new" in self.lacks:
            raise OSError(self.error, os.strerror(self.error))
        super().rename_new(*names)

    def link(self, *names):
        if "link" in self.lacks:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        super().link(*names)


DISKS = [Older(), Older("rename_new"), Older("rename_new", error=errno.ENOSYS), Older("rename_new", "link")]


@pytest.fixture
def target(tmp_path):
    return tmp_path / "x"


def fetched(target, disk=None):
    partial = PartialFile(target, disk=disk)
    partial.begin(len(CONTENT))
    partial.write(0, 0, memoryview(CONTENT))
    return partial


@pytest.mark.parametrize("disk", DISKS)
def test_a_new_name_is_given_on_every_file_system(target, disk):
    with fetched(target, disk) as partial:
        partial.publish(replace=False)
    assert target.read_bytes() == CONTENT
    assert target.stat().st_nlink == 1
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("disk", DISKS)
@pytest.mark.parametrize("kind", ["file", "link", "dangling", "directory", "fifo"])
def test_existing_target_stays_without_permission_to_replace_it(target, tmp_path, disk, kind):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    make = {
        "file": lambda: target.write_bytes(b"old"),
        "link": lambda: target.symlink_to(victim),
        "dangling": lambda: target.symlink_to("nowhere"),
        "directory": target.mkdir,
        "fifo": lambda: os.mkfifo(target),
    }
    with fetched(target, disk) as partial:
        make[kind]()
        before = target.lstat()
        with pytest.raises(TargetExists, match="exists, with other content") as caught:
            partial.publish(replace=False)
    assert caught.value.status == 7
    assert os.path.samestat(before, target.lstat())
    assert victim.read_bytes() == b"precious"
    assert not (tmp_path / "nowhere").exists()
    assert target.with_name("x.coget").joinpath("data").read_bytes() == CONTENT, "it stays for a later run"


@pytest.mark.parametrize("replace", [True, False])
def test_the_link_is_replaced_and_not_what_it_leads_to(target, tmp_path, replace):
    (tmp_path / "victim").write_bytes(b"precious")
    target.symlink_to(tmp_path / "victim")
    with fetched(target) as partial:
        if not replace:
            target.unlink()
        partial.publish(replace=replace)
    assert not target.is_symlink()
    assert target.read_bytes() == CONTENT
    assert (tmp_path / "victim").read_bytes() == b"precious"


def test_a_crash_between_the_two_names_is_cleared_up(target):
    """NFS can leave this state: the file has both its names."""

    class Crash(Exception):
        pass

    class Crashing(Older):
        def link(self, *names):
            super().link(*names)
            raise Crash

    partial = fetched(target, Crashing("rename_new"))
    with pytest.raises(Crash):
        partial.publish(replace=False)
    partial.close()
    assert target.stat().st_nlink == 2
    with PartialFile(target):
        pass
    assert target.read_bytes() == CONTENT
    assert target.stat().st_nlink == 1
    assert list(target.parent.iterdir()) == [target]


def test_a_server_that_lost_its_answer_has_given_the_name(target):
    class Repeating(Older):
        def link(self, *names):
            super().link(*names)
            super().link(*names)

    with fetched(target, Repeating("rename_new")) as partial:
        partial.publish(replace=False)
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


def test_a_disk_that_fails_is_not_taken_for_one_that_knows_less(target):
    with fetched(target, Older("rename_new", error=errno.EIO)) as partial, pytest.raises(SinkError, match="output"):
        partial.publish(replace=False)
    assert not target.exists()


def test_a_rename_that_fails_leaves_no_empty_file(target):
    class Failing(Older):
        def rename(self, *names):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with fetched(target, Failing("rename_new", "link")) as partial, pytest.raises(SinkError):
        partial.publish(replace=False)
    assert not target.exists()


@pytest.mark.parametrize("replace", [True, False])
def test_data_that_were_exchanged_get_no_name(target, replace):
    with fetched(target) as partial:
        data = target.with_name("x.coget") / "data"
        data.unlink()
        data.write_bytes(b"other")
        with pytest.raises(SinkError, match="replaced by another program"):
            partial.publish(replace=replace)
    assert not target.exists()
