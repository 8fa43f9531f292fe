"""The replicas as witnesses: their servers' checksums of ranges of the file."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from coalloc.engine.base import Source
from coalloc.errors import SourceError
from coalloc.safe_text import redact
from coalloc.util.concurrency import gather

__all__ = ["WitnessServers"]

GLANCE = 0.25
"""Seconds between checks whether a witness that has not answered is still available."""
GLANCES = 8
"""Checks that any witness is granted before another is asked."""
UNKNOWN = 1.0
"""Seconds that a server is assumed to need for an answer before it has given one."""
SLOWEST = 50e6
"""Least bytes per second at which a server is expected to read, while another can be asked."""


class WitnessServers:
    """Asks replicas, where their servers can, for checksums of ranges; each answers one query at a time.

    :param sources: all replicas
    :param able: whether a replica can be asked now: it answered, and has not failed
    :param holders: current numbers of the replicas that an earlier run used, if they are still named
    """

    def __init__(
        self,
        sources: Sequence[Source],
        able: Callable[[int], bool] = lambda _: True,
        holders: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self._sources = sources
        self._able = able
        self._holders = holders
        self._busy = [asyncio.Lock() for _ in sources]
        self._requested_bytes = [0] * len(sources)
        self._seconds: dict[int, float] = {}
        """Seconds that the last answer of each took."""
        self._since: dict[int, float] = {}
        """Start times of the pending queries."""
        self._waiting = [0] * len(sources)
        self._silent: set[int] = set()

    @property
    def size(self) -> int:
        """The number of replicas, whether they can be asked or not."""
        return len(self._sources)

    def includes(self, source: int) -> bool:
        """Return whether this is one of the current replicas, and not one that only an earlier run used."""
        return source < len(self._sources)

    def holder(self, sender: int) -> int:
        """Return the replica from which a sender had its bytes, which cannot be their only witness."""
        return self._holders.get(sender, sender)

    @property
    def members(self) -> list[int]:
        """The replicas that can be asked now."""
        return [i for i in range(len(self._sources)) if i not in self._silent and self._able(i)]

    async def digest(self, witness: int, algorithm: str, start: int, end: int) -> str | None:
        """Return this witness's checksum of bytes [start, end), or None when it has none."""
        return (await self.digests(witness, algorithm, [(start, end)]))[0]

    async def digests(self, witness: int, algorithm: str, ranges: Sequence[tuple[int, int]]) -> list[str | None]:
        """Return this witness's checksums of several ranges, queried at once."""
        if witness not in self.members:
            return [None] * len(ranges)
        self._requested_bytes[witness] += sum(end - start for start, end in ranges)
        self._waiting[witness] += 1
        try:
            async with self._busy[witness]:
                return await self._answer(witness, algorithm, ranges)
        finally:
            self._waiting[witness] -= 1

    async def _answer(self, witness: int, algorithm: str, ranges: Sequence[tuple[int, int]]) -> list[str | None]:
        if witness not in self.members:
            return [None] * len(ranges)
        time = asyncio.get_running_loop().time
        self._since[witness] = time()
        try:
            values = await self._ask(witness, algorithm, ranges)
        finally:
            requested_at = self._since.pop(witness)
        self._seconds[witness] = time() - requested_at
        if None in values:
            self._silent.add(witness)
        return values

    async def _ask(self, witness: int, algorithm: str, ranges: Sequence[tuple[int, int]]) -> list[str | None]:
        """Return the answers; give up when the witness is gone, or slow while another can be asked."""
        task = asyncio.ensure_future(_all(self._sources[witness], algorithm, ranges))
        patience = GLANCES + sum(end - start for start, end in ranges) / SLOWEST / GLANCE
        try:
            while not task.done() and self._able(witness) and (patience > 0 or self.members == [witness]):
                await asyncio.wait({task}, timeout=GLANCE)
                patience -= 1
            if task.done():
                return await task
        except SourceError:
            pass
        finally:
            task.cancel()
        return [None] * len(ranges)

    def witnesses(self, *senders: int, soon: bool = False) -> list[int]:
        """Return the replicas to ask about bytes of `senders`: first the others, then the senders themselves.

        The least asked come first, so that the load is shared; if the answer is needed `soon`, the fastest come first.
        """

        holders = {self.holder(sender) for sender in senders}

        def rank(i: int) -> tuple[bool, float, int]:
            return i in holders, self.expected(i) * (1 + self._waiting[i]) if soon else self._requested_bytes[i], i

        return sorted(self.members, key=rank)

    def free(self, witness: int) -> bool:
        """Return whether no query to it is pending."""
        return not self._waiting[witness]

    def has_answered(self, witness: int) -> bool:
        """Return whether its answer time is known."""
        return witness in self._seconds

    def expected(self, witness: int) -> float:
        """Return the expected seconds of an answer: those of the last one, or those that a pending one took if more."""
        now = asyncio.get_running_loop().time()
        return max(self._seconds.get(witness, UNKNOWN), now - self._since.get(witness, now))

    def name(self, source: int) -> str:
        """Return the URL of a source as it may be shown."""
        return redact(self._sources[source].url)


async def _all(source: Source, algorithm: str, ranges: Sequence[tuple[int, int]]) -> list[str | None]:
    return list(await gather(*(source.checksum(algorithm, start, end) for start, end in ranges)))
