"""The download of one file for a reader that takes its bytes in order, while they arrive.

The bytes ahead of the reader are held in memory, as many as there is room for. Pieces with a known hash reach the
reader only if they are right. All other checks end after the last byte: then the reader knows whether to use the bytes.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from coalloc.download.arrivals import Arrivals
from coalloc.download.connections import stop
from coalloc.download.delivered import Delivered
from coalloc.download.ordered_reader import OrderedReader, Take
from coalloc.download.paced_reading import PacedReading
from coalloc.download.read_ahead import ReadAhead
from coalloc.download.transfer import Admit, PastErrors, Transfer
from coalloc.engine.base import Source
from coalloc.errors import (
    ReplicaChanged,
    TransferFailed,
    TransferRefused,
    Unsupported,
    UsageError,
    VerificationError,
)
from coalloc.model.checksums import SUSPECTED, Basis, Checksum, PieceHashes
from coalloc.model.forecasts import Estimate
from coalloc.model.plans import Strategy
from coalloc.model.progress import Snapshot
from coalloc.model.promises import Deadline, ReadingRate
from coalloc.model.replicas import ReplicaSet, Stat
from coalloc.model.reports import TransferReport
from coalloc.schedule.events import Event, Opened, Rejected
from coalloc.schedule.pauses import TRIES
from coalloc.schedule.policies.in_order import InOrder
from coalloc.util import human
from coalloc.util.checksums import Hasher, hasher
from coalloc.util.intervals import Intervals
from coalloc.verify import WitnessServers, expectation
from coalloc.verify.blame import PieceBlame
from coalloc.verify.comparison import Comparison
from coalloc.verify.statements import Contradiction, compared, contradictions

__all__ = ["ROOM", "InOrderDownload", "InOrderSettings"]

ROOM = 64 << 20
"""Bytes ahead of the reader that are held in memory."""
MOST_ROOM = 512 << 20
"""The same for a file with large pieces, of which two must be held."""
READ_AGAIN = "discard what was read, and read it again"
OUTLASTS = 10.0
"""Seconds for which the memory has room at a promised rate, if `MOST_ROOM` allows that."""


class InOrderSettings(NamedTuple):
    """The user's options apart from the file.

    :param strategy: the strategy that the report names
    :param widens: whether distant sources may get more parallel streams
    :param most: maximum number of sources at once; None for no limit
    :param keep_checksums: whether to compute checksums of arriving pieces, with which replicas are compared
    :param past_errors: as for `Transfer`
    :param reading: the rate that the reader is promised; None to read as fast as possible
    :param tries: as for `Transfer`
    :param admit: awaited after the forecast for the deadline
    """

    strategy: Strategy = "adaptive"
    widens: bool = True
    most: int | None = None
    keep_checksums: bool = True
    deadline: Deadline | None = None
    past_errors: PastErrors = dict
    reading: ReadingRate | None = None
    tries: int = TRIES
    admit: Admit | None = None


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
        self._room = _room(file.name, self._hashes, settings.reading)
        pace = settings.reading and settings.reading.rate
        policy = InOrder(self._room, widens=settings.widens, pace=pace)
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
        self._admit = settings.admit
        self._take = take
        self._compares = settings.keep_checksums
        self._ahead = ReadAhead(0, 0)
        self._reader: OrderedReader | None = None
        self._blame = PieceBlame(file.guests)
        self._wrong: dict[int, str] = {}
        self._again: asyncio.Future[Event] = self._loop.create_future()
        self._reading: asyncio.Task[None] | None = None
        self._delivered = Delivered()
        self._doubted = False
        self._arrivals = [Arrivals() for _ in sources]
        self._comparison: Comparison | None = None
        self._expected = expectation(file.checksums)
        self._hashers: dict[str, Hasher] = {}
        self._checksum: Checksum | None = None
        self._basis: Basis = "none"
        self._paced = settings.reading and PacedReading(settings.reading, self._room)

    async def run(self) -> TransferReport:
        async with self._under_way():
            await self._connect()
            await self._prepare()
            self._reading = self._loop.create_task(self._read())
            promising = [self._loop.create_task(self._keep_promise())] if self._paced else []
            try:
                await self._fetch(self._judge)
                self._complete_at = time.time()
            except TransferFailed as failed:
                if not isinstance(failed, TransferRefused):  # its remedy would be to continue, but nothing is kept
                    failed.remedy = READ_AGAIN
                raise
            finally:
                await stop([self._reading, *promising])
                if self._comparison:
                    self._comparison.cancel()
        return self.report()

    async def _prepare(self) -> None:
        size = self._agreement.size or 0
        self._expected = self._expected or expectation(self._agreement.digests)
        self._hashers = {name: hasher(name) for name in (self._algorithm, *compared(self._agreement.digests))}
        self._ahead = ReadAhead(size, self._room)
        digests = tuple(self._hashers.values())
        self._reader = OrderedReader(
            self._ahead, size, digests, self._take, self._hashes, self._paced, self._reject_piece, self._open
        )
        if self._deadline:
            await self._forecast(size)
            if self._admit:
                await self._admit(size)
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
        if self._reader:
            self._reader.notice()

    async def _read(self) -> None:
        """Give the reader all bytes; end the transfer if that fails."""
        assert self._reader
        try:
            await self._reader.read()
        except Exception as error:
            self._runner.end(error)
            raise

    def _open(self, end: int) -> None:
        self._runner.tell(Opened(self._loop.time(), end))

    async def _keep_promise(self) -> None:
        assert self._paced
        assert self._scheduler
        try:
            await self._paced.keep(self._scheduler.state, self._ahead, self._limit_sources)
        except Exception as error:  # a refusal, or a defect
            self._runner.end(error)

    def _limit_sources(self, most: int, preferred: tuple[int, ...]) -> None:
        self._runner.limit(min(most, self._limit), preferred)

    def _reject_piece(self, start: int, end: int) -> None:
        """Let a wrong piece be fetched again, from others."""
        senders = [piece for piece in self._ahead.pieces() if piece.start < end and start < piece.end]
        wrong = self._blame.find(senders, [(start, end)])
        back = tuple(i for i, why in self._wrong.items() if why == SUSPECTED and i not in wrong)
        self._wrong = {i: why for i, why in self._wrong.items() if i not in back} | wrong
        self._ahead.revoke(start, end)
        self._delivered.revoke(start, end)
        reason = "; ".join(set(wrong.values()))
        event = Rejected(self._loop.time(), tuple(wrong), ((start, end),), back, reason)
        if not self._runner.tell(event):
            self._again.set_result(event)

    async def _judge(self) -> Event | None:
        """Wait until the reader has all bytes, and check them; return the ranges to fetch again, if there are any.

        :raises CoallocError: if the bytes are wrong, or cannot be verified
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
        self._checksum = Checksum(self._algorithm, self._hashers[self._algorithm].hexdigest())
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

    @property
    def _algorithm(self) -> str:
        """The algorithm of the checksum that the report states."""
        return self._expected.algorithm if self._expected else "adler32"

    @property
    def _contradictions(self) -> Sequence[Contradiction]:
        if self._checksum is None:  # not all bytes were read
            return ()
        found = {name: digest.hexdigest() for name, digest in self._hashers.items()}
        return contradictions(found, self._agreement.stated)

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

    def snapshot(self) -> Snapshot:
        """Return the current state of the transfer."""
        seen, paced = super().snapshot(), self._paced
        return seen._replace(reading=paced.view, warnings=paced.warnings) if paced else seen

    def report(self) -> TransferReport:
        """Return the results of the transfer so far."""
        report = super().report()._replace(strategy=self._strategy, checksum=self._checksum, basis=self._basis)
        return report._replace(reading=self._paced.report()) if self._paced else report


class _Changed(VerificationError):
    """A replica changed after some of its bytes had been read."""

    def __init__(self, error: ReplicaChanged) -> None:
        super().__init__(error.message, READ_AGAIN)


def _room(name: str, hashes: PieceHashes | None, reading: ReadingRate | None) -> int:
    """Return the bytes to hold in memory: at least two pieces; for a promised rate, what is read in some time."""
    room = max(ROOM, 2 * hashes.length if hashes else 0)
    if reading:
        room = max(room, min(MOST_ROOM, int(OUTLASTS * reading.rate)))
    if room > MOST_ROOM:
        assert hashes is not None
        raise UsageError(
            f"the pieces of {name} have {human.size(hashes.length)}, too much to be held in memory until each is "
            "verified",
            "write the file to the disk, with -o NAME",
        )
    return room
