"""A test for names that a directory of this machine treats as equal, by making files with these names."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from coalloc.partial_file.owned_directory import DIRECTORY
from coalloc.util.disk import disk_error, in_thread
from coalloc.util.partial_names import private

__all__ = ["HeldHere", "held_in"]


class HeldHere:
    """The test for directories below a destination, which need not exist; None for the current directory."""

    def __init__(self, destination: Path | None) -> None:
        self._destination = destination or Path()

    async def __call__(self, folder: str, names: Sequence[str]) -> Mapping[str, str]:
        """Return, for each name, the first name that denotes the same file in the directory.

        :raises SinkError: if no directory can be made there
        """
        return await in_thread(_equal_names, self._destination / folder, names)


def _equal_names(folder: Path, names: Sequence[str]) -> dict[str, str]:
    # A missing directory will be made, and inherits the properties of its nearest existing parent.
    there = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
    try:
        outside = os.open(there, os.O_RDONLY | DIRECTORY)
        try:
            return held_in(outside, names)
        finally:
            os.close(outside)
    except OSError as error:
        raise disk_error(error, "write", there) from None


def held_in(directory: int, names: Sequence[str]) -> dict[str, str]:
    """Return, for each name, the first name that denotes the same file in an open directory.

    :raises OSError: if no directory can be made there
    """
    from shutil import rmtree  # imported here because few transfers need it

    name = private()
    os.mkdir(name, 0o700, dir_fd=directory)
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | DIRECTORY, dir_fd=directory)
        try:
            return _made(fd, names)
        finally:
            os.close(fd)
    finally:
        with suppress(OSError):
            rmtree(name, dir_fd=directory)


def _made(fd: int, names: Sequence[str]) -> dict[str, str]:
    """Make a file for each name, unless an earlier name denotes it. Each file contains the number of its name."""
    found: dict[str, str] = {}
    for number, name in enumerate(names):
        found[name] = name
        try:
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=fd)
        except FileExistsError:
            with suppress(OSError, ValueError):
                found[name] = names[_number(fd, name)]
        except OSError:  # an impossible name: the fetch reports it
            continue
        else:
            with os.fdopen(file, "wb") as made:
                made.write(str(number).encode())
    return found


def _number(fd: int, name: str) -> int:
    with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd), "rb") as made:
        return int(made.read())
