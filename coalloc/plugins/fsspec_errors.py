"""Errors of the file system `coget://` as fsspec expects them. Pure."""

import errno
from collections.abc import Sequence

from coalloc.errors import (
    CoallocError,
    IsDirectory,
    NoSuchFile,
    NotAllowed,
    NotDirectory,
    PermissionRefused,
    ReplicaChanged,
    Stalled,
)
from coalloc.safe_text import redact

__all__ = ["as_os_error"]

KINDS: Sequence[tuple[tuple[type[CoallocError], ...], type[OSError], int]] = [
    ((IsDirectory,), IsADirectoryError, errno.EISDIR),
    ((NotDirectory,), NotADirectoryError, errno.ENOTDIR),
    ((NoSuchFile,), FileNotFoundError, errno.ENOENT),
    ((PermissionRefused, NotAllowed), PermissionError, errno.EACCES),
    ((Stalled,), TimeoutError, errno.ETIMEDOUT),
    ((ReplicaChanged,), OSError, errno.ESTALE),
]
"""Classes of coget's errors, and of Python's for them, with the error number. The first match counts."""


def as_os_error(error: CoallocError, path: str) -> OSError:
    """Return Python's error for one of coget's, with the remedy."""
    message = f"{error}: {error.remedy}" if error.remedy else str(error)
    path = "|".join(redact(each) if "://" in each else each for each in path.split("|"))
    for classes, kind, number in KINDS:
        if isinstance(error, classes):
            return kind(number, message, path)
    return OSError(errno.EIO, message, path)
