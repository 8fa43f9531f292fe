"""Verification of a file that was copied to a server (the sink), by the checksums of the sink and the replicas.

Each range at the sink is compared with the checksum of a replica, if possible of another one than its source. If a
checksum of the whole file is known, it decides, and the ranges only show which source is to blame.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import reduce

from coalloc.errors import VerificationError
from coalloc.model.checksums import SUSPECTED, Basis, Checksum, Extent
from coalloc.util.checksums import ALGORITHMS, adler32_combine
from coalloc.util.concurrency import gather
from coalloc.verify.blame import blame
from coalloc.verify.witnesses import WitnessServers

__all__ = ["AtSink"]

Ask = Callable[[str, int, int], Awaitable[str | None]]
"""`ask(algorithm, start, end)`: return the sink's checksum of its bytes [start, end), None if it has none."""
ALGORITHM = "adler32"
WEAKEST: Sequence[Basis] = ("none", "own word", "agree")
CHANGED = "its bytes changed on the way"


class AtSink:
    """The verification of a file at the sink, which can be repeated after wrong ranges were copied again.

    :ivar checksum: checksum of the whole file at the sink, once known
    :ivar basis: basis of the last verification
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
        """Return whether the file was confirmed by an expected checksum of the whole file."""
        return self.basis == "given"

    async def find_bad(self, pieces: Sequence[Extent], ask: Ask) -> Mapping[int, str]:
        """Return the sources whose bytes are wrong, with the reason; empty if no error was found.

        :raises VerificationError: if the replicas contradict each other, or the expected checksum
        """
        if not self._expected:
            return await self._compare(pieces, ask)
        expected, found = await self._computed(self._expected, ask)
        if found is None:
            bad = await self._compare(pieces, ask)
            self.basis = "none"  # the replicas may agree on a file that is not the expected one
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
        """Return the first of `expected` that the sink can compute, with the sink's value.

        If there is none, return the first of all and None.
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
        """Return the basis on which a range at the sink is confirmed, "none" if it cannot be; None if it is wrong."""
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
        """Check that a contradiction between a witness and a range at the sink is not one between two replicas.

        :raises VerificationError: if the range's source, or another replica, has the same bytes as the sink
        """
        if witness == piece.source:
            return
        for each in dict.fromkeys((piece.source, *self._servers.witnesses(piece.source))):
            if each != witness and await self._servers.digest(each, ALGORITHM, piece.start, piece.end) == found:
                one, other = self._servers.name(each), self._servers.name(witness)
                raise VerificationError(
                    f"the replicas are different files: {one} and {other} differ in bytes {piece.start}-{piece.end}",
                    "leave out the wrong one, or give the expected checksum",
                )


async def _sum(piece: Extent, ask: Ask) -> int | None:
    value = await ask(ALGORITHM, piece.start, piece.end)
    return None if value is None else int(value, 16)
