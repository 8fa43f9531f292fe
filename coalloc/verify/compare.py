"""Do the replicas agree on what arrives? Each piece is held against the checksum that another replica gives of it.

So every byte has two witnesses: who delivered it, and who was asked. Asking goes on beside the fetching, on
the servers' time; only the last pieces are waited for, and they are small, because the less is left to fetch, the
smaller are the pieces that are asked about.
"""

import asyncio
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from coalloc.errors import VerificationError
from coalloc.model import Extent
from coalloc.pieces import Pieces
from coalloc.verify.jury import Jury

__all__ = ["Comparison"]

LEAST, MOST = 8 << 20, 64 << 20
"""Bytes of one source that are asked about at once."""
PART = 8
"""They are this part of what is left to fetch, within these bounds."""


class Verdict(NamedTuple):
    """Which replicas are bad, with the reason, by the word of `witness`; None when nobody could say anything."""

    witness: int | None = None
    bad: Mapping[int, str] = MappingProxyType({})


class Comparison:
    """Compares pieces as they become long enough; `finish` the rest.

    :param left: bytes that will be added
    """

    def __init__(self, jury: Jury, left: int) -> None:
        self._jury = jury
        self._left = left
        self._waiting = Pieces()
        self._cases: dict[Extent, asyncio.Task[Verdict]] = {}

    def add(self, extents: Iterable[Extent]) -> None:
        """These bytes are here now, with their adler32."""
        for extent in extents:
            self._waiting.add(extent.start, extent.end, extent.source, extent.adler32)
            self._left -= extent.end - extent.start
            piece = self._waiting.ending_at(extent.end)
            if piece is not None and piece.end - piece.start >= min(MOST, max(LEAST, self._left // PART)):
                self._waiting.remove(piece.start, piece.end)
                self._examine(Extent(piece.start, piece.end, piece.source, piece.adler32))

    def _examine(self, piece: Extent, *, soon: bool = False) -> None:
        self._cases[piece] = asyncio.get_running_loop().create_task(_examine(self._jury, piece, soon))

    async def finish(self, dropped: Container[int] = ()) -> tuple[bool, dict[int, str]]:
        """Wait for all verdicts on what is here. More may be added after it.

        :param dropped: sources whose pieces are here no more
        :returns: whether all of it was confirmed, and the replicas found bad, with the reason
        :raises VerificationError: when replicas differ and no third one can say which is right
        """
        for piece in self._waiting:
            self._examine(Extent(piece.start, piece.end, piece.source, piece.adler32), soon=True)
        self._waiting.clear()
        self._cases = {piece: task for piece, task in self._cases.items() if piece.source not in dropped}
        for case, verdict in zip(list(self._cases), await asyncio.gather(*self._cases.values()), strict=True):
            if self._can_be_told_more(case, verdict):
                self._examine(case, soon=True)
        verdicts = await asyncio.gather(*self._cases.values())
        bad = {source: why for verdict in verdicts for source, why in verdict.bad.items() if source not in dropped}
        return not bad and all(verdict.witness is not None for verdict in verdicts), bad

    def _can_be_told_more(self, piece: Extent, verdict: Verdict) -> bool:
        """Whether no other replica had answered yet when this piece was asked about, and one has by now."""
        return verdict.witness in (None, piece.source) and self._jury.witnesses(piece.source)[:1] != [verdict.witness]

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        for task in self._cases.values():
            if not task.cancel() and not task.cancelled():
                task.exception()  # seen


async def _examine(jury: Jury, piece: Extent, soon: bool) -> Verdict:
    """Hold a piece against the word of the first replica that can say anything of it."""
    ours = f"{piece.adler32:08x}"
    for witness in jury.witnesses(piece.source, soon=soon):
        theirs = await jury.digest(witness, "adler32", piece.start, piece.end)
        if theirs is not None:
            bad = {} if theirs == ours else await _settle(jury, piece, ours, witness, theirs)
            return Verdict(witness, bad)
    return Verdict()


async def _settle(jury: Jury, piece: Extent, ours: str, witness: int, theirs: str) -> dict[int, str]:
    """Who is right when `witness` contradicts the bytes that we have of a piece."""
    own = theirs if witness == piece.source else await jury.digest(piece.source, "adler32", piece.start, piece.end)
    if own is not None and own != ours:
        return {piece.source: "its bytes changed on the way"}
    others = [i for i in jury.members if i not in (piece.source, witness)]
    votes = Counter(await asyncio.gather(*(jury.digest(i, "adler32", piece.start, piece.end) for i in others)))
    if votes[ours] > votes[theirs]:
        return {witness: "its replica differs from the others"}
    if votes[theirs] > votes[ours]:
        return {piece.source: "its replica differs from the others"}
    if not jury.includes(piece.source):  # what is named now says what the file is
        return {piece.source: "an earlier run took these bytes from a replica that differs from those named now"}
    raise VerificationError(
        f"{jury.name(piece.source)} and {jury.name(witness)} differ in bytes {piece.start} to {piece.end - 1}, "
        "and no third replica can say which is right",
        "give the right checksum with --checksum ALGORITHM:HEX, or leave the wrong URL out",
    )
