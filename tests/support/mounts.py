"""Small file systems for tests, so that disks can be full for real."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["small_tmpfs"]


@contextmanager
def small_tmpfs(where: Path, size: int) -> Iterator[Path]:
    """A file system of `size` bytes in memory, mounted at `where`; needs root."""
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "coget-test", str(where)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=True)
