"""Comparison of replicas: each piece that arrives is compared with another replica's checksum of it.

So every byte has two witnesses: its sender, and the replica that was asked. The queries run during the fetch; only the
last ones delay the end. To keep these few and short:
- the fewer bytes are left to fetch, the smaller are the pieces that are queried;
- pieces that have stopped growing are queried at once;
- the last pieces are queried before they have arrived (`early_queries`);
- other pieces left at the end are queried together with their neighbours, from a replica that delivered none of them.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import NamedTuple

from coalloc.errors import VerificationError
from coalloc.model.checksums import Basis, Extent
from coalloc.partial_file.pieces import DeliveredPiece, Pieces
from coalloc.util.intervals import Intervals
from coalloc.verify.early_queries import PATIENCE, SLOWER, Foresight, combined
from coalloc.verify.witnesses import WitnessServers

__all__ = ["Comparison", "together"]

LEAST, MOST = 8 << 20, 64 << 20
"""Minimum and maximum bytes of one query."""
PART = 8
"""Divisor: a query has a PART-th of the bytes left to fetch, between LEAST and MOST."""
WORTH = 256 << 10
"""Minimum bytes of a piece that is queried when it stops growing; a smaller one is queried only if it cannot grow."""
LOOK = 0.25
"""Seconds between checks for pieces that have stopped growing."""


class WitnessVerdict(NamedTuple):
    """The bad replicas, with the reason, according to `witness`, which is None if no replica could answer."""

    witness: int | None = None
    bad: Mapping[int, str] = MappingProxyType({})


class Comparison:
    """A comparison of the pieces that arrive, once they are long enough; `finish` compares the remaining ones.

    :param left: bytes of the file, all of which will be added
    """

    def __init__(self, servers: WitnessServers, left: int) -> None:
        self._servers = servers
        self._size = self._left = left
        self._waiting = Pieces()
        self._examined = Intervals()
        self._looked_at, self._left_then = 0.0, left
        self._foresight: Foresight | None = None
        self.alone: set[int] = set()
        """Senders of bytes that no other replica has confirmed."""
        self._seen: set[Extent] = set()
        """The unqueried pieces at the last check."""
        self._cases: dict[Extent, asyncio.Task[WitnessVerdict]] = {}
        self._late: list[asyncio.Task[WitnessVerdict]] = []
        """Queries whose answers are no longer needed, as other replicas answered or were asked."""

    def add(self, extents: Iterable[Extent]) -> None:
        """Add ranges that have arrived, with their adler32."""
        for extent in extents:
            self._waiting.add(extent.start, extent.end, extent.source, extent.adler32)
            self._left -= extent.end - extent.start
            if self._foresight:
                continue
            piece = self._waiting.ending_at(extent.end)
            if piece is not None and piece.end - piece.start >= min(MOST, max(LEAST, self._left // PART)):
                self._waiting.remove(piece.start, piece.end)
                self._examine([_extent(piece)])
        now = asyncio.get_running_loop().time()
        if now - self._looked_at >= LOOK and not self._foresight:
            rate = (self._left_then - self._left) / (now - self._looked_at)
            self._looked_at, self._left_then = now, self._left
            self._examine_the_still()
            self._foresee(rate)

    def _foresee(self, rate: float) -> None:
        """Query all bytes without an answer, if the answers will take about as long as the rest of the fetch.

        This includes pieces with a pending query, which may be queued at a distant witness.
        """
        foresight = Foresight(self._servers)
        if self._left > 0 and foresight.due(self._left, rate):
            self._foresight = foresight
            answered = Intervals(self._examined)
            for piece, task in self._cases.items():
                if not task.done():
                    answered.remove(piece.start, piece.end)
            foresight.ask(answered.gaps(0, self._size))

    def _examine_the_still(self) -> None:
        """Query the pieces that have not grown since the last check, if they are large or cannot grow."""
        pieces = {_extent(piece) for piece in self._waiting}
        for piece in pieces & self._seen:
            if piece.end - piece.start >= WORTH or self._enclosed(piece):
                self._waiting.remove(piece.start, piece.end)
                self._examine([piece])
        self._seen = pieces

    def _enclosed(self, piece: Extent) -> bool:
        """Return whether the ranges before and after a piece were queried without it, as it came late, after a loss."""
        before, behind = max(0, piece.start - 1), piece.end
        return self._examined.covers(before, piece.start) and self._examined.covers(behind, behind + 1)

    def _examine(self, neighbours: Sequence[Extent], *, soon: bool = False) -> None:
        create_task = asyncio.get_running_loop().create_task
        query = create_task(_confirm(self._servers, neighbours)) if len(neighbours) > 1 else None
        for piece in neighbours:
            self._examined.add(piece.start, piece.end)
            self._cases[piece] = create_task(_examine(self._servers, piece, soon, query))

    async def finish(self, dropped: Container[int] = ()) -> tuple[Basis, dict[int, str]]:
        """Wait for the verdicts on all bytes added so far. More may be added later.

        :param dropped: sources whose pieces have been removed
        :returns: the basis on which all bytes are confirmed, and the bad replicas with the reason
        :raises VerificationError: if replicas differ and no third one can decide which is right
        """
        waiting = [_extent(piece) for piece in self._waiting]
        self._waiting.clear()
        for neighbours in together(await self._not_foreseen(waiting), set(self._servers.members), self._servers.holder):
            self._examine(neighbours, soon=True)
        self._cases = {piece: task for piece, task in self._cases.items() if piece.source not in dropped}
        await self._ask_others_instead()
        for case, verdict in zip(list(self._cases), await asyncio.gather(*self._cases.values()), strict=True):
            if self._can_ask_another(case, verdict):
                self._examine([case], soon=True)
        verdicts = await asyncio.gather(*self._cases.values())
        bad = {source: why for verdict in verdicts for source, why in verdict.bad.items() if source not in dropped}
        if bad:
            return "none", bad
        return self._basis(
            [(piece.source, verdict.witness) for piece, verdict in zip(self._cases, verdicts, strict=True)]
        ), {}

    def _basis(self, judged: Sequence[tuple[int, int | None]]) -> Basis:
        """Return the basis on which all bytes are confirmed, from the sender and the witness of each piece."""
        self.alone = {sender for sender, witness in judged if witness in (None, self._servers.holder(sender))}
        if self._foresight:
            self.alone |= self._foresight.alone
        if any(witness is None for _, witness in judged):
            return "none"
        return "own word" if self.alone else "agree"

    async def _not_foreseen(self, waiting: Sequence[Extent]) -> Sequence[Extent]:
        """Return the pieces that the early queries did not confirm.

        Pending queries about confirmed pieces become late: nothing waits for their answers any more.
        """
        if not self._foresight:
            return waiting
        right = await self._foresight.confirmed(sorted([*waiting, *self._cases]))
        for piece in [piece for piece, task in self._cases.items() if not task.done()]:
            if right.covers(piece.start, piece.end):
                self._late.append(self._cases.pop(piece))
        return [piece for piece in waiting if not right.covers(piece.start, piece.end)]

    async def _ask_others_instead(self) -> None:
        """Query another replica too if an answer takes long, as the witness's link may have become slow."""
        if not self._cases:
            return
        _, pending = await asyncio.wait(self._cases.values(), timeout=self._patience)
        for piece, task in list(self._cases.items()):
            witnesses = self._servers.witnesses(piece.source, soon=True)
            others = [i for i in witnesses if i != self._servers.holder(piece.source) and self._servers.free(i)]
            if task in pending and others:
                self._late.append(task)
                self._cases[piece] = asyncio.get_running_loop().create_task(_either(self._servers, piece, task, others))

    @property
    def _patience(self) -> float:
        """Seconds after which another replica is queried; the fastest would have answered by then."""
        return max(PATIENCE, SLOWER * min((self._servers.expected(i) for i in self._servers.members), default=0.0))

    def _can_ask_another(self, piece: Extent, verdict: WitnessVerdict) -> bool:
        """Return whether a replica other than the sender's can be asked now that could not before."""
        return verdict.witness in (None, self._servers.holder(piece.source)) and self._servers.witnesses(piece.source)[
            :1
        ] != [verdict.witness]

    def cancel(self) -> None:
        """Cancel all queries, because the result is no longer needed."""
        if self._foresight:
            self._foresight.cancel()
        for task in [*self._cases.values(), *self._late]:
            if not task.cancel() and not task.cancelled():
                task.exception()  # mark as retrieved


