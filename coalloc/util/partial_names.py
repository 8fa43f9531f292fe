"""Names under which files are written until they are complete; pure except for random numbers.

As users' files may have any name, the names of partial files must be unpredictable for other users, and must not be
mistaken for users' files. A partial file is named `.NAME.coget-KEY` and is beside the complete file. KEY depends on the
caller:

- `coget collect` to this machine: derived from the directory's random number in the user's records, and the file's
  name (`derived`); to a server: made with a random number of the job there
- a task: the numbers of the task and the work item, which are in the broker's database
- a copy to a server outside of tasks, or a file staged by another host: a random number of this run (`at_random`,
  `private`)
A single download uses the directory `NAME.coget/` beside the file instead, so that it can be continued from another
machine; directories fetched from servers that have such names are marked (`mark_fetched`).
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
"""Maximum bytes of NAME in the name of a partial file; the rest is cut off."""
SHOWN = 100
"""Maximum bytes of NAME in the name of a collected file's partial data."""
FOLDER = ".coget"
"""End of the name of a single download's directory."""
LONGEST_NAME = 255
"""Maximum bytes of a name, as on most file systems. It is fixed, so that another machine finds the same directory."""


def beside(path: str, key: str, longest: int = LONGEST) -> str:
    """Return the path of the partial file of `path` with this key.

    >>> beside("/a/run.root", "0123abcd")
    '/a/.run.root.coget-0123abcd'
    """
    parent, slash, name = path.rpartition("/")
    short = name.encode()[:longest].decode(errors="ignore")
    return f"{parent}{slash}.{short}{MARK}{key}"


def at_random(path: str) -> str:
    """Return the path of the partial file of `path` with an unpredictable key."""
    return beside(path, os.urandom(16).hex())


def private(kind: str = "") -> str:
    """Return an unpredictable name for temporary data.

    >>> private("staging")[:15], len(private())
    ('.coget-staging-', 39)
    """
    return f"{MARK}{kind and f'{kind}-'}{os.urandom(16).hex()}"


def derived(number: bytes, name: str) -> str:
    """Return the name of the directory, beside the file, for the partial data of a collected file.

    :param number: random number of the target directory
    :param name: the file's path in the target directory

    >>> derived(bytes(16), "run1/x.root")
    '.x.root.coget-721f6988ce5c9c641ab0d1ef284a792a'
    """
    import hashlib  # loads OpenSSL, which a transfer of one file does not need
    import hmac

    digest = hmac.new(number, name.encode(), hashlib.sha256).hexdigest()
    return beside(name.rpartition("/")[2], digest[:32], SHOWN)


def data_folder(path: str) -> str:
    """Return the directory beside a path for its data while the file is fetched to this machine.

    If its name would be too long for a file system, it has the beginning of the file's name, and a hash of the whole.

    >>> data_folder("/a/.run.root.coget-0123abcd-7"), data_folder("x")
    ('/a/.run.root.coget-0123abcd-7.coget', 'x.coget')
    >>> data_folder("/a/" + 250 * "x") == "/a/" + 216 * "x" + "-086d4a1c293bde318dc1fec9a21b9d82.coget"
    True
    """
    parent, slash, name = path.rpartition("/")
    spelled = name.encode(errors="surrogatepass")
    if len(spelled) <= LONGEST_NAME - len(FOLDER):
        return f"{path}{FOLDER}"
    import hashlib  # loads OpenSSL, which few transfers of one file need

    digest = hashlib.sha256(spelled).hexdigest()[:32]
    short = spelled[: LONGEST_NAME - len(FOLDER) - len(digest) - 1].decode(errors="ignore")
    return f"{parent}{slash}{short}-{digest}{FOLDER}"


LOCK = "lock"
"""Name of the lock file in a directory of partial data; it is created first and removed last."""
FETCHED = stat.S_ISVTX
"""Mode bit of the mark, which servers cannot set. It has no effect on a directory that only its owner can write."""


def looks_partial(name: str) -> bool:
    """Return whether some file system may treat a directory's name as one of partial data.

    >>> [looks_partial(name) for name in ("x.coget", "X.Coget. ", "x.coget-1", "coget")]
    [True, True, False, False]
    """
    return unicodedata.normalize("NFKC", name).casefold().rstrip(" .").endswith(FOLDER)


def mark_fetched(path: Path, folder: int) -> None:
    """Mark an open directory, so that its contents are not taken for partial data.

    A directory of another user is never used for partial data, and needs no mark.

    :raises SinkError: if it contains partial data, or its file system stores no modes
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
            f"{path} would be taken for partial data of another file, as its file system stores no modes",
            "choose another directory",
        )
