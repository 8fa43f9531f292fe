"""The contract of a lister, which lists the directories of one server.

`open_lister` (in `coalloc.engine`) chooses it by the URL's scheme. `coalloc.resolve.trees` walks through a tree with
it; names are checked there, and limits are kept.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence

from coalloc.model.listings import Entry

__all__ = ["Lister"]


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

        :raises SourceError: when the directory cannot be listed, or, after all other entries, if some were left out
        """

    @abstractmethod
    async def close(self) -> None:
        """Close every connection. May be called twice, and after errors; never raises."""