def _extent(piece: DeliveredPiece) -> Extent:
    return Extent(piece.start, piece.end, piece.source, piece.adler32)


def together(
    pieces: Iterable[Extent], members: Set[int], holder: Callable[[int], int] = lambda sender: sender
) -> list[list[Extent]]:
    """Group pieces to query together: neighbours of at most LEAST bytes, none of them from at least one member.

    >>> [len(group) for group in together([Extent(0, 5, 0), Extent(5, 7, 1), Extent(7, 9, 2)], {0, 1, 2})]
    [2, 1]
    """
    groups: list[list[Extent]] = []
    for piece in pieces:
        group = groups[-1] if groups else []
        if (
            group
            and group[-1].end == piece.start
            and piece.end - group[0].start <= LEAST
            and members - {holder(other.source) for other in (piece, *group)}
        ):
            group.append(piece)
        else:
            groups.append([piece])
    return groups


async def _confirm(servers: WitnessServers, neighbours: Sequence[Extent]) -> int | None:
    """Return a replica that confirms these pieces together and delivered none of them; None if there is none."""
    senders = {servers.holder(piece.source) for piece in neighbours}
    start, end = neighbours[0].start, neighbours[-1].end
    for witness in servers.witnesses(*senders, soon=True):
        if witness in senders:
            break
        theirs = await servers.digest(witness, "adler32", start, end)
        if theirs is not None:
            return witness if theirs == combined(neighbours) else None
    return None


