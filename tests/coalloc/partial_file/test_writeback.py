"""Writeback: fetched bytes go to the medium before the end, and failures of it have no effect."""

import threading

import pytest

from coalloc.partial_file import PartialFile, sparse_file
from coalloc.partial_file.sparse_file import WriteBack
from coalloc.util.disk import Disk
from tests.support.waiting import PATIENCE, wait_until

UNIT = 1000


@pytest.fixture(autouse=True)
def small_units(monkeypatch):
    monkeypatch.setattr(sparse_file, "UNIT", UNIT)


class Watched(Disk):
    """The real disk, which records calls, and can be set to fail or to be slow."""

    def __init__(self, error=None):
        self.asked = []
        self.error = error
        self.free_to_go = threading.Event()
        self.free_to_go.set()

    def start_writing(self, fd, offset, length):
        self.asked.append((offset, offset + length))
        assert self.free_to_go.wait(PATIENCE)
        if self.error:
            raise self.error
        super().start_writing(fd, offset, length)


def test_fetched_bytes_are_written_back_while_the_rest_is_fetched(tmp_path):
    disk, content = Watched(), bytes(range(250)) * 20
    with PartialFile(tmp_path / "target", disk=disk) as partial:
        partial.begin(len(content))
        for at in (0, 3000, 500, 3500):  # two sources, alternating
            partial.write(0, at, memoryview(content)[at : at + 500])
        wait_until(lambda: len(disk.asked) == 4)
        assert disk.asked == [(0, 500), (3000, 3500), (500, 1000), (3500, 4000)]
        for start, end in partial.missing():
            partial.write(0, start, memoryview(content)[start:end])
        partial.publish()
    assert (tmp_path / "target").read_bytes() == content


def test_the_last_bytes_are_on_their_way_before_the_file_gets_its_name(tmp_path):
    disk = Watched()
    with PartialFile(tmp_path / "target", disk=disk) as partial:
        partial.begin(UNIT - 1)
        partial.write(0, 0, memoryview(bytes(10)))
        assert "coget-writeback" not in {thread.name for thread in threading.enumerate()}
        partial.write(0, 10, memoryview(bytes(UNIT - 11)))
        wait_until(lambda: disk.asked == [(0, UNIT - 1)])
        partial.publish()


def test_a_refusal_is_left_to_the_sync(tmp_path):
    disk = Watched(OSError("not here"))
    with PartialFile(tmp_path / "target", disk=disk) as partial:
        partial.begin(2 * UNIT)
        partial.write(0, 0, memoryview(bytes(UNIT)))
        partial.write(0, UNIT, memoryview(bytes(UNIT)))
        wait_until(lambda: len(disk.asked) == 2)
        partial.publish()
    assert (tmp_path / "target").read_bytes() == bytes(2 * UNIT)


def test_closing_waits_for_one_unit_at_most(tmp_path):
    disk = Watched()
    disk.free_to_go.clear()
    with (tmp_path / "file").open("wb") as file:
        behind = WriteBack(file.fileno(), disk)
        for at in range(0, 5 * UNIT, UNIT):
            behind.wrote(at, at + UNIT)
        wait_until(lambda: disk.asked)
        closing = threading.Thread(target=behind.close)
        closing.start()
        wait_until(lambda: behind._stopped)
        disk.free_to_go.set()
        closing.join(PATIENCE)
        assert not closing.is_alive()
    assert disk.asked == [(0, UNIT)]
    assert "coget-writeback" not in {thread.name for thread in threading.enumerate()}
