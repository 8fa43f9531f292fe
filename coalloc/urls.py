"""URLs as people may see them."""

import re
from urllib.parse import urlsplit, urlunsplit

__all__ = ["redact"]


def redact(url: str) -> str:
    """The URL without its password, for messages, reports and files.

    >>> redact("ftp://ann:secret@host/file")
    'ftp://ann@host/file'

    Never fails: messages about malformed URLs show them too.

    >>> redact("ftp://ann:secret@[host/file")
    'ftp://[host/file'
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # all before an @ may be a password
        return re.sub("//[^/]*@", "//", url)
    if parts.password is None:
        return url
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}@{host}"))
