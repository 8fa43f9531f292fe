"""Existing targets: no link makes another user's file pass for one."""

import hashlib
import os
import zlib

import pytest

from coalloc.errors import SinkError
from coalloc.model.checksums import Checksum, PieceHashes
from coalloc.partial_file import is_comparable, matching_bytes, resembles

CONTENT = b"content"
WANTED = Checksum("sha256", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def base(tmp_path):
    for folder in ("base", "base/inner", "elsewhere"):
        (tmp_path / folder).mkdir()
    for file in ("base/inner/file", "elsewhere/file"):
        (tmp_path / file).write_bytes(CONTENT)
    (tmp_path / "base" / "link").symlink_to(tmp_path / "elsewhere" / "file")
    (tmp_path / "base" / "out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "base" / "loop").symlink_to("loop")
    (tmp_path / "base" / "nowhere").symlink_to("gone/x")
    os.mkfifo(tmp_path / "base" / "fifo")
    return tmp_path / "base"


@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_a_file_is_found_by_its_size_and_its_checksum(base, size):
    target = base / "inner" / "file"
    for within in (None, base, base / "inner"):
        assert resembles(target, size, within)
        assert matching_bytes(target, WANTED, size, within) == len(CONTENT)
        assert matching_bytes(target, Checksum("md5", "0" * 32), size, within) is None
        assert matching_bytes(target, WANTED, 3, within) is None


@pytest.mark.parametrize(
    "name", ["inner", "link", "loop", "nowhere", "fifo", "missing", "missing/x", "loop/x", "inner/file/x"]
)
def test_links_directories_and_missing_paths_are_no_existing_target(base, name):
    assert not resembles(base / name, None, base)
    assert matching_bytes(base / name, WANTED, None, base) is None


def test_a_link_to_a_file_will_do_where_the_user_named_it(base):
    assert matching_bytes(base / "link", WANTED, None) == len(CONTENT)


def test_a_folder_that_is_a_link_is_not_left_through(base):
    for look in (
        lambda: resembles(base / "out" / "file", None, base),
        lambda: matching_bytes(base / "out" / "file", WANTED, None, base),
    ):
        with pytest.raises(SinkError, match="symbolic link"):
            look()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
@pytest.mark.parametrize("within", [True, False])
def test_a_checksum_that_is_easily_forged_does_not_vouch_for_a_file_of_another_user(base, within):
    target, bounds = base / "inner" / "file", base if within else None
    weak = Checksum("adler32", f"{zlib.adler32(CONTENT):08x}")
    for wanted in (weak, WANTED):
        assert is_comparable(target, wanted, bounds)
        assert matching_bytes(target, wanted, None, bounds) == len(CONTENT)
    os.chown(target, 12345, -1)
    assert not is_comparable(target, weak, bounds)
    assert matching_bytes(target, weak, None, bounds) is None
    assert is_comparable(target, WANTED, bounds)
    assert matching_bytes(target, WANTED, None, bounds) == len(CONTENT)


@pytest.mark.parametrize("length", [1, 2, 6, 7, 8])
def test_a_file_is_found_by_the_hashes_of_its_pieces(base, length):
    def hashes(content):
        parts = (content[start : start + length] for start in range(0, len(content), length))
        return PieceHashes("sha256", length, tuple(hashlib.sha256(part).hexdigest() for part in parts))

    target = base / "inner" / "file"
    assert matching_bytes(target, hashes(CONTENT), len(CONTENT), base) == len(CONTENT)
    for other in (CONTENT[:-1], b"Content", CONTENT + b"s", b""):
        assert matching_bytes(target, hashes(other), None, base) is None