async def _examine(
    servers: WitnessServers, piece: Extent, soon: bool, query: asyncio.Task[int | None] | None
) -> WitnessVerdict:
    """Compare a piece with the first available answer of a replica.

    :param soon: whether to ask the fastest replica first
    :param query: query for the piece with its neighbours; if this confirms them, no other replica is asked
    """
    if query is not None and (witness := await query) is not None:
        return WitnessVerdict(witness)
    return await _hold(servers, piece, servers.witnesses(piece.source, soon=soon))


async def _hold(servers: WitnessServers, piece: Extent, witnesses: Iterable[int]) -> WitnessVerdict:
    """Compare a piece with the first available answer of these replicas, asked in order."""
    ours = f"{piece.adler32:08x}"
    for witness in witnesses:
        theirs = await servers.digest(witness, "adler32", piece.start, piece.end)
        if theirs is not None:
            bad = {} if theirs == ours else await _settle(servers, piece, ours, witness, theirs)
            return WitnessVerdict(witness, bad)
    return WitnessVerdict()


async def _either(
    servers: WitnessServers, piece: Extent, late: asyncio.Task[WitnessVerdict], others: Sequence[int]
) -> WitnessVerdict:
    """Return the verdict of the pending query `late`, or of a query of `others` if that is faster."""
    other = asyncio.ensure_future(_hold(servers, piece, others))
    try:
        done, _ = await asyncio.wait({late, other}, return_when=asyncio.FIRST_COMPLETED)
        verdict = await done.pop()
        return verdict if verdict.witness is not None else await (late if other.done() else other)
    finally:
        other.cancel()


async def _settle(servers: WitnessServers, piece: Extent, ours: str, witness: int, theirs: str) -> dict[int, str]:
    """Return the bad replicas, with the reason, if `witness` contradicts the fetched bytes of a piece."""
    holder = servers.holder(piece.source)
    own = theirs if witness == holder else await servers.digest(holder, "adler32", piece.start, piece.end)
    if own is not None and own != ours:
        changed = "its bytes changed on the way" if holder == piece.source else "it has changed since an earlier run"
        return {piece.source: changed}
    others = [i for i in servers.members if i not in (holder, witness)]
    votes = Counter(await asyncio.gather(*(servers.digest(i, "adler32", piece.start, piece.end) for i in others)))
    if votes[ours] > votes[theirs]:
        return {witness: "its replica differs from the others"}
    if votes[theirs] > votes[ours]:
        return {piece.source: "its replica differs from the others"}
    if not servers.includes(holder):  # the current replicas define the file
        return {piece.source: "an earlier run fetched these bytes from a replica that differs from the present ones"}
    raise VerificationError(
        f"{servers.name(holder)} and {servers.name(witness)} differ in bytes {piece.start} to {piece.end - 1}, "
        "and no third replica can decide which is right",
        "give the right checksum with --checksum ALGORITHM:HEX, or leave out the wrong URL",
    )
