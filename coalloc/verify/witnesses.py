"""The replicas as witnesses, whose servers compute checksums of ranges of the file."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType

from coalloc.engine.base import Source
from coalloc.errors import ConnectionLost, SourceError
from coalloc.safe_text import redact
from coalloc.util.concurrency import gather

__all__ = ["WitnessServers"]

GLANCE = 0.25
"""Seconds between checks of whether a witness that has not answered is still available."""
GLANCES = 8
"""Number of checks, for a query of no bytes, after which a witness without an answer is given up."""
UNKNOWN = 1.0
"""Assumed seconds for an answer of a server that has not answered yet."""
TOGETHER = 16 << 20
"""Maximum bytes of queries that are sent together only because the server was busy."""
SLOWEST = 50e6
"""Minimum bytes per second at which a server must compute checksums, if another one can be asked."""


@dataclass(slots=True, eq=False)
class _Query:
    """A query of one server for the checksums of some ranges; `values` are the answers."""

    algorithm: str
    ranges: Sequence[tuple[int, int]]
    values: list[str | None] | None = None

    @property
    def nbytes(self) -> int:
        return sum(end - start for start, end in self.ranges)


class WitnessServers:
    """The servers that are asked for checksums of ranges.

    Queries of a server that come while it has not answered the ones before are sent together, when it has.

    :param sources: all replicas
    :param able: function that returns whether a replica can be asked now: it answered, and has not failed
    :param holders: present numbers of the replicas that an earlier run used, by their earlier numbers
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
        self._queued: list[list[_Query]] = [[] for _ in sources]
        self._requested_bytes = [0] * len(sources)
        self._seconds: dict[int, float] = {}
        """Seconds that each server's last answer took."""
        self._since: dict[int, float] = {}
        """Start times of the pending queries."""
        self._waiting = [0] * len(sources)
        self._silent: set[int] = set()

    @property
    def size(self) -> int:
        """The number of all replicas, including those that cannot be asked."""
        return len(self._sources)

    def includes(self, source: int) -> bool:
        """Return whether this run uses the replica; it does not if only an earlier run did."""
        return source < len(self._sources)

    def holder(self, sender: int) -> int:
        """Return the replica that holds a sender's bytes, and so cannot be an independent witness of them."""
        return self._holders.get(sender, sender)

    @property
    def present(self) -> list[int]:
        """The replicas that answered, and have not failed."""
        return [i for i in range(len(self._sources)) if self._able(i)]

    @property
    def members(self) -> list[int]:
        """The replicas that can be asked now."""
        return [i for i in self.present if i not in self._silent]

    async def digest(self, witness: int, algorithm: str, start: int, end: int) -> str | None:
        """Return the witness's checksum of bytes [start, end); None if it cannot compute it."""
        return (await self.digests(witness, algorithm, [(start, end)]))[0]

    async def digests(self, witness: int, algorithm: str, ranges: Sequence[tuple[int, int]]) -> list[str | None]:
        """Return the witness's checksums of several ranges, queried together."""
        if witness not in self.members:
            return [None] * len(ranges)
        self._requested_bytes[witness] += sum(end - start for start, end in ranges)
        self._waiting[witness] += 1
        query = _Query(algorithm, ranges)
        self._queued[witness].append(query)
        try:
            async with self._busy[witness]:
                if query.values is None:
                    await self._answer_queued(witness)
                assert query.values is not None, "the lock is fair: it was the first in the queue"
                return query.values
        finally:
            self._waiting[witness] -= 1
            if query in self._queued[witness]:
                self._queued[witness].remove(query)

    async def _answer_queued(self, witness: int) -> None:
        """Answer the first query in the queue, together with the next ones, as far as they are not too much at once."""
        first, *others = self._queued[witness]
        together, nbytes = [first], first.nbytes
        for other in others:
            nbytes += other.nbytes
            if nbytes > TOGETHER or other.algorithm != first.algorithm:
                break
            together.append(other)
        values = iter(await self._answer(witness, first.algorithm, [each for one in together for each in one.ranges]))
        for one in together:
            one.values = list(islice(values, len(one.ranges)))
            if one in self._queued[witness]:  # otherwise its caller no longer waits
                self._queued[witness].remove(one)

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
        """Return the answers; give up if the witness is gone, or is slow and another one can be asked."""
        task = asyncio.ensure_future(_all_or_again(self._sources[witness], algorithm, ranges))
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
        """Return the replicas to ask about bytes of `senders`: first the others, then the senders.

        Among them those with the fewest requested bytes come first, to spread the load; if `soon`, the fastest.
        """
        holders = {self.holder(sender) for sender in senders}

        def rank(i: int) -> tuple[bool, float, int]:
            return i in holders, self.expected(i) * (1 + self._waiting[i]) if soon else self._requested_bytes[i], i

        return sorted(self.members, key=rank)

    def free(self, witness: int) -> bool:
        """Return whether no query to this witness is pending."""
        return not self._waiting[witness]

    def has_answered(self, witness: int) -> bool:
        """Return whether this witness's answer time is known."""
        return witness in self._seconds

    def expected(self, witness: int) -> float:
        """Return the expected seconds for an answer: as long as the last one, or as a pending one so far if longer."""
        now = asyncio.get_running_loop().time()
        return max(self._seconds.get(witness, UNKNOWN), now - self._since.get(witness, now))

    def name(self, source: int) -> str:
        """Return the redacted URL of a source."""
        return redact(self._sources[source].url)


async def _all_or_again(source: Source, algorithm: str, ranges: Sequence[tuple[int, int]]) -> list[str | None]:
    """Return a source's checksums; ask once more over a new connection if this one is lost, perhaps with a depot."""
    try:
        return await _all(source, algorithm, ranges)
    except ConnectionLost:
        return await _all(source, algorithm, ranges)


async def _all(source: Source, algorithm: str, ranges: Sequence[tuple[int, int]]) -> list[str | None]:
    return list(await gather(*(source.checksum(algorithm, start, end) for start, end in ranges)))
