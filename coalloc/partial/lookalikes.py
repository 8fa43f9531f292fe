"""Fetched folders whose names look like partial data: marked, so that they are not mistaken for it.

The partial data of `x` is in `x.coget/`. Another user may give a folder such a name, and have this user fetch it; if it
were taken for partial data, that user would choose the bytes of `x`.
"""

import os
import stat
import unicodedata
from contextlib import suppress
from pathlib import Path

from coalloc.errors import SinkError

__all__ = ["FETCHED", "LOCK", "looks_partial", "mark_fetched"]

LOCK = "lock"
"""Lock file in a folder of partial data; it is made first and removed last."""
FETCHED = stat.S_ISVTX
"""The mark, which no server can set. In a folder that only its owner can write this bit has no other meaning."""


def looks_partial(name: str) -> bool:
    """Return whether a file system may treat a folder's name as one of partial data.

    >>> [looks_partial(name) for name in ("x.coget", "X.Coget. ", "x.coget-1", "coget")]
    [True, True, False, False]
    """
    return unicodedata.normalize("NFKC", name).casefold().rstrip(" .").endswith(".coget")


def mark_fetched(path: Path, folder: int) -> None:
    """Mark an open folder, so that its contents are not taken for partial data.

    A folder of another user is never used for partial data, and needs no mark.

    :raises SinkError: if it contains partial data, or its file system has no modes
    :raises OSError: if the system refuses
    """
    found = os.fstat(folder)
    if found.st_mode & FETCHED:
        return
    with suppress(FileNotFoundError):
        os.stat(LOCK, dir_fd=folder, follow_symlinks=False)
        raise SinkError(f"{path} has partial data of another file in it", "end that fetch, or remove or rename it")
    with suppress(PermissionError):
        Path(f"/proc/self/fd/{folder}").chmod(stat.S_IMODE(found.st_mode) | FETCHED)  # fchmod refuses O_PATH
    if not os.fstat(folder).st_mode & FETCHED and found.st_uid == os.geteuid():
        raise SinkError(
            f"{path} would be taken for partial data of another file, as its file system keeps no modes",
            "choose another directory",
        )
