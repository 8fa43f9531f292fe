"""The replicas as witnesses: what their servers say of ranges of the file."""

import asyncio
from collections.abc import Callable, Sequence

from coalloc.engine.base import Source
from coalloc.errors import SourceError
from coalloc.urls import redact

__all__ = ["Jury"]


class Jury:
    """Each replica says, where its server can, what the checksum of a range is; one question at a time.

    :param sources: all replicas
    :param able: whether a replica can be asked now: it answered, and was not left
    """

    def __init__(self, sources: Sequence[Source], able: Callable[[int], bool] = lambda _: True) -> None:
        self._sources = sources
        self._able = able
        self._busy = [asyncio.Lock() for _ in sources]
        self._asked = [0] * len(sources)
        self._silent: set[int] = set()

    @property
    def members(self) -> list[int]:
        """Who can be asked now."""
        return [i for i in range(len(self._sources)) if i not in self._silent and self._able(i)]

    async def digest(self, witness: int, algorithm: str, start: int, end: int) -> str | None:
        """What this witness says of bytes [start, end), or None when it cannot say."""
        if witness not in self.members:
            return None
        self._asked[witness] += end - start
        async with self._busy[witness]:
            if witness not in self.members:
                return None
            try:
                value = await self._sources[witness].checksum(algorithm, start, end)
            except SourceError:
                value = None
            if value is None:
                self._silent.add(witness)
            return value

    def witnesses(self, source: int) -> list[int]:
        """Whom to ask about bytes of `source`: the others, the least asked first, then itself."""
        return sorted(self.members, key=lambda i: (i == source, self._asked[i], i))

    def name(self, source: int) -> str:
        """The URL of a source as it may be shown."""
        return redact(self._sources[source].url)
