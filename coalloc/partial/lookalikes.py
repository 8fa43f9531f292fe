"""Folders of fetched files that look like partial data: marked, so that nobody takes one for the other.

What is partial of `x` lies in `x.coget/`. Somebody else may call a folder so, too, and have this user fetch it; taken
for partial data, its author would write the bytes of `x`.
"""

import os
import stat
import unicodedata
from contextlib import suppress
from pathlib import Path

from coalloc.errors import SinkError

__all__ = ["FETCHED", "LOCK", "looks_partial", "mark_fetched"]

LOCK = "lock"
"""The file in a folder of partial data that says who is at it; it is made first and removed last."""
FETCHED = stat.S_ISVTX
"""The mark, which no server can set. In a folder that only its owner writes this bit means nothing else."""


def looks_partial(name: str) -> bool:
    """Whether a file system may take a folder's name for one of partial data.

    >>> [looks_partial(name) for name in ("x.coget", "X.Coget. ", "x.coget-1", "coget")]
    [True, True, False, False]
    """
    return unicodedata.normalize("NFKC", name).casefold().rstrip(" .").endswith(".coget")


def mark_fetched(path: Path, folder: int) -> None:
    """Mark an open folder, so that what is in it is nobody's partial data.

    A folder of another user is never taken for own, and needs no mark.

    :raises SinkError: if partial data is in it, or its file system has no modes
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
