"""Objects of Google Cloud Storage and Azure whose keys begin with a prefix, as the files below a directory.

obstore asks for the pages of a listing. It reads a whole page into memory, and refuses keys that are no paths, such as
those with an empty part; the listing ends there, with an error.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from coalloc.engine.base import EngineOptions
from coalloc.engine.clouds import CloudObjects
from coalloc.engine.lister import Lister
from coalloc.errors import AddressRefused, NoSuchFile, Stalled
from coalloc.model.listings import Entry
from coalloc.safe_text import redact

__all__ = ["CloudLister"]

SECONDS = 300.0
"""Maximum seconds in which a listing names no further object: services may send empty pages, even without end."""


class CloudLister(Lister):
    """The objects of buckets and containers; all that are below a directory are listed at once."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options

    async def list(self, url: str) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the objects below a prefix. One that is not below it comes under an absolute name.

        An empty object whose name is that of a directory, too, only marks this directory, and is left out.

        :raises SourceError: if they cannot be listed
        """
        shown, policy = redact(url), self._options.dialer.policy
        if not policy.anywhere:
            raise AddressRefused(f"{shown}: such a URL must come from the user, not from a server", policy.remedy)
        bucket = CloudObjects(url, self._options.connect_seconds, directory=True, own=self._options.own)
        seen, folders, empty = set[str](), set[str](), dict[str, Entry]()
        async for page in _timely(bucket, shown):
            fresh = {name: size for path, size in page if (name := _name(path, bucket.key)) not in seen}
            seen.update(fresh)
            folders.update(folder for name in fresh for folder in _folders(name))
            empty |= {name: Entry(name, "file", 0) for name, size in fresh.items() if not size}
            yield [Entry(name, "file", size) for name, size in fresh.items() if size]
        yield [entry for name, entry in empty.items() if name and name not in folders]
        if not seen and bucket.key:
            raise NoSuchFile(f"{shown}: there is no object below it", "check the path in the URL")

    async def close(self) -> None:
        """Do nothing: obstore closes its connections."""


async def _timely(bucket: CloudObjects, shown: str) -> AsyncGenerator[Sequence[tuple[str, int]], None]:
    """Yield the paths and sizes of objects as they arrive. :raises Stalled: when none arrives for too long"""
    pages = bucket.below()
    while True:
        try:
            async with asyncio.timeout(SECONDS):
                page = await anext(pages, None)
        except TimeoutError:
            raise Stalled(f"{shown}: the listing named no object for {SECONDS:g} s", "try again later") from None
        if page is None:
            return
        yield page


def _name(path: str, prefix: str) -> str:
    """Return the path of an object from the directory; an absolute one if it is not below it.

    >>> _name("run/x", "run/"), _name("run", "run/"), _name("other", "run/")
    ('x', '', '/other')
    """
    if f"{path}/" == prefix:
        return ""
    return path.removeprefix(prefix) if path.startswith(prefix) else f"/{path}"


def _folders(name: str) -> list[str]:
    """Return the directories on the path to a file.

    >>> _folders("a/b/c")
    ['a', 'a/b']
    """
    parts = name.split("/")[:-1]
    return ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
