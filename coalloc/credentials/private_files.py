"""Files with secrets. They are used only if no other user of this machine can have read or written them."""

import os
import stat
from pathlib import Path

__all__ = ["UnusableFile", "read_private", "why_not_private"]

LONGEST = 1 << 20
"""Maximum bytes of a file."""


class UnusableFile(Exception):
    """A file whose content must not be used. Internal: its text says why, for people."""


def why_not_private(status: os.stat_result) -> str | None:
    """Return why the content of a file must not be used; None if it may.

    Files of root are for the user if the user can read them: containers have secrets in such files.
    """
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if status.st_uid not in (os.geteuid(), 0):
        return "it belongs to another user"
    if status.st_uid == os.geteuid() and status.st_mode & 0o077:
        return f"others may read it (mode {stat.S_IMODE(status.st_mode):04o}); run chmod 600 on it"
    return "others may write it" if status.st_mode & 0o022 else None


def read_private(path: Path, *, named: bool) -> str:
    """Return the text of a file, without blanks at its ends.

    :param named: whether the user named the file: then it may be a symbolic link. Else its name is a usual one in a
        directory where others may create files, and it must be a file of this user itself.
    :raises UnusableFile: when others may have read or written it, or it is too long, or no text
    :raises OSError: when it cannot be read
    """
    links = 0 if named else os.O_NOFOLLOW
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | links), "rb") as file:  # not waiting for FIFOs
        status = os.fstat(file.fileno())
        if reason := why_not_private(status):
            raise UnusableFile(reason)
        if not named and status.st_uid != os.geteuid():
            raise UnusableFile("it belongs to another user")
        content = file.read(LONGEST + 1)
    if len(content) > LONGEST:
        raise UnusableFile(f"it has more than {LONGEST} bytes")
    try:
        return content.decode().strip()
    except UnicodeDecodeError:  # its message would show some of the secret
        raise UnusableFile("it is not UTF-8 text") from None
