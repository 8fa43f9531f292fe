"""Are these the right bytes, and if not, whose are wrong? Asks servers for checksums; moves no data.

Three questions, each a function: do the replicas agree on what arrived (`compare`), which checksum is to be
expected (`expectation`), and who is to blame when it is not met (`blame`).
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from coalloc.checksums import ALGORITHMS
from coalloc.engine.base import Source
from coalloc.errors import SourceError, VerificationError
from coalloc.model import Checksum, Extent
from coalloc.urls import redact

__all__ = ["Jury", "blame", "blame_by_pieces", "compare", "expectation"]


class Jury:
    """The replicas as witnesses: each says, where its server can, what the checksum of a range is.

    :param sources: the replicas that answered, by their index
    """

    def __init__(self, sources: Mapping[int, Source]) -> None:
        self.sources = sources
        self._busy = {i: asyncio.Lock() for i in sources}
        self._asked = dict.fromkeys(sources, 0)
        self._silent: set[int] = set()

    async def digest(self, witness: int, algorithm: str, start: int, end: int) -> str | None:
        """What this witness says of bytes [start, end), or None when it cannot say."""
        if witness not in self.sources or witness in self._silent:
            return None
        self._asked[witness] += end - start
        async with self._busy[witness]:
            if witness in self._silent:
                return None
            try:
                value = await self.sources[witness].checksum(algorithm, start, end)
            except SourceError:
                value = None
            if value is None:
                self._silent.add(witness)
        return value

    def witnesses(self, source: int) -> list[int]:
        """Whom to ask about bytes of `source`: the others, the least asked first, then itself."""
        able = [i for i in self.sources if i not in self._silent]
        return sorted(able, key=lambda i: (i == source, self._asked[i], i))

    def name(self, source: int) -> str:
        """The URL of a source as it may be shown."""
        return redact(self.sources[source].url)


async def compare(jury: Jury, pieces: Sequence[Extent]) -> tuple[bool, dict[int, str]]:
    """Hold each piece against the checksum that another replica gives of it.

    So every byte has two witnesses: who delivered it, and who was asked.

    :param pieces: what was delivered, with its adler32
    :returns: whether all of it was confirmed, and the replicas found bad, with the reason
    :raises VerificationError: when replicas differ and no third one can say which is right
    """
    confirmed, bad = True, dict[int, str]()
    verdicts = await asyncio.gather(*(_examine(jury, piece) for piece in pieces))
    for verdict in verdicts:
        confirmed = confirmed and verdict is not None
        bad.update(verdict or {})
    return confirmed and not bad, bad


async def _examine(jury: Jury, piece: Extent) -> dict[int, str] | None:
    """None when nobody can say anything of this piece, else who is bad."""
    ours = f"{piece.adler32:08x}"
    for witness in jury.witnesses(piece.source):
        theirs = await jury.digest(witness, "adler32", piece.start, piece.end)
        if theirs is not None:
            return {} if theirs == ours else await _settle(jury, piece, ours, witness, theirs)
    return None


async def _settle(jury: Jury, piece: Extent, ours: str, witness: int, theirs: str) -> dict[int, str]:
    """Who is right when `witness` contradicts the bytes that we have of a piece."""
    own = theirs if witness == piece.source else await jury.digest(piece.source, "adler32", piece.start, piece.end)
    if own is not None and own != ours:
        return {piece.source: "its bytes changed on the way"}
    others = [i for i in jury.sources if i not in (piece.source, witness)]
    votes = Counter(await asyncio.gather(*(jury.digest(i, "adler32", piece.start, piece.end) for i in others)))
    if votes[ours] > votes[theirs]:
        return {witness: "its replica differs from the others"}
    if votes[theirs] > votes[ours]:
        return {piece.source: "its replica differs from the others"}
    raise VerificationError(
        f"{jury.name(piece.source)} and {jury.name(witness)} differ in bytes {piece.start} to {piece.end - 1}, "
        "and no third replica can say which is right",
        "give the right checksum with --checksum ALGORITHM:HEX, or leave the wrong URL out",
    )


def expectation(candidates: Iterable[Checksum]) -> Checksum | None:
    """The strongest of the checksums that are known, or None."""
    known = [c for c in candidates if c.algorithm in ALGORITHMS]
    return max(known, key=lambda c: ALGORITHMS[c.algorithm], default=None)


async def blame(jury: Jury, pieces: Sequence[Extent], expected: Checksum, found: str, size: int) -> dict[int, str]:
    """Who gave wrong bytes, when the whole file's checksum is `found` and not the expected one.

    First the replicas that say themselves that they are of another file; then those whose bytes changed on
    the way; and when no server can say, the one that delivered least, so that little has to be fetched again.

    :returns: at least one source that delivered something, with the reason
    :raises VerificationError: when it is the expected checksum that must be wrong
    """
    delivered = {i: sum(p.end - p.start for p in pieces if p.source == i) for i in {p.source for p in pieces}}
    wholes = await _ask_all(jury, expected.algorithm, size)
    if wholes and set(wholes.values()) == {found}:
        raise VerificationError(
            f"every replica that can say so has {expected.algorithm} {found}, not the expected {expected.value}",
            "check the expected checksum: it seems to be of another file",
        )
    other = f"its replica is of another file: {expected.algorithm} is not {expected.value}"
    bad = {i: other for i, value in wholes.items() if value != expected.value}
    if not bad.keys() & delivered.keys():
        bad |= await _changed_on_the_way(jury, pieces)
    if not bad.keys() & delivered.keys():
        good = {i for i, value in wholes.items() if value == expected.value}
        suspects = (delivered.keys() - good) or delivered.keys()
        bad[min(suspects, key=lambda i: (delivered[i], i))] = "its bytes are under suspicion"
    return bad


async def _ask_all(jury: Jury, algorithm: str, size: int) -> dict[int, str]:
    """What each replica says of the whole file, of those that can say."""
    values = await asyncio.gather(*(jury.digest(i, algorithm, 0, size) for i in jury.sources))
    return {i: value for i, value in zip(jury.sources, values, strict=True) if value is not None}


async def _changed_on_the_way(jury: Jury, pieces: Sequence[Extent]) -> dict[int, str]:
    kept = [p for p in pieces if p.adler32 is not None]
    values = await asyncio.gather(*(jury.digest(p.source, "adler32", p.start, p.end) for p in kept))
    return {
        p.source: "its bytes changed on the way"
        for p, value in zip(kept, values, strict=True)
        if value is not None and value != f"{p.adler32:08x}"
    }


def blame_by_pieces(pieces: Sequence[Extent], wrong: Sequence[tuple[int, int]]) -> dict[int, str]:
    """Who gave wrong bytes, when the ranges `wrong` do not have the hashes that a Metalink gives for them.

    Whoever delivered a wrong range alone is bad; if each had several sources, the one that was in most of them.

    :returns: at least one source
    """
    involved = [{p.source for p in pieces if p.start < end and start < p.end} for start, end in wrong]
    alone = {source for sources in involved if len(sources) == 1 for source in sources}
    counts = Counter(source for sources in involved for source in sources)
    return dict.fromkeys(alone or {counts.most_common(1)[0][0]}, "its bytes do not have the hashes of the Metalink")
