"""URLs as people may see them."""

from urllib.parse import urlsplit, urlunsplit

__all__ = ["redact"]


def redact(url: str) -> str:
    """The URL without its password, for messages, reports and files.

    >>> redact("ftp://ann:secret@host/file")
    'ftp://ann@host/file'
    """
    parts = urlsplit(url)
    if parts.password is None:
        return url
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}@{host}"))
