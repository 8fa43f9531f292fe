"""Another user of this machine, who creates files in directories that the test's own user will use."""

import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["OTHER", "another_user", "as_root", "set_default_acl", "shared_directory", "umask"]

OTHER = 65534
"""User id of `nobody`."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@contextmanager
def another_user() -> Iterator[None]:
    """Become another user, without any of the current groups, within the `with` block."""
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(OTHER)
    os.seteuid(OTHER)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Set another umask within the `with` block."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def shared_directory(mode: int) -> Iterator[Path]:
    """Create a directory with this mode that all users can reach.

    It is not in pytest's directories, which other users cannot enter, and which parallel tests share.
    """
    with tempfile.TemporaryDirectory(prefix="coget-shared-") as outer:
        Path(outer).chmod(0o711)
        where = Path(outer) / "shared"
        where.mkdir()
        where.chmod(mode)
        yield where


def set_default_acl(directory: Path, user: int, rights: int) -> None:
    """Grant `user` these rights to all files that are created in a directory. Skip the test without ACLs."""
    none = 0xFFFFFFFF
    entries = [(0x01, 7, none), (0x02, rights, user), (0x04, 5, none), (0x10, 7, none), (0x20, 0, none)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *each) for each in entries)
    try:
        os.setxattr(directory, "system.posix_acl_default", acl)
    except OSError as error:
        pytest.skip(f"{directory} has no ACLs: {error}")
