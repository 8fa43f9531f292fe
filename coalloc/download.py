"""One file, from the first server's answer to its final name. Joins runner, sink, journal and verification."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

from coalloc import verify
from coalloc.agreement import Agreement
from coalloc.engine.base import Source
from coalloc.errors import (
    CoallocError,
    NotAllowed,
    NothingToFetchFrom,
    PermissionRefused,
    SourceError,
    VerificationError,
)
from coalloc.journal import Journal, describe, recall
from coalloc.model import (
    Checksum,
    Estimate,
    Extent,
    Phase,
    PieceHashes,
    ReplicaSet,
    Snapshot,
    SourceView,
    TransferReport,
)
from coalloc.report import source_reports, source_views, unstarted_reports
from coalloc.runner import Runner
from coalloc.schedule import Scheduler
from coalloc.schedule.events import Event, Rejected, Started
from coalloc.schedule.policies import Policy
from coalloc.sink import PartialFile, has
from coalloc.urls import redact

__all__ = ["Download", "Wishes"]

P = ParamSpec("P")
T = TypeVar("T")

LOOK = 0.125
"""Seconds between two snapshots for the display."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asked for, apart from the sources: the scheme, the most sources at once, the checksum."""

    policy: Policy
    most: int | None = None
    checksum: Checksum | None = None
    keep_checksums: bool = True


