"""The contract of a lister, which lists the directories of one server. `open_lister` chooses it by the URL's scheme.

`coalloc.resolve.trees` walks through a tree with it; names are checked there, and limits are kept.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from urllib.parse import urlsplit

from coalloc.engine.base import EngineOptions
from coalloc.errors import UsageError
from coalloc.model import Entry
from coalloc.safe_text import redact

__all__ = ["Lister", "open_lister"]


class Lister(ABC):
    """Directories at the server of one URL. A lister is used by one task at a time.

    The URL of an entry is the directory's URL, followed by the entry's percent-encoded name.
    """

    @abstractmethod
    def list(self, url: str) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the entries of the directory at `url`, which ends with a slash, in groups as they arrive.

        The `name` of an entry is its path from the directory. A lister may list all files below the directory at once;
        it then yields no entries of the kind `dir`. Names are as the server sends them, but decoded, and need not be
        safe. `size` and `modified` are None if the server does not state them exactly.

        :raises SourceError: when the directory cannot be listed
        """

    @abstractmethod
    async def close(self) -> None:
        """Close every connection. May be called twice, and after errors; never raises."""


def open_lister(url: str, options: EngineOptions) -> Lister:
    """Return the lister for a URL's server, not connected yet.

    :raises UsageError: if directories cannot be listed with the URL's scheme
    """
    match urlsplit(url).scheme:
        case "ftp" | "gsiftp":
            from coalloc.engine.gridftp.lister import GridFTPLister

            return GridFTPLister(url, options)
        case "http" | "https":
            from coalloc.engine.http.lister import HTTPLister

            return HTTPLister(options)
    raise UsageError(f"directories cannot be listed at {redact(url)}", "name an http(s)://, ftp:// or gsiftp:// URL")
