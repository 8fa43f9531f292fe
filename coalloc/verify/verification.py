"""Verification of a file that has arrived completely, and the search for the sources of wrong bytes.

A file is compared with an expected checksum if there is one, otherwise with a Metalink's hashes of pieces, otherwise
with the checksums of other replicas. Then it is compared with all other checksums that servers state: these do not
outweigh the first comparison, but are reported if they are wrong. The caller decides what to fetch again, and from
which sources.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from coalloc.errors import VerificationError
from coalloc.model.checksums import SUSPECTED, Basis, Checksum, Extent, PieceHashes
from coalloc.partial_file import PartialFile
from coalloc.util.disk import in_thread
from coalloc.util.intervals import Intervals
from coalloc.verify.blame import PieceBlame, blame
from coalloc.verify.comparison import Comparison
from coalloc.verify.statements import Contradiction, compared, contradictions
from coalloc.verify.witnesses import WitnessServers

__all__ = ["Verification"]


class Verification:
    """The verification of one file and of its sources.

    :param file: the file, already created
    :param servers: the replicas as witnesses
    :param expected: expected checksum of the whole file
    :param stated_by: replicas that stated `expected`; None if the user or a Metalink did
    :param hashes: hashes of the pieces from a Metalink
    :param compare: whether to compare replicas if neither `expected` nor `hashes` is known
    :param stated: returns the checksums of the whole file that each source states
    :param guests: replicas that another replica's server named
    """

    def __init__(
        self,
        file: PartialFile,
        servers: WitnessServers,
        expected: Checksum | None,
        hashes: PieceHashes | None,
        *,
        compare: bool,
        stated_by: Set[int] | None = None,
        stated: Callable[[], Mapping[int, Sequence[Checksum]]] = dict,
        guests: Set[int] = frozenset(),
    ) -> None:
        self._file = file
        self._servers = servers
        self._expected = expected
        self._stated_by = stated_by
        self._hashes = hashes
        self._comparison = Comparison(servers, file.size) if compare and not (expected or hashes) else None
        self._suspected: set[int] = set()
        self._pieces = PieceBlame(guests)
        self._stated = stated
        self._guests = guests
        self.contradictions: list[Contradiction] = []
        """Checksums that sources state, but the file does not have."""
        self.checksum: Checksum | None = None
        """Checksum of the whole file, if one was computed."""
        self.basis: Basis = "none"
        """Basis on which all bytes were confirmed at the last verification."""
        self.bad: dict[int, str] = {}
        """Sources that were dropped for wrong bytes, with the reason."""

    @property
    def knows_the_whole(self) -> bool:
        """Return whether an expected checksum, or hashes of all pieces, decide whether the file is right."""
        return bool(self._expected or self._hashes)

    @property
    def mismatch(self) -> str:
        """Return the end of a sentence that names the file's checksum and the expected one; empty if they agree."""
        if self._expected is None or self.checksum is None or self.basis != "none":
            return ""
        return f" (its {self.checksum.algorithm} is {self.checksum.value}, not the expected {self._expected.value})"

    def confirmed_by_others(self, sender: int) -> bool:
        """Return whether other replicas confirmed all bytes of a sender in the last comparison."""
        return self._comparison is not None and sender not in self._comparison.alone

    def add(self, extents: Iterable[Extent]) -> None:
        """Add ranges that have arrived; replicas are asked about them during the fetch."""
        if self._comparison is not None:
            self._comparison.add(extents)

    def cancel(self) -> None:
        """Cancel all queries, because the result is no longer needed."""
        if self._comparison is not None:
            self._comparison.cancel()

    def expect(self, stated: Checksum | None, stated_by: Set[int]) -> None:
        """Expect a checksum that sources stated after the fetch began, unless a checksum or hashes are known."""
        if stated and not self.knows_the_whole:
            self._expected, self._stated_by = stated, stated_by

    async def find_bad(self) -> dict[int, str]:
        """Return the sources to blame for wrong bytes, with the reason; empty if no error was found.

        :raises VerificationError: if it cannot be determined which bytes are right, or the expected checksum must be
            wrong
        """
        bad = await self._wrong()
        if not bad:
            stated = self._stated()
            algorithms = compared(checksum for checksums in stated.values() for checksum in checksums)
            found = {algorithm: await in_thread(self._file.digest, algorithm) for algorithm in algorithms}
            self.contradictions = contradictions(found, stated)
            others = (
                {each.source for each in self.contradictions if each.found} - self._guests - (self._stated_by or set())
            )
            if self._stated_by is not None and others:
                names = " and ".join(self._servers.name(i) for i in sorted(others | set(self._stated_by)))
                raise VerificationError(
                    f"the replicas are different files, by the checksums that {names} state",
                    "give the right checksum with --checksum ALGORITHM:HEX, or leave the wrong URL out",
                )
            if not self.knows_the_whole:
                senders = self._guests & self._file.senders
                wrong = [each for each in self.contradictions if each.found is not None]
                bad = {each.source: f"its {each}" for each in wrong if each.source in senders}
        return bad

    async def _wrong(self) -> dict[int, str]:
        if self._expected is not None:
            return await self._hold_against(self._expected)
        if self._hashes is not None:
            bad = await in_thread(self._bad_by_pieces, self._hashes)
            self.basis = "none" if bad else "given"
            return bad
        if self._comparison is None:
            return {}
        self.basis, bad = await self._comparison.finish(dropped=self.bad)
        self.checksum = Checksum("adler32", await in_thread(self._file.digest, "adler32"))
        return bad

    async def _hold_against(self, expected: Checksum) -> dict[int, str]:
        found = await in_thread(self._file.digest, expected.algorithm)
        self.checksum = Checksum(expected.algorithm, found)
        if found == expected.value:
            self.basis = self._basis_of_expected()
            return {}
        self.basis = "none"
        if self._hashes is not None:
            bad = await in_thread(self._bad_by_pieces, self._hashes)
            if bad:
                return bad
        pieces = await in_thread(self._file.pieces)
        return await blame(self._servers, pieces, expected, found, self._file.size, self._suspected, self._guests)

    def _basis_of_expected(self) -> Basis:
        """Return the basis of the expected checksum: "own word" if only the replica that sent the bytes stated it."""
        if self._stated_by is None:
            return "given"
        alone = len(self._stated_by) == 1 and self._stated_by & {self._servers.holder(i) for i in self._file.senders}
        return "own word" if alone else "agree"

    def _bad_by_pieces(self, hashes: PieceHashes) -> dict[int, str]:
        """Compare the pieces of the file with the hashes of a Metalink; return the sources to blame."""
        size, length = self._file.size, hashes.length
        ranges = [(start, min(start + length, size)) for start in range(0, size, length)]
        wrong = [
            piece
            for piece, value in zip(ranges, hashes.values, strict=True)
            if self._file.digest(hashes.algorithm, *piece) != value
        ]
        return self._pieces.find(self._file.pieces(), wrong) if wrong else {}

    async def forget(self, sources: Mapping[int, Intervals | None]) -> list[Extent]:
        """Remove bytes of sources whose replicas have changed, or may have; this is not an error of theirs.

        The other bytes are compared again, as earlier answers may have been about another version.

        :param sources: the ranges to remove of each source's bytes; None for all
        :returns: the removed pieces
        """
        dropped = []
        for piece in await in_thread(self._file.pieces):
            if piece.source in sources:
                ranges = sources[piece.source]
                ranges = Intervals([(piece.start, piece.end)]) if ranges is None else ranges
                dropped += [Extent(*each, piece.source) for each in ranges.within(piece.start, piece.end)]
        for piece in dropped:
            self._file.revoke(piece.start, piece.end)
        if self._comparison is not None:
            self._comparison.cancel()
            self._comparison = Comparison(self._servers, self._file.size)
            self._comparison.add(await in_thread(self._file.pieces))
        return dropped

    async def drop(self, bad: Mapping[int, str]) -> tuple[list[Extent], list[int]]:
        """Remove all bytes of bad sources, so that they are fetched from others.

        Only one source at a time is dropped on suspicion: one that was suspected before can be used again.

        :returns: the removed pieces, and the sources that can be used again
        """
        dropped = [piece for piece in await in_thread(self._file.pieces) if piece.source in bad]
        for piece in dropped:
            self._file.revoke(piece.start, piece.end)
        back = [source for source, why in self.bad.items() if why == SUSPECTED and source not in bad]
        self.bad = {source: why for source, why in self.bad.items() if source not in back} | dict(bad)
        self._suspected |= {source for source, why in bad.items() if why == SUSPECTED}
        return dropped, back