class Download:
    """Fetches one file to `target`.

    :param file: what is known of the file; its replicas are in the order of `sources`
    :param estimates: what is expected of each source
    :param watch: is shown a snapshot several times a second
    """

    def __init__(
        self,
        file: ReplicaSet,
        sources: Sequence[Source],
        estimates: Sequence[Estimate],
        target: Path,
        wishes: Wishes,
        watch: Callable[[Snapshot], None] | None = None,
    ) -> None:
        self._file = file
        self._sources = sources
        self._estimates = estimates
        self._target = target
        self._wishes = wishes
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._phase: Phase = "connecting"
        self._agreement = Agreement(file)
        self._runner = Runner(sources, self._agreement.check, self._write)
        self._scheduler: Scheduler | None = None
        self._urls = [redact(source.url) for source in sources]
        self._expected: Checksum | None = None
        self._checksum: Checksum | None = None
        self._verified = False
        self._jury = verify.Jury(sources, self._able)
        self._comparison: verify.Comparison | None = None
        self._resumed = 0
        self._notice: str | None = None
        self._bad: dict[int, str] = {}
        self._dropped: list[Extent] = []

    async def run(self) -> TransferReport:
        """Fetch, verify, and give the file its name.

        :raises CoallocError: with what is known so far in its `report`
        """
        showing = self._loop.create_task(self._show()) if self._watch else None
        try:
            with PartialFile(self._target, keep_checksums=self._wishes.keep_checksums) as self._partial:
                if await self._is_here():
                    return self._finished()
                await self._prepare()
                try:
                    await self._fetch_and_verify()
                finally:
                    self._journal.close()
                with suppress(asyncio.CancelledError):  # once it has begun, being done is the cleanest stop
                    await _in_thread(self._partial.publish)
        except CoallocError as error:
            error.report = self.report()
            raise
        finally:
            if showing:
                showing.cancel()
            if self._comparison:
                self._comparison.cancel()
            await self._runner.close()
        return self._finished()

    async def _is_here(self) -> bool:
        """Whether the target is there already, by the checksum that is known of it."""
        wanted = verify.expectation(self._given())
        if wanted is None or not await _in_thread(has, self._target, wanted, self._file.size):
            return False
        self._checksum, self._verified = wanted, True
        self._agreement.size = self._resumed = self._target.stat().st_size
        self._notice = f"{self._target} was here already"
        return True

    def _finished(self) -> TransferReport:
        self._phase = "done"
        if self._watch:
            self._watch(self.snapshot())
        return self.report()

    async def _prepare(self) -> None:
        """Learn the size from the first server that answers, and take up what an earlier run left."""
        most = self._wishes.most or len(self._sources)
        if not await self._runner.connect(most):
            raise unusable(self._urls, self._runner.errors)
        size = self._agreement.size
        assert size is not None
        self._expected = verify.expectation([*self._given(), *self._agreement.digests])
        expected = [self._expected] if self._expected else []
        header = describe(size, self._urls, self._agreement.validators, expected)
        earlier = recall(self._partial.journal_path, header)
        algorithm = self._expected.algorithm if self._expected else None
        kept = await _in_thread(self._partial.begin, size, earlier.extents, algorithm)
        self._journal = Journal.create(self._partial.journal_path, earlier.header, kept)
        self._resumed = self._partial.held_bytes
        self._notice = earlier.trouble if not self._resumed else None
        if self._wishes.keep_checksums and not self._expected and not self._file.pieces:
            self._comparison = verify.Comparison(self._jury)
            self._comparison.add(self._partial.pieces())
        self._urls = [origin.url for origin in earlier.header.origins]
        missing = self._partial.missing()
        self._scheduler = Scheduler(size, self._estimates, self._wishes.policy, missing=missing, most=most)

    async def _fetch_and_verify(self) -> None:
        assert self._scheduler is not None
        event: Event = Started(self._loop.time())
        while True:
            self._phase = "fetching"
            await self._runner.run(self._scheduler, event)
            self._phase = "verifying"
            bad = await self._find_bad()
            if not bad:
                break
            event = await self._reject(bad)
        await self._acquit()

    def _given(self) -> list[Checksum]:
        """What the user said, or else the Metalink: either outranks the servers' own words."""
        return [self._wishes.checksum] if self._wishes.checksum else list(self._file.checksums)

    def _write(self, source: int, offset: int, view: memoryview) -> None:
        fresh = self._partial.write(source, offset, view)
        self._journal.append(fresh)
        if self._comparison is not None:
            self._comparison.add(fresh)

    # Verification

    async def _find_bad(self) -> dict[int, str]:
        """The sources whose bytes are wrong, with the reason; none when the file is verified as well as it can be."""
        if self._expected is not None:
            return await self._hold_against(self._expected)
        if self._file.pieces is not None:
            self._verified = True
            return await _in_thread(self._bad_by_pieces, self._file.pieces)
        if self._comparison is None:
            return {}
        self._verified, bad = await self._comparison.finish(dropped=self._bad)
        self._checksum = Checksum("adler32", await _in_thread(self._partial.digest, "adler32"))
        return bad

    async def _hold_against(self, expected: Checksum) -> dict[int, str]:
        found = await _in_thread(self._partial.digest, expected.algorithm)
        self._checksum, self._verified = Checksum(expected.algorithm, found), found == expected.value
        if self._verified:
            return {}
        if self._file.pieces is not None:
            bad = await _in_thread(self._bad_by_pieces, self._file.pieces)
            if bad:
                return bad
        return await verify.blame(
            self._jury, await _in_thread(self._partial.pieces), expected, found, self._partial.size
        )

    def _bad_by_pieces(self, hashes: PieceHashes) -> dict[int, str]:
        """Read the file piece by piece, and compare with the hashes of a Metalink."""
        size, length = self._partial.size, hashes.length
        ranges = [(start, min(start + length, size)) for start in range(0, size, length)]
        wrong = [
            piece
            for piece, value in zip(ranges, hashes.values, strict=True)
            if self._partial.digest(hashes.algorithm, *piece) != value
        ]
        return verify.blame_by_pieces(self._partial.pieces(), wrong) if wrong else {}

    def _able(self, source: int) -> bool:
        """Whether a source can be asked for checksums: it answered, and was not left."""
        assert self._scheduler is not None
        lane = self._scheduler.state.lanes[source]
        return lane.ready_at is not None and lane.usable and lane.status != "pausing"

    async def _reject(self, bad: dict[int, str]) -> Rejected:
        """Drop all that bad sources delivered, so that it is fetched from others."""
        assert self._scheduler is not None
        pieces = await _in_thread(self._partial.pieces)
        dropped = [piece for piece in pieces if piece.source in bad]
        for piece in dropped:
            self._partial.revoke(piece.start, piece.end)
            self._journal.revoke(piece.start, piece.end)
        self._bad |= bad
        self._dropped += dropped
        lanes = self._scheduler.state.lanes
        if all(lane.source in self._bad or lane.status == "left" for lane in lanes):
            names = "; ".join(f"{self._urls[i]}: {why}" for i, why in self._bad.items())
            raise VerificationError(
                f"{self._target.name} could not be verified, and no other source is left. {names}",
                "check the expected checksum, or name a replica that is known to be good",
            )
        ranges = tuple((piece.start, piece.end) for piece in dropped)
        return Rejected(self._loop.time(), tuple(i for i in bad if i < len(lanes)), ranges)

    async def _acquit(self) -> None:
        """Clear those sources of suspicion whose bytes were the same as what replaced them."""
        guilty = set(self._bad) - {piece.source for piece in self._dropped if piece.adler32 is not None}
        for piece in self._dropped:
            if piece.source not in guilty and piece.adler32 is not None:
                now = await _in_thread(self._partial.digest, "adler32", piece.start, piece.end)
                if now != f"{piece.adler32:08x}":
                    guilty.add(piece.source)
        self._bad = {source: why for source, why in self._bad.items() if source in guilty}

    # What is shown

    async def _show(self) -> None:
        assert self._watch is not None
        while True:
            self._watch(self.snapshot())
            await asyncio.sleep(LOOK)

    def snapshot(self) -> Snapshot:
        """The transfer as it is now."""
        now = self._loop.time()
        if self._scheduler is None:
            waiting = tuple(SourceView(url, "connecting") for url in self._urls)
            return Snapshot(self._target.name, self._phase, now - self._began, sources=waiting)
        state = self._scheduler.state
        views = source_views(state, self._urls, now)
        rate = sum(view.rate for view in views)
        left = state.size - state.final.total
        return Snapshot(
            name=self._target.name,
            phase=self._phase,
            seconds=now - self._began,
            done_bytes=state.final.total,
            resumed_bytes=self._resumed,
            size=state.size,
            rate=rate,
            eta_seconds=left / rate if rate else None,
            sources=views,
        )

    def report(self) -> TransferReport:
        """What the transfer did, so far."""
        now = self._loop.time()
        size = self._agreement.size or 0
        scheduler = self._scheduler
        if scheduler is None:
            sources = unstarted_reports(self._urls, self._runner.errors)
            moved = 0
        else:
            sources = source_reports(scheduler.state, self._urls, self._bad, now)
            moved = sum(source.bytes for source in sources)
        seconds = now - self._began
        return TransferReport(
            output=str(self._target),
            size=size,
            seconds=seconds,
            rate=moved / seconds if seconds else 0.0,
            strategy=self._wishes.policy.name,
            resumed_bytes=self._resumed,
            duplicate_bytes=self._partial.duplicate_bytes if scheduler else 0,
            checksum=self._checksum,
            verified=self._verified,
            rationale=scheduler.rationale if scheduler else "",
            notice=self._notice,
            sources=sources,
        )


def unusable(urls: Sequence[str], errors: Mapping[int, SourceError]) -> CoallocError:
    """The one error to show when no source could be used from the start."""
    if len(errors) == 1:
        return next(iter(errors.values()))
    kind = NotAllowed if all(isinstance(e, PermissionRefused) for e in errors.values()) else NothingToFetchFrom
    reasons = "".join(f"\n  {_about(urls[i], error.message)}" for i, error in sorted(errors.items()))
    remedies = {error.remedy: None for error in errors.values()}
    return kind(f"none of the {len(urls)} sources can be used:{reasons}", "; ".join(remedies))


def _about(url: str, message: str) -> str:
    return message if url in message else f"{url}: {message}"


async def _in_thread(job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run what reads or writes the disk in a thread. When cancelled, the file is not let go of before it ends."""
    task = asyncio.ensure_future(asyncio.to_thread(job, *args, **kwargs))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
