"""Verification of a file at a sink that is a server: both servers are asked for checksums, range by range.

Each range is compared with another replica's checksum of it, if there is one, so that every byte has two witnesses. If
a checksum of the whole file is known, that one decides, and ranges only show which source is to blame.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import reduce

from coalloc.errors import VerificationError
from coalloc.model import Basis, Checksum, Extent
from coalloc.util.checksums import ALGORITHMS, adler32_combine
from coalloc.util.concurrency import gather
from coalloc.verify.blame import SUSPECTED, blame
from coalloc.verify.witnesses import WitnessServers

__all__ = ["AtSink"]

Ask = Callable[[str, int, int], Awaitable[str | None]]
"""`ask(algorithm, start, end)`: return the sink's checksum of its bytes [start, end)."""
ALGORITHM = "adler32"
WEAKEST: Sequence[Basis] = ("none", "own word", "agree")
CHANGED = "its bytes changed on the way"


class AtSink:
    """Verifies the file at the sink; may be asked again when wrong ranges have been copied anew.

    :ivar checksum: checksum of the whole file there, once it is known
    :ivar basis: basis of the comparison
    """

    def __init__(self, servers: WitnessServers, size: int, expected: Iterable[Checksum]) -> None:
        self._servers = servers
        self._size = size
        self._expected = sorted(expected, key=lambda checksum: -ALGORITHMS.get(checksum.algorithm, 0))
        self._suspected: set[int] = set()
        self.checksum: Checksum | None = None
        self.basis: Basis = "none"

    @property
    def knows_the_whole(self) -> bool:
        """Return whether a checksum of the whole file has shown that it is right."""
        return self.basis == "given"

    async def find_bad(self, pieces: Sequence[Extent], ask: Ask) -> Mapping[int, str]:
        """Return the sources whose bytes are wrong, with the reason; empty when all is well, or cannot be determined.

        :raises VerificationError: when the replicas contradict each other, or the expected checksum
        """
        if not self._expected:
            return await self._compare(pieces, ask)
        expected, found = await self._computed(self._expected, ask)
        if found is None:
            bad = await self._compare(pieces, ask)
            self.basis = "none"  # it may be the file that all replicas have, and not the expected one
            return bad
        self.checksum = Checksum(expected.algorithm, found)
        if found == expected.value:
            self.basis = "given"
            return {}
        self.basis = "none"
        summed = [piece._replace(adler32=await _sum(piece, ask)) for piece in pieces]
        bad = await blame(self._servers, summed, expected, found, self._size, self._suspected)
        self._suspected |= {source for source, why in bad.items() if why == SUSPECTED}
        return bad

    async def _computed(self, expected: Sequence[Checksum], ask: Ask) -> tuple[Checksum, str | None]:
        """Return the strongest of these checksums that the sink computes, and its value; else the strongest and
        None.
        """
        for each in expected:
            if (found := await ask(each.algorithm, 0, self._size)) is not None:
                return each, found
        return expected[0], None

    async def _compare(self, pieces: Sequence[Extent], ask: Ask) -> Mapping[int, str]:
        sums = await gather(*(_sum(piece, ask) for piece in pieces))
        judged = [piece._replace(adler32=value) for piece, value in zip(pieces, sums, strict=True)]
        verdicts = await gather(*(self._judge(piece) for piece in judged))
        bad = {piece.source: CHANGED for piece, verdict in zip(judged, verdicts, strict=True) if verdict is None}
        self.basis = "none" if bad else next((basis for basis in WEAKEST if basis in verdicts), "agree")
        if None not in sums:
            whole = reduce(
                lambda before, each: adler32_combine(before, each.adler32 or 0, each.end - each.start), judged, 1
            )
            self.checksum = Checksum(ALGORITHM, f"{whole:08x}")
        return bad

    async def _judge(self, piece: Extent) -> Basis | None:
        """Return the basis on which a range at the sink was confirmed; None if it is wrong."""
        if piece.adler32 is None:
            return "none"
        found = f"{piece.adler32:08x}"
        for witness in self._servers.witnesses(piece.source):
            answer = await self._servers.digest(witness, ALGORITHM, piece.start, piece.end)
            if answer == found:
                return "own word" if witness == piece.source else "agree"
            if answer is not None:
                await self._check_agreed(piece, witness, found)
                return None
        return "none"

    async def _check_agreed(self, piece: Extent, witness: int, found: str) -> None:
        """Check that the replicas agree on a range that a witness contradicts.

        :raises VerificationError: when its sender has it as it arrived, and the witness has another one
        """
        if witness == piece.source:
            return
        if await self._servers.digest(piece.source, ALGORITHM, piece.start, piece.end) == found:
            one, other = self._servers.name(piece.source), self._servers.name(witness)
            raise VerificationError(
                f"the replicas are different files: {one} and {other} differ in bytes {piece.start}-{piece.end}",
                "leave out the wrong one, or give the expected checksum",
            )


async def _sum(piece: Extent, ask: Ask) -> int | None:
    value = await ask(ALGORITHM, piece.start, piece.end)
    return None if value is None else int(value, 16)
