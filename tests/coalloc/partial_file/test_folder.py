"""Access to a target: one process at a time, and only where a file can exist."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading

import pytest

from coalloc.errors import SinkError, TargetInUse
from coalloc.partial_file import PartialFile
from coalloc.partial_file.folder import PartialFolder, discard
from tests.support.mounts import caseless
from tests.support.waiting import PATIENCE

HOLD = """
import sys
from pathlib import Path
from coalloc.partial_file.folder import PartialFolder
folder = PartialFolder(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def target(tmp_path):
    return tmp_path / "target"


@contextlib.contextmanager
def another_process_holds(target):
    """Start a child that has the lock until it is killed or the block ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, target], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout.readline() == "locked\n"
            yield child
        finally:
            child.kill()


def test_second_process_is_refused_with_a_remedy(target):
    with another_process_holds(target), pytest.raises(TargetInUse, match="target") as caught:
        PartialFolder(target)
    assert caught.value.status == 8
    assert "choose another name" in caught.value.remedy


def test_the_lock_ends_with_its_process_even_by_sigkill(target):
    with another_process_holds(target) as child:
        child.send_signal(signal.SIGKILL)
        child.wait(PATIENCE)
        PartialFolder(target).unlock()


def test_data_discarded_during_a_fetch_is_never_published(target):
    target.write_bytes(b"theirs")
    with PartialFile(target, beside=".mine") as partial:
        partial.begin(4)
        partial.write(0, 0, memoryview(b"late"))
        assert discard(target, beside=".mine")
        with pytest.raises(SinkError):
            partial.publish()
    assert target.read_bytes() == b"theirs"
    assert discard(target, beside=".mine")  # nothing is there
    assert list(target.parent.iterdir()) == [target]


def test_discard_does_not_follow_a_link(target, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "data").touch()
    target.with_name("target.coget").symlink_to("elsewhere")
    discard(target)
    assert (tmp_path / "elsewhere" / "data").exists()


def test_within_one_process_too(target):
    with PartialFile(target), pytest.raises(TargetInUse):
        PartialFile(target)
    PartialFile(target).close()


def test_refused_process_removes_no_files(target):
    with PartialFile(target) as partial:
        partial.begin(2)
        partial.write(0, 0, memoryview(b"a"))
        with pytest.raises(TargetInUse):
            PartialFile(target)
        partial.write(0, 1, memoryview(b"b"))
        partial.publish()
        with PartialFile(target) as next_one:
            partial.close()
            assert next_one.journal_path.parent.exists(), "closing twice must not touch the next one's directory"


def test_many_at_the_same_door_are_never_two_inside(target):
    """Threads lock, look, remove and unlock in a tight loop; flock distinguishes open files, not processes."""
    inside, most, turns = [], [], []

    def visit():
        for _ in range(150):
            try:
                folder = PartialFolder(target)
            except TargetInUse:
                continue
            inside.append(folder)
            most.append(len(inside))
            marker = os.open(folder.path / "data", os.O_CREAT | os.O_EXCL)
            os.close(marker)
            inside.remove(folder)
            folder.remove()
            turns.append(folder)

    threads = [threading.Thread(target=visit) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert turns
    assert max(most) == 1


def refusal(target):
    with pytest.raises(SinkError) as caught:
        PartialFile(target)
    assert caught.value.status == 6
    assert caught.value.remedy
    return caught.value.message


def test_a_directory_cannot_be_the_target(tmp_path):
    assert refusal(tmp_path) == f"{tmp_path} is a directory"


def test_a_device_is_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "is not a plain file" in refusal(tmp_path / "pipe")
    assert not (tmp_path / "pipe.coget").exists()


def test_a_directory_that_is_not_there_is_named(tmp_path):
    assert refusal(tmp_path / "no" / "x") == f"cannot create {tmp_path}/no/x.coget: No such file or directory"


def test_a_file_where_a_directory_should_be(tmp_path):
    (tmp_path / "file").touch()
    assert "Not a directory" in refusal(tmp_path / "file" / "x")
    (tmp_path / "x.coget").touch()
    (tmp_path / "y.coget").symlink_to("nowhere")
    for name in "xy":
        assert f"{name}.coget is needed for partial data" in refusal(tmp_path / name)


def test_a_name_that_is_too_long(tmp_path):
    assert "File name too long" in refusal(tmp_path / ("n" * 256))


def test_a_name_that_the_file_system_does_not_have(tmp_path):
    with caseless(tmp_path / "exfat") as mounted:
        for name in ("a:b", "what?", 'a"b'):
            with pytest.raises(SinkError, match="does not accept this name") as refused:
                PartialFolder(mounted / name)
            assert "choose a name without" in refused.value.remedy
        assert not list(mounted.iterdir())
        PartialFolder(mounted / "ab").unlock()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_that_locks_nothing_is_named_with_what_to_do(tmp_path, target, monkeypatch, number):
    def flock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(SinkError, match="cannot lock") as caught:
        PartialFile(target)
    assert "flock" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_a_lock_or_data_that_is_a_link_is_not_followed(tmp_path, target):
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "target.coget").mkdir()
    (tmp_path / "target.coget" / "lock").symlink_to(tmp_path / "victim")
    assert "symbolic links" in refusal(target)
    (tmp_path / "target.coget" / "lock").unlink()
    (tmp_path / "target.coget" / "lock").touch()
    (tmp_path / "target.coget" / "data").symlink_to(tmp_path / "victim")
    with PartialFile(target) as partial, pytest.raises(SinkError, match="symbolic links"):
        partial.begin(5)
    assert (tmp_path / "victim").read_bytes() == b"precious"


def test_foreign_entries_in_the_directory_do_not_fail_the_transfer(target):
    with PartialFile(target) as partial:
        partial.begin(1)
        partial.write(0, 0, memoryview(b"a"))
        (partial.journal_path.parent / "subdirectory").mkdir()
        partial.publish()
    assert target.read_bytes() == b"a"
