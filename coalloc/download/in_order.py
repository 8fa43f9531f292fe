"""The download of one file for a reader that takes its bytes in order, while they arrive.

The bytes ahead of the reader are held in memory, as many as there is room for. Pieces with a known hash reach the
reader only if they are right. All other checks end after the last byte: then the reader knows whether to use the bytes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from coalloc.download.arrivals import Arrivals
from coalloc.download.connections import stop
from coalloc.download.delivered import Delivered
from coalloc.download.read_ahead import ReadAhead
from coalloc.download.transfer import PastErrors, Transfer
from coalloc.engine.base import Source
from coalloc.errors import ReplicaChanged, TransferFailed, TransferRefused, Unsupported, UsageError, VerificationError
from coalloc.model import (
    SUSPECTED,
    Basis,
    Checksum,
    Deadline,
    Estimate,
    PieceHashes,
    ReplicaSet,
    Snapshot,
    Stat,
    Strategy,
    TransferReport,
)
from coalloc.schedule.events import Event, Opened, Rejected
from coalloc.schedule.pauses import TRIES
from coalloc.schedule.policies.in_order import InOrder
from coalloc.util import human
from coalloc.util.checksums import Hasher, hasher
from coalloc.util.disk import in_thread
from coalloc.util.intervals import Intervals
from coalloc.verify import WitnessServers, expectation
from coalloc.verify.blame import blame_by_pieces
from coalloc.verify.comparison import Comparison

__all__ = ["ROOM", "InOrderDownload", "InOrderSettings", "Take"]

Take = Callable[[memoryview], Awaitable[None]]
"""`await take(data)`: the reader has taken the next bytes; `data` is valid only until it returns."""

ROOM = 64 << 20
"""Bytes ahead of the reader that are held in memory."""
MOST_ROOM = 512 << 20
"""The same for a file with large pieces, of which two must be held."""
STEP = 8
"""Part of the room that must be free before further bytes are requested, so that requests are not too small."""
WORTH_A_THREAD = 256 << 10
"""Bytes for whose digest the event loop should not wait."""
READ_AGAIN = "discard what was read, and read it again"
MOST_TAKEN = 4 << 20
"""Maximum bytes that the reader is given at once."""


class InOrderSettings(NamedTuple):
    """The user's options apart from the file.

    `strategy` is for the report. `widens`: whether distant sources may get more parallel streams. `most` is the maximum
    number of sources at once; None for no limit. `keep_checksums`: whether to compare replicas if no checksum is known.
    `tries` as for `Transfer`.
    """

    strategy: Strategy = "adaptive"
    widens: bool = True
    most: int | None = None
    keep_checksums: bool = True
    deadline: Deadline | None = None
    past_errors: PastErrors = dict
    tries: int = TRIES


class InOrderDownload(Transfer):
    """The fetch of one file for a reader.

    :param take: called with the next bytes, again and again
    :raises UsageError: if the file's pieces are too large to be held in memory
    """

    def __init__(
        self,
        file: ReplicaSet,
        sources: Sequence[Source],
        estimates: Sequence[Estimate],
        take: Take,
        settings: InOrderSettings,
        watch: Callable[[Snapshot], None] | None = None,
        seed: int = 0,
    ) -> None:
        self._hashes = file.pieces
        self._room = _room(file.name, self._hashes)
        policy = InOrder(self._room, widens=settings.widens)
        super().__init__(
            file,
            sources,
            estimates,
            "standard output",
            policy,
            settings.most,
            watch,
            seed,
            settings.deadline,
            settings.past_errors,
            settings.tries,
        )
        self._strategy = settings.strategy
        self._take = take
        self._compares = settings.keep_checksums
        self._ahead = ReadAhead(0, 0)
        self._arrived = asyncio.Event()
        self._checked = 0
        """End of the pieces that have the right hash."""
        self._suspected: set[int] = set()
        self._wrong: dict[int, str] = {}
        self._again: asyncio.Future[Event] = self._loop.create_future()
        self._reading: asyncio.Task[None] | None = None
        self._delivered = Delivered()
        self._doubted = False
        self._arrivals = [Arrivals() for _ in sources]
        self._comparison: Comparison | None = None
        self._expected = expectation(file.checksums)
        self._hasher = hasher("adler32")
        self._checksum: Checksum | None = None
        self._basis: Basis = "none"

    async def run(self) -> TransferReport:
        async with self._under_way():
            await self._connect()
            await self._prepare()
            self._reading = self._loop.create_task(self._read())
            try:
                await self._fetch(self._judge)
                self._complete_at = time.time()
            except TransferFailed as failed:
                if not isinstance(failed, TransferRefused):  # its remedy would be to continue, but nothing is kept
                    failed.remedy = READ_AGAIN
                raise
            finally:
                await stop([self._reading])
                if self._comparison:
                    self._comparison.cancel()
        return self.report()

    async def _prepare(self) -> None:
        size = self._agreement.size or 0
        self._expected = self._expected or expectation(self._agreement.digests)
        self._hasher = hasher(self._expected.algorithm if self._expected else "adler32")
        if self._hashes and len(self._hashes.values) != -(-size // self._hashes.length):
            self._hashes = None  # they are of a file of another size
        self._ahead = ReadAhead(size, self._room)
        if self._deadline:
            await self._forecast(size)
        in_use = self._schedule(opened=self._ahead.opened).state.sources
        if self._compares and not (self._expected or self._hashes):
            witnesses = WitnessServers(self._sources, lambda source: in_use[source].answers)
            self._comparison = Comparison(witnesses, size)

    def _agree(self, source: int, stat: Stat) -> None:
        """Compare a replica's answer with the others'.

        :raises CoallocError: as `Agreement.check`; or if its changed bytes were taken
        """
        try:
            super()._agree(source, stat)
        except ReplicaChanged as error:
            if source in self._delivered.senders and not self._hashes:
                raise _Changed(error) from error
            raise
        if not stat.ranged and stat.size > self._room:
            raise Unsupported(
                f"{self._urls[source]} ignores ranges, so its bytes cannot be held back in memory",
                "write the file to the disk, with -o NAME",
            )

    def _write(self, source: int, start: int, end: int, data: memoryview | None) -> None:
        assert data is not None, "these engines deliver bytes"
        if self._doubted:
            self._delivered.compare(start, data)
            return
        fresh = self._ahead.put(source, start, data)
        self._arrivals[source].add(self._loop.time(), start, end)
        if self._comparison:
            self._comparison.add(fresh)
        self._delivered.add(fresh)
        self._arrived.set()

    async def _read(self) -> None:
        """Give the reader all bytes, in order; end the transfer if that fails."""
        try:
            ahead, size, asked = self._ahead, self._agreement.size or 0, self._ahead.opened
            while ahead.front < size:
                until = await self._readable()
                (data, *_) = ahead.views(ahead.front, min(until, ahead.front + MOST_TAKEN))
                await self._update(self._hasher, data)
                await self._take(data)
                ahead.take(ahead.front + len(data))
                if ahead.opened - asked >= self._room // STEP or (ahead.opened == size and asked < size):
                    self._runner.tell(Opened(self._loop.time(), ahead.opened))
                    asked = ahead.opened
        except Exception as error:
            self._runner.end(error)
            raise

    @staticmethod
    async def _update(digest: Hasher, data: memoryview) -> None:
        if len(data) < WORTH_A_THREAD:
            digest.update(data)
        else:
            await in_thread(digest.update, data)

    async def _readable(self) -> int:
        """Return the end of the bytes that the reader may have, once there are some."""
        ahead, hashes = self._ahead, self._hashes
        while True:
            self._arrived.clear()
            if hashes is None and ahead.reach > ahead.front:
                return ahead.reach
            if hashes and self._checked > ahead.front:
                return self._checked
            if hashes and ahead.reach >= (end := min(self._checked + hashes.length, self._agreement.size or 0)):
                await self._check_piece(hashes, end)
                continue
            await self._arrived.wait()

    async def _check_piece(self, hashes: PieceHashes, end: int) -> None:
        """Compare a piece with its hash; if it is wrong, let it be fetched again, from others."""
        start, value = self._checked, hasher(hashes.algorithm)
        for view in self._ahead.views(start, end):
            await self._update(value, view)
        if value.hexdigest() == hashes.values[start // hashes.length]:
            self._checked = end
            return
        senders = [piece for piece in self._ahead.pieces() if piece.start < end and start < piece.end]
        wrong = blame_by_pieces(senders, [(start, end)], self._suspected)
        back = tuple(i for i, why in self._wrong.items() if why == SUSPECTED and i not in wrong)
        self._wrong = {i: why for i, why in self._wrong.items() if i not in back} | wrong
        self._suspected |= {i for i, why in wrong.items() if why == SUSPECTED}
        self._ahead.revoke(start, end)
        self._delivered.revoke(start, end)
        reason = "; ".join(set(wrong.values()))
        event = Rejected(self._loop.time(), tuple(wrong), ((start, end),), back, reason)
        if not self._runner.tell(event):
            self._again.set_result(event)

    async def _judge(self) -> Event | None:
        """Wait until the reader has all bytes, and check them; return the ranges to fetch again, if there are any.

        :raises CoallocError: if the bytes are wrong, or nobody knows whether they are right
        """
        assert self._reading is not None
        ends: set[asyncio.Future[Any]] = {self._reading, self._again}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if self._again.done():
            event, self._again = self._again.result(), self._loop.create_future()
            return event
        await self._reading
        if not (self._file.checksums or self._hashes):  # else no other server's answer matters
            await self._runner.await_late_answers()
        self._checksum = Checksum(self._expected.algorithm if self._expected else "adler32", self._hasher.hexdigest())
        if self._expected:
            self._hold_against(self._expected)
            return None
        if self._hashes:
            self._basis = "given"
            return None
        if self._doubted:
            self._end_doubts()
            return None
        return await self._compare()

    def _hold_against(self, expected: Checksum) -> None:
        assert self._checksum is not None
        if self._checksum != expected:
            raise VerificationError(
                f"{self._name} was read, but it is wrong: its {expected.algorithm} is {self._checksum.value}, "
                f"not the expected {expected.value}",
                "discard what was read; with -o NAME, wrong bytes are fetched again from other sources",
            )
        stated = set() if self._file.checksums else self._agreement.stated_by(expected)
        own = len(stated) == 1 and bool(stated & self._delivered.senders)
        self._basis = "given" if self._file.checksums else "own word" if own else "agree"

    async def _compare(self) -> Event | None:
        """Compare what was read with other replicas, and ask whether its senders are unchanged."""
        errors = await self._connections.recheck(self._delivered.senders)
        for error in errors.values():
            if isinstance(error, ReplicaChanged):
                raise _Changed(error)
        confirmed: set[int] = set()
        if self._comparison:
            self._basis, bad = await self._comparison.finish()
            while bad and not bad.keys() & self._delivered.senders:  # what was read is from others
                self._wrong |= bad
                self._basis, bad = await self._comparison.finish(dropped=self._wrong)
            if bad:
                why = "; ".join(f"{self._urls[source]}: {reason}" for source, reason in bad.items())
                raise VerificationError(
                    f"{self._name} was read, but it is wrong: {why}",
                    "discard what was read; with -o NAME, wrong bytes are fetched again from other sources",
                )
            confirmed = self._delivered.senders - self._comparison.alone
        doubts = {i: self._unconfirmed(i) for i in errors.keys() - confirmed}
        ranges = [each for i, unconfirmed in doubts.items() for each in self._delivered.of(i, unconfirmed)]
        if not ranges:
            return None
        self._doubted = True
        self._delivered.doubt(ranges)
        reason = "; ".join(errors[i].message for i in doubts)
        return Rejected(self._loop.time(), tuple(doubts), tuple((each.start, each.end) for each in ranges), (), reason)

    def _unconfirmed(self, source: int) -> Intervals:
        """Return the ranges that arrived after their sender's last answer about its version."""
        return self._arrivals[source].after(self._sources[source].unchanged_at)

    def _end_doubts(self) -> None:
        """Check that the bytes of servers that no longer answer are the same at other servers."""
        if different := next(iter(self._delivered.different()), None):
            raise VerificationError(
                f"{self._name} was read, but bytes {different.start} to {different.end - 1} are different at another "
                f"source than at {self._urls[different.source]}, which does not answer any more",
                READ_AGAIN,
            )

    def _cause(self) -> VerificationError | TransferFailed | None:
        if len(self._wrong) == len(self._sources):
            why = "; ".join(f"{self._urls[i]}: {reason}" for i, reason in self._wrong.items())
            return VerificationError(
                f"{self._name} could not be verified, and no other source is left. {why}",
                "check the expected checksums, or give a replica that is known to be good",
            )
        if self._doubted:
            return TransferFailed(
                f"{self._name} was read, but no source is left that can confirm the last bytes of a server that does "
                "not answer any more",
                READ_AGAIN,
            )
        return None

    @property
    def _name(self) -> str:
        return self._file.name

    @property
    def _bad(self) -> Mapping[int, str]:
        return self._wrong

    def report(self) -> TransferReport:
        """Return the results of the transfer so far."""
        return super().report()._replace(strategy=self._strategy, checksum=self._checksum, basis=self._basis)


class _Changed(VerificationError):
    """A replica changed after some of its bytes had been read."""

    def __init__(self, error: ReplicaChanged) -> None:
        super().__init__(error.message, READ_AGAIN)


def _room(name: str, hashes: PieceHashes | None) -> int:
    """Return the bytes to hold in memory: at least two pieces."""
    room = max(ROOM, 2 * hashes.length if hashes else 0)
    if room > MOST_ROOM:
        assert hashes is not None
        raise UsageError(
            f"the pieces of {name} have {human.size(hashes.length)}, too much to be held in memory until each is "
            "verified",
            "write the file to the disk, with -o NAME",
        )
    return room
