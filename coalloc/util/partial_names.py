"""Names under which files are written until they are complete; pure but for random numbers.

Users' files may have any name. So these names must be unpredictable for other users, and must not be mistaken for
theirs. One rule for all: beside the file is `.NAME.coget-KEY`, whose key is a random number, recorded if it has to be
found again.

- `coget` is started again in the same place, perhaps on another machine: `NAME.coget/` beside the file, users'
  folders of such names are marked (`mark_fetched`).
- `coget collect`: derived from the directory's number in the user's records, and from the file (`derived`).
- a task: its own number, and that of the work item, which are in the broker's database.
- a copy to a server outside of tasks, and files staged by other hosts: a number that only this run knows
  (`at_random`, `private`).
"""

import os
import stat
import unicodedata
from contextlib import suppress
from pathlib import Path

from coalloc.errors import SinkError

__all__ = [
    "FETCHED",
    "LOCK",
    "LONGEST",
    "MARK",
    "at_random",
    "beside",
    "data_folder",
    "derived",
    "looks_partial",
    "mark_fetched",
    "private",
]

MARK = ".coget-"
LONGEST = 180
"""Bytes of a name to which more can still be added."""
SHOWN = 100
"""Bytes of a collected file's name in that of its partial data."""


def beside(path: str, key: str, longest: int = LONGEST) -> str:
    """Return the name beside a path that has this key.

    >>> beside("/a/run.root", "0123abcd")
    '/a/.run.root.coget-0123abcd'
    """
    parent, slash, name = path.rpartition("/")
    short = name.encode()[:longest].decode(errors="ignore")
    return f"{parent}{slash}.{short}{MARK}{key}"


def at_random(path: str) -> str:
    """Return an unpredictable name beside a path."""
    return beside(path, os.urandom(16).hex())


def private(kind: str = "") -> str:
    """Return an unpredictable name for temporary data.

    >>> private("staging")[:15], len(private())
    ('.coget-staging-', 39)
    """
    return f"{MARK}{kind and f'{kind}-'}{os.urandom(16).hex()}"


def derived(number: bytes, name: str) -> str:
    """Return the name of the folder, beside the file, for the partial data of a collected file.

    >>> derived(bytes(16), "run1/x.root")
    '.x.root.coget-721f6988ce5c9c641ab0d1ef284a792a'
    """
    import hashlib  # OpenSSL's tables, which a transfer of one file does without
    import hmac

    digest = hmac.new(number, name.encode(), hashlib.sha256).hexdigest()
    return beside(name.rpartition("/")[2], digest[:32], SHOWN)


def data_folder(path: str) -> str:
    """Return the folder beside a path for its data while they are fetched to this machine.

    >>> data_folder("/a/.run.root.coget-0123abcd-7"), data_folder("x")
    ('/a/.run.root.coget-0123abcd-7.coget', 'x.coget')
    """
    return f"{path}.coget"


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
        raise SinkError(f"{path} contains partial data of another file", "end that fetch, or remove or rename it")
    with suppress(PermissionError):
        Path(f"/proc/self/fd/{folder}").chmod(stat.S_IMODE(found.st_mode) | FETCHED)  # fchmod refuses O_PATH
    if not os.fstat(folder).st_mode & FETCHED and found.st_uid == os.geteuid():
        raise SinkError(
            f"{path} would be taken for partial data of another file, as its file system keeps no modes",
            "choose another directory",
        )
