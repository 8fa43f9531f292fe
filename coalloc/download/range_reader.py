"""Random reads of one file from several replicas.

All replicas are connected at once, and the first that answers begins; the others join when they have answered. Each
read goes to the replica that is expected to answer first, and, if that is late, to a second one.

The replicas must agree as for a download (`agreement`). A replica that changes is not used any more, and bytes of two
versions are never mixed. The bytes are not compared with a checksum of the file: for that, all of it is needed. Only
pieces with known hashes are checked, as far as a read has all their bytes.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from coalloc.download.agreement import Agreement
from coalloc.download.hedged_read import HedgedRead
from coalloc.download.joined_ranges import assembled, pieces
from coalloc.download.piece_hashes import contradicts
from coalloc.download.read_replicas import ReadReplicas
from coalloc.download.reader_pool import ReaderPool
from coalloc.download.replica_sessions import ReplicaSessions
from coalloc.engine.base import Source
from coalloc.errors import ReplicaChanged, ServerSays, SourceError, TooMuch, UsageError
from coalloc.model.checksums import Checksum
from coalloc.model.forecasts import Estimate
from coalloc.model.replicas import ReplicaSet, Stat
from coalloc.safe_text import redact
from coalloc.util.concurrency import gather

__all__ = ["RangeReader"]

IDLE_SECONDS = 10.0
"""Seconds without a read after which the sessions are closed; the next read opens them again."""
MOST_BYTES = 64 << 30
"""Most bytes read at once, which must fit into memory."""


class RangeReader:
    """An open file. It belongs to the event loop that runs when it is made.

    :param file: its description; size and checksums in it have precedence over any server's
    :param make: returns a new source for the replica with this index
    :param estimates: forecast of each replica from earlier transfers
    :param pool: forecasts and idle sessions, which all readers of an event loop share
    :param known: earlier answers of replicas, by URL, which they must not contradict
    """

    def __init__(
        self,
        file: ReplicaSet,
        make: Callable[[int], Source],
        estimates: Sequence[Estimate],
        pool: ReaderPool,
        known: Mapping[str, Stat] = {},
    ) -> None:
        self._agreement = Agreement(file)
        urls = [replica.url for replica in file.replicas]
        self._agreement.first_answers.update((i, known[url]) for i, url in enumerate(urls) if url in known)
        self._known = file.checksums
        hashes = file.pieces
        is_wrong = (lambda at, data: contradicts(hashes, self.size, at, data)) if hashes else (lambda at, data: False)
        replicas = [
            ReplicaSessions(
                replica.url,
                partial(make, i),
                partial(self._agreement.check, i),
                partial(self._join, i),
                is_wrong,
                estimates[i],
                pool,
            )
            for i, replica in enumerate(file.replicas)
        ]
        self._choice = ReadReplicas(replicas, pool.forecasts)
        self._reading = 0
        self._has_read = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def size(self) -> int:
        """The size of the open file in bytes."""
        assert self._agreement.size is not None, "it is open"
        return self._agreement.size

    @property
    def answers(self) -> dict[str, Stat]:
        """The first answer of each replica that has answered and agrees with the others, by URL."""
        first = self._agreement.first_answers
        return {self._choice.replicas[i].url: first[i] for i in self._agreement.answered}

    @property
    def versions(self) -> dict[str, str]:
        """The version in each of the answers, if it names one, by URL."""
        return {url: stat.validator for url, stat in self.answers.items() if stat.validator}

    @property
    def checksums(self) -> tuple[Checksum, ...]:
        """The known checksums of the whole file, with which reads are not compared."""
        return self._known or tuple(self._agreement.digests)

    @property
    def errors(self) -> dict[str, SourceError]:
        """The last error of each replica that is not used any more, by URL without secrets."""
        return {redact(each.url): each.error for each in self._choice.replicas if each.dropped and each.error}

    async def open(self) -> None:
        """Connect to all replicas at once, until one has answered.

        :raises NoSuchFile: if no server has the file
        :raises CoallocError: if no replica can be used, or two contradict each other
        """
        choice = self._choice
        waiting = {choice.begin(choice.connect(replica)) for replica in choice.replicas}
        while waiting and not any(each.stat for each in choice.replicas):
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        if not any(each.stat for each in choice.replicas):
            raise choice.no_source()
        self._rest_later()

    async def read(self, start: int, end: int) -> bytes:
        """Return bytes [start, end), as `read_many`."""
        return (await self.read_many([(start, end)]))[0]

    async def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each range [start, end) within the file; near ones are requested together.

        :raises CoallocError: if a range cannot be read from any replica
        """
        if any(not 0 <= start <= end <= self.size for start, end in ranges):
            raise UsageError(f"a range is outside of the {self.size} bytes of the file", "correct the range")
        if sum(end - start for start, end in ranges) > MOST_BYTES:  # servers can claim any size
            raise TooMuch(f"more than {MOST_BYTES} bytes would be read at once", "read parts, or download the file")
        wanted = pieces(ranges)
        self._choice.connect_again()
        self._reading += 1
        try:
            arrived = await gather(*(HedgedRead(self._choice, *piece).run() for piece in wanted))
        finally:
            self._reading -= 1
            self._rest_later()
        self._has_read = True
        return assembled(ranges, dict(zip(wanted, arrived, strict=True)))

    async def _join(self, index: int) -> None:
        """Check that the file is unchanged before a replica is used that answers after bytes were read.

        :raises SourceError: if it has changed, or no replica that answered before can tell
        """
        if not self._has_read or index in self._agreement.first_answers:
            return
        known = [each for each in self._choice.replicas if each.stat]
        changed = any(isinstance(each.error, ReplicaChanged) for each in known)
        for other in known:
            if changed:
                break
            try:
                await other.ask_again()
            except ReplicaChanged:
                changed = True
            except SourceError:
                continue
            else:
                return
        may = f"{redact(self._choice.replicas[index].url)} may be a new version of the file"
        if changed:
            raise ReplicaChanged(may, "open it again")
        raise ServerSays(f"{may}: no replica that was read before answers", "open it again")

    def _rest_later(self) -> None:
        """Close the sessions when nothing has been read for a while."""
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._rest)

    def _rest(self) -> None:
        if self._reading or self._choice.at_work:
            self._rest_later()
        else:
            for replica in self._choice.replicas:
                self._choice.begin(replica.rest())

    async def close(self) -> None:
        """Close all sessions; reads under way fail. May be called twice."""
        if self._timer:
            self._timer.cancel()
        await self._choice.close()
