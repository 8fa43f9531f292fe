"""Judgement of a complete file: it finds the bytes that are wrong, or of another version, to fetch them again."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set
from math import inf
from typing import NamedTuple

from coalloc.download.arrivals import Arrivals
from coalloc.download.connections import SourceConnections
from coalloc.download.continuation import Continuation
from coalloc.download.samples import differing_guests
from coalloc.errors import ReplicaChanged, TransferFailed, VerificationError
from coalloc.model.checksums import Basis, Extent
from coalloc.partial_file import Journal, PartialFile
from coalloc.safe_text import redact
from coalloc.schedule.events import Rejected
from coalloc.schedule.sources import ScheduledSource
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
    :param arrivals: for each current source, the arrivals of its bytes in this run
    :param guests: the current sources that another replica's server named
    """

    def __init__(
        self,
        file: JudgedFile,
        urls: Sequence[str],
        sources: Sequence[ScheduledSource],
        connections: SourceConnections,
        verification: Verification,
        continuation: Continuation | None,
        arrivals: Sequence[Arrivals],
        guests: Set[int] = frozenset(),
    ) -> None:
        self._file = file
        self._urls = [redact(url) for url in urls]
        self._states = sources
        self._connections = connections
        self._verification = verification
        self._continuation = continuation
        self._arrivals = arrivals
        self._guests = guests
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
        if self._guests and not bad and not self._verification.knows_the_whole:
            own = [each.index for each in self._states if each.index not in self._guests and each.answers]
            bad = await differing_guests(self._connections, self._file.partial, self._guests, own)
        return await self._reject(bad) if bad else None

    async def _suspects(self) -> tuple[Mapping[int, str], Mapping[int, str]]:
        """Return the senders of wrong bytes, and the senders of another (or doubtful) version, with the reasons.

        If a checksum of the whole file is known, it decides alone. Otherwise all senders are asked whether their
        replicas are unchanged. A sender that has failed is asked last, and only if others did not confirm its bytes,
        and to fetch them again from others would take longer.
        """
        verification = self._verification
        verdict = asyncio.get_running_loop().create_task(verification.find_bad())
        try:
            if verification.knows_the_whole:
                return await verdict, {}
            answering = {source.index for source in self._states if source.status in ("idle", "spare")}
            of_today = self._file.partial.senders & set(range(len(self._states)))
            changed, doubted = await self._recheck(of_today & answering)
            for number, (why, is_known) in self._changes_since_earlier_run().items():
                (changed if is_known else doubted)[number] = why
            if changed:
                return {}, changed
            if bad := await verdict:
                return bad, {}
            seconds = self._connections.patience if answering else None
            unsure = {i for i in of_today - answering if self._is_doubtful(i)}
            rate = sum(self._states[i].meter.rate(_now()) or 0.0 for i in answering)
            few = {i for i in unsure if _count(self._unconfirmed(i)) <= rate * self._connections.patience}
            changed, late = await self._recheck(unsure - few, seconds)
            late |= {i: f"{self._urls[i]} does not answer any more" for i in few}
            return {}, changed or {i: why for i, why in (doubted | late).items() if self._is_doubtful(i)}
        finally:
            verdict.cancel()
            await asyncio.gather(verdict, return_exceptions=True)

    async def _recheck(
        self, senders: Iterable[int], seconds: float | None = None
    ) -> tuple[dict[int, str], dict[int, str]]:
        """Return the senders that have changed since they delivered, and those that do not answer, with the reasons."""
        errors = await self._connections.recheck(senders, seconds)
        changed = {i: error.message for i, error in errors.items() if isinstance(error, ReplicaChanged)}
        return changed, {i: error.message for i, error in errors.items() if i not in changed}

    def _changes_since_earlier_run(self) -> dict[int, tuple[str, bool]]:
        """Return the senders of an earlier run that are not confirmed: the reason, and whether it is known to be so."""
        found: dict[int, tuple[str, bool]] = {}
        if earlier := self._continuation:
            for number in self._file.partial.senders - earlier.confirmed - set(range(len(self._states))):
                url, known = self._urls[number], earlier.begun_anew or number in earlier.changed
                why = f"{url} {'was changed' if known else 'may have changed'} since an earlier run fetched from it"
                found[number] = why, known
        return found

    def _is_doubtful(self, sender: int) -> bool:
        """Return whether some bytes of a sender were confirmed neither by others nor by its own later answers."""
        unconfirmed = self._unconfirmed(sender)
        return not self._verification.confirmed_by_others(sender) and (unconfirmed is None or bool(unconfirmed))

    def _unconfirmed(self, sender: int) -> Intervals | None:
        """Return the ranges of the file that arrived after their sender's last answer about its version.

        None stands for all its bytes.
        """
        changed = isinstance(self._connections.errors.get(sender), ReplicaChanged)
        if sender >= len(self._states) or self._states[sender].ready_at is None or changed:
            return None
        recent = self._arrivals[sender].after(self._connections.sources[sender].unchanged_at)
        pieces = self._file.partial.delivered_by(sender)
        return Intervals(part for piece in pieces for part in recent.within(*piece))

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
            await self._forget(changed)
            raise stale
        total = await self._forget(changed)
        why = "; ".join(changed.values())
        self.notice = f"{sum(end - start for start, end in total)} bytes were fetched again: {why}"
        return Rejected(_now(), self._of_today(changed), total, reason=why)

    async def _forget(self, senders: Iterable[int]) -> tuple[tuple[int, int], ...]:
        """Remove the unconfirmed bytes of these senders; return their ranges."""
        return self._file.revoke(await self._verification.forget({i: self._unconfirmed(i) for i in senders}))

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
                "check the expected checksum, or give a replica that is known to be good",
            )
        return Rejected(_now(), self._of_today(bad), ranges, self._of_today(back))

    def _of_today(self, senders: Iterable[int]) -> tuple[int, ...]:
        return tuple(sender for sender in senders if sender < len(self._states))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _count(ranges: Intervals | None) -> float:
    return inf if ranges is None else ranges.total
