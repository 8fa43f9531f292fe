"""The journal as a file: its content, its cost, and its behaviour on a failing disk."""

import errno
import stat
from pathlib import Path

import pytest

from coalloc.errors import SinkError
from coalloc.model.checksums import Checksum, Extent
from coalloc.model.replicas import Stat
from coalloc.partial_file import Journal, JournalOrigin, Recollection, describe, recall
from coalloc.partial_file import journal as journal_file
from coalloc.partial_file.format import decode
from coalloc.testing.failing_disk import FailingDisk

SIZE = 4096 * 1000
URLS = ["ftp://ann:secret@a/x", "ftp://b/x"]
NOW = describe(SIZE, URLS, {1: Stat(SIZE, "v1")}, [Checksum("md5", "0" * 32)])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal"


def parts(start, count, step, source=0):
    """Return consecutive extents of zeros, whose adler32 is easy to compute."""
    return [Extent(at, at + step, source, step << 16 | 1) for at in range(start, start + count * step, step)]


def recalled(path, now=NOW):
    """Return the recalled extents, under their sources' numbers."""
    found = recall(path, now)
    return [extent._replace(source=NOW.origins.index(found.header.origins[extent.source])) for extent in found.extents]


def test_passwords_never_reach_the_disk(path):
    Journal.create(path, NOW).close()
    assert b"secret" not in path.read_bytes()
    assert NOW.origins[0].url == "ftp://ann@a/x"
    assert NOW.origins[1].validator == "v1"


def test_later_findings_on_a_replica_are_recalled(path):
    journal = Journal.create(path, NOW, parts(0, 1, 10))
    journal.identify(0, Stat(SIZE, "20260101", (Checksum("md5", "1" * 32),)))
    journal.identify(0, Stat(SIZE, "20260101", (Checksum("md5", "1" * 32),)))
    length = path.stat().st_size
    journal.identify(1, Stat(SIZE, "v1"))
    assert path.stat().st_size == length, "that was known"
    journal.close()
    (extent,) = recall(path, NOW).extents
    origin = recall(path, NOW).header.origins[extent.source]
    assert origin == JournalOrigin("ftp://ann@a/x", "20260101", (Checksum("md5", "1" * 32),))


def test_only_this_user_can_read_it(path):
    Journal.create(path, NOW).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_appended_and_revoked_extents_are_recalled(path):
    journal = Journal.create(path, NOW, parts(0, 2, 500))
    journal.append(parts(2000, 3, 500, source=1))
    journal.revoke(0, 400)
    journal.append(parts(0, 1, 400, source=1))
    journal.close()
    extents = [*parts(500, 1, 500), Extent(2000, 3500, 1, 1500 << 16 | 1), *parts(0, 1, 400, source=1)]
    assert recalled(path) == extents
    assert recall(path, NOW).trouble is None


def test_records_are_written_once_they_are_worth_it(path):
    """A 4096th of this file is 1000 bytes: that much is collected and merged before a write."""
    journal = Journal.create(path, NOW)
    journal.append(parts(0, 3, 300))
    assert decode(path.read_bytes()).extents == ()
    journal.append(parts(5000, 1, 100, source=1))
    assert set(decode(path.read_bytes()).extents) == {Extent(0, 900, 0, 900 << 16 | 1), *parts(5000, 1, 100, source=1)}
    journal.close()


def test_unrecorded_bytes_are_bounded_for_any_number_of_streams(path):
    journal = Journal.create(path, NOW)
    noted = 0
    for i in range(8):
        for stream in range(40):
            journal.append(parts(stream * 100_000 + i * 90, 1, 90))
            noted += 90
            recorded = sum(e.end - e.start for e in decode(path.read_bytes()).extents)
            assert noted - recorded < SIZE // 4096
    journal.close()


def test_a_new_journal_replaces_the_old_one_in_one_step(path):
    first = Journal.create(path, NOW, parts(0, 1, 10))
    Journal.create(path, NOW, parts(10, 2, 10)).close()
    first.revoke(0, SIZE)
    first.close()
    assert recalled(path) == parts(10, 2, 10)
    assert [entry.name for entry in path.parent.iterdir()] == ["journal"]


def test_missing_journal_recalls_no_extents(path):
    assert recall(path, NOW) == Recollection(NOW)


