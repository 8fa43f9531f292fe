"""Names under which files are written until they are complete; pure but for random numbers.

Users' files may have any name. So these names must be unpredictable for other users, and must not be mistaken for
theirs. One rule for all: beside the file is `.NAME.coget-KEY`, whose key is a random number, recorded if it has to be
found again.

- `coget` is started again in the same place, perhaps on another machine: `NAME.coget/` beside the file, which
  `lookalikes` tells apart from users' folders of such names.
- `coget collect`: derived from the directory's number in the user's records, and from the file (`derived`).
- a task: its own number, and that of the work item, which are in the broker's database.
- a copy to a server outside of tasks, and files staged by other hosts: a number that only this run knows
  (`at_random`, `private`).
"""

import os

__all__ = ["LONGEST", "MARK", "at_random", "beside", "data_folder", "derived", "private"]

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
