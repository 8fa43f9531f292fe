"""Judgement of a complete file: it finds the bytes that are wrong, or of another version, to fetch them again."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from coalloc.download.connections import SourceConnections
from coalloc.download.continuation import Continuation
from coalloc.errors import ReplicaChanged, TransferFailed, VerificationError
from coalloc.model import Basis, Extent
from coalloc.partial_file import Journal, PartialFile
from coalloc.schedule.events import Rejected
from coalloc.schedule.state import ScheduledSource
from coalloc.util.intervals import Intervals
from coalloc.verify import Verification

__all__ = ["Judge", "JudgedFile"]


class JudgedFile(NamedTuple):
    """The fetched file and the records of its bytes; `resumed` are the bytes from an earlier run."""

    name: str
    partial: PartialFile
    journal: Journal
    resumed: Intervals

    def revoke(self, dropped: Sequence[Extent]) -> tuple[tuple[int, int], ...]:
        """Record that these pieces, already removed from the partial file, are missing again; return their ranges."""
        for piece in dropped:
            self.journal.revoke(piece.start, piece.end)
            self.resumed.remove(piece.start, piece.end)
        return tuple((piece.start, piece.end) for piece in dropped)


class Judge:
    """A judge that decides, each time all bytes have arrived, whether the file is right.

    :param urls: URLs of all senders: the current sources, then the replicas of an earlier run
    :param sources: the current sources
    :param continuation: state of the earlier run's replicas, if bytes of that run are used
    """

    def __init__(
        self,
        file: JudgedFile,
        urls: Sequence[str],
        sources: Sequence[ScheduledSource],
        connections: SourceConnections,
        verification: Verification,
        continuation: Continuation | None,
    ) -> None:
        self._file = file
        self._urls = urls
        self._states = sources
        self._connections = connections
        self._verification = verification
        self._continuation = continuation
        self.notice: str | None = None
        """Note for the user about bytes that were fetched again."""

    @property
    def basis(self) -> Basis:
        """The basis of the verification so far."""
        return self._verification.basis

    async def judge(self) -> Rejected | None:
        """Return the ranges to fetch again and the sources not to use for them; None when the file is right.

        :raises CoallocError: when the file is wrong, and no source is left or the right bytes cannot be determined
        """
        bad, changed = await self._suspects()
        if changed:
            return await self._fetch_anew(changed)
        return await self._reject(bad) if bad else None

    async def _suspects(self) -> tuple[Mapping[int, str], Mapping[int, str]]:
        """Return the senders of wrong bytes, and the senders of another (or doubtful) version, with the reasons."""
        verification = self._verification
        verdict = asyncio.get_running_loop().create_task(verification.find_bad())
        try:
            changed, doubted = await self._unconfirmed()
            if changed:
                return {}, changed
            bad = await verdict
            return bad, {} if bad else {i: why for i, why in doubted.items() if not verification.confirmed_by_others(i)}
        finally:
            verdict.cancel()
            await asyncio.gather(verdict, return_exceptions=True)

    async def _unconfirmed(self) -> tuple[dict[int, str], dict[int, str]]:
        """Return the senders that have changed since they delivered, and the senders that may have, with the reasons.

        If a checksum of the whole file is known, it decides alone, and both are empty.
        """
        if self._verification.knows_the_whole:
            return {}, {}
        senders, count = self._file.partial.senders, len(self._states)
        errors = await self._connections.recheck(source for source in senders if source < count)
        changed = {i: error.message for i, error in errors.items() if isinstance(error, ReplicaChanged)}
        doubted = {i: error.message for i, error in errors.items() if i not in changed}
        if earlier := self._continuation:
            for number in senders - earlier.confirmed - set(range(count)):
                url, known = self._urls[number], earlier.begun_anew or number in earlier.changed
                why = f"{url} {'was changed' if known else 'may have changed'} since an earlier run fetched from it"
                (changed if known else doubted)[number] = why
        return changed, doubted

    async def _fetch_anew(self, changed: Mapping[int, str]) -> Rejected:
        """Remove the bytes that are, or may be, of another version, so that they are fetched again.

        :raises CoallocError: when no source is left
        """
        if all(source.index in changed or source.status == "dropped" for source in self._states):
            errors = [self._connections.errors[i] for i in changed if i in self._connections.errors]
            stale = next((error for error in errors if isinstance(error, ReplicaChanged)), None)
            if stale is None:
                why = "; ".join(changed.values())
                raise TransferFailed(
                    f"no source can confirm that the file did not change while it was fetched: {why}",
                    "run the same command again to continue",
                )
            self._file.revoke(await self._verification.forget(changed))
            raise stale
        total = self._file.revoke(await self._verification.forget(changed))
        why = "; ".join(changed.values())
        self.notice = f"{sum(end - start for start, end in total)} bytes were fetched again: {why}"
        return Rejected(_now(), self._of_today(changed), total, reason=why)

    async def _reject(self, bad: Mapping[int, str]) -> Rejected:
        """Remove all bytes of bad sources, so that they are fetched from others."""
        verification = self._verification
        dropped, back = await verification.drop(bad)
        ranges = self._file.revoke(dropped)
        left = {source.index for source in self._states if source.status == "dropped"} - set(back)
        if all(source.index in verification.bad.keys() | left for source in self._states):
            names = "; ".join(f"{self._urls[i]}: {why}" for i, why in verification.bad.items())
            failed = f"{self._file.name} could not be verified{verification.mismatch}"
            raise VerificationError(
                f"{failed}, and no other source is left. {names}",
                "check the expected checksum, or name a replica that is known to be good",
            )
        return Rejected(_now(), self._of_today(bad), ranges, self._of_today(back))

    def _of_today(self, senders: Iterable[int]) -> tuple[int, ...]:
        return tuple(sender for sender in senders if sender < len(self._states))


def _now() -> float:
    return asyncio.get_running_loop().time()
