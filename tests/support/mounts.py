"""Mounts for tests: small file systems that can be filled, and a name service that does not answer."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["caseless", "silent_names", "small_tmpfs"]

SILENT = "127.53.53.53"


@contextmanager
def small_tmpfs(where: Path, size: int) -> Iterator[Path]:
    """Mount a file system of `size` bytes in memory at `where`. Skip the test without root."""
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "coget-test", str(where)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=True)


@contextmanager
def caseless(where: Path) -> Iterator[Path]:
    """Mount an exFAT file system, which treats names that differ only in case as equal. Skip the test without root."""
    where.mkdir()
    image = where.with_suffix(".exfat")
    with image.open("wb") as file:
        file.truncate(16 << 20)
    device = ""
    try:
        _run("mkfs.exfat", str(image))
        device = _run("losetup", "--find", "--show", str(image)).strip()
        _run("mount.exfat-fuse", device, str(where))
    except (OSError, subprocess.CalledProcessError) as error:
        if device:
            _run("losetup", "--detach", device)
        pytest.skip(f"no exFAT can be mounted here: {error}")
    try:
        yield where
    finally:
        _run("umount", "--lazy", str(where))  # a server that has just ended may still use it
        _run("losetup", "--detach", device)


def _run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@contextmanager
def silent_names(folder: Path) -> Iterator[list[str]]:
    """Yield a command prefix under which name queries get no answers. Skip the test without root."""
    resolver = folder / "resolv.conf"
    resolver.write_text(f"nameserver {SILENT}\noptions timeout:30 attempts:5\n")
    mounted = f"mount --bind {resolver} /etc/resolv.conf"
    prefix = ["unshare", "--mount", "sh", "-c", f'{mounted} && exec "$@"', "sh"]
    tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"nothing can be mounted here: {tried.stderr.strip()}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((SILENT, 53))
        yield prefix