def test_a_damaged_one_is_copied_and_used_as_far_as_it_is_right(path):
    Journal.create(path, NOW, parts(0, 5, 10)).close()
    broken = bytearray(path.read_bytes())
    broken[-3] ^= 1
    path.write_bytes(broken)
    found = recall(path, NOW)
    assert [extent._replace(source=0) for extent in found.extents] == parts(0, 4, 10)
    assert "a corrupt record" in found.trouble
    assert path.with_name("journal.broken").read_bytes() == broken


def test_one_of_another_version_is_copied_and_not_used(path):
    path.write_bytes(b"coget journal 2\nwhatever")
    found = recall(path, NOW)
    assert (found.header, found.extents) == (NOW, ())
    assert "its version, 2, is not 1" in found.trouble
    assert path.with_name("journal.broken").exists()
    assert not path.exists(), "it would vouch for data that is written over"


def test_journal_of_another_file_is_removed_with_a_reason(path):
    Journal.create(path, NOW, parts(0, 5, 10)).close()
    other = describe(SIZE + 1, URLS, {}, [])
    found = recall(path, other)
    assert (found.header, found.extents) == (other, ())
    assert f"{SIZE + 1} bytes since" in found.trouble
    assert list(path.parent.iterdir()) == []


def test_extents_without_checksum_live_as_long_as_the_boot(path, monkeypatch):
    Journal.create(path, NOW, [Extent(0, 10, 0), *parts(10, 1, 10)]).close()
    assert len(recall(path, NOW).extents) == 2
    monkeypatch.setattr(journal_file, "_boot", lambda: "after a power cut")
    later = describe(SIZE, URLS, {}, [])
    assert recalled(path, later) == parts(10, 1, 10)


def test_the_boot_is_the_kernels():
    assert NOW.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_record_that_was_cut_short_by_a_full_disk_is_written_over(path):
    disk = FailingDisk()
    journal = Journal.create(path, NOW, disk=disk)
    disk.room = 20
    with pytest.raises(SinkError, match="No space left"):
        journal.append(parts(0, 1, 1000))
    assert decode(path.read_bytes()).trouble, "a part of the record is there"
    disk.room = None
    journal.append(parts(1000, 1, 1000))
    journal.close()
    assert recalled(path) == [Extent(0, 2000, 0, 2000 << 16 | 1)]
    assert recall(path, NOW).trouble is None


def test_writes_that_are_short_are_continued(path):
    journal = Journal.create(path, NOW, parts(0, 3, 10), disk=FailingDisk(most=7))
    journal.append(parts(5000, 1, 2000))
    journal.close()
    assert recalled(path) == [*parts(0, 3, 10), *parts(5000, 1, 2000)]


def test_closing_on_a_full_disk_does_not_hide_why_the_transfer_ended(path):
    disk = FailingDisk()
    journal = Journal.create(path, NOW, disk=disk)
    journal.append(parts(0, 1, 10))
    disk.room = 0
    journal.close()
    journal.close()
    with pytest.raises(RuntimeError, match="after close"):
        journal.revoke(0, 1)
    assert recall(path, NOW).extents == ()


@pytest.mark.parametrize("room", [0, 10, 200])
def test_a_journal_that_cannot_be_begun_leaves_the_old_one(path, room):
    Journal.create(path, NOW, parts(0, 5, 10)).close()
    with pytest.raises(SinkError, match="cannot write"):
        Journal.create(path, NOW, parts(0, 9, 10), disk=FailingDisk(room=room, error=errno.EDQUOT))
    assert recalled(path) == parts(0, 5, 10)


def test_a_journal_that_does_not_reach_the_medium_leaves_the_old_one(path):
    Journal.create(path, NOW, parts(0, 5, 10)).close()
    disk = FailingDisk()
    disk.syncs = False
    with pytest.raises(SinkError, match="Input/output error"):
        Journal.create(path, NOW, disk=disk)
    assert recalled(path) == parts(0, 5, 10)


def test_a_journal_that_is_no_file_is_an_error_of_the_disk(path):
    path.mkdir()
    with pytest.raises(SinkError, match="Is a directory"):
        recall(path, NOW)
    with pytest.raises(SinkError, match="cannot write"):
        Journal.create(path, NOW)
    with pytest.raises(SinkError, match="cannot write"):
        Journal.create(path / "no" / "journal", NOW)
