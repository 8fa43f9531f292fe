"""Choice of the expected checksum of a file, and search for the sources to blame when it does not match."""

from collections import Counter
from collections.abc import Iterable, Sequence, Set

from coalloc.errors import VerificationError
from coalloc.model.checksums import SUSPECTED, Checksum, Extent
from coalloc.util.checksums import ALGORITHMS
from coalloc.util.concurrency import gather
from coalloc.verify.witnesses import WitnessServers

__all__ = ["PieceBlame", "agreed_checksum", "blame", "expectation"]

UNWANTED = "its bytes may be wrong, and it was not named by the user"
OTHER_HASHES = "its bytes do not have the hashes of the Metalink"
SUSPICIONS = 2
"""Number of times that a source is suspected for wrong pieces before it counts as bad."""


def expectation(candidates: Iterable[Checksum]) -> Checksum | None:
    """Return the checksum with the strongest supported algorithm; None if there is none."""
    order = list(ALGORITHMS)
    known = [c for c in candidates if c.algorithm in ALGORITHMS]
    return max(known, key=lambda c: order.index(c.algorithm), default=None)


async def agreed_checksum(servers: WitnessServers, size: int) -> list[Checksum]:
    """Return the checksum of the whole file on which the replicas agree; empty if no replica can compute one.

    :raises VerificationError: if replicas contradict each other
    """
    for algorithm in ("sha256", "md5", "adler32"):
        values = await _ask_all(servers, algorithm, size)
        if len(set(values.values())) > 1:
            words = ", ".join(f"{servers.name(i)} {value}" for i, value in values.items())
            raise VerificationError(
                f"the replicas are different files, by {algorithm}: {words}", "leave out the wrong ones"
            )
        if values:
            return [Checksum(algorithm, value) for value in set(values.values())]
    return []


async def blame(
    servers: WitnessServers,
    pieces: Sequence[Extent],
    expected: Checksum,
    found: str,
    size: int,
    suspected: Set[int] = frozenset(),
    guests: Set[int] = frozenset(),
) -> dict[int, str]:
    """Return the sources to blame if the whole file's checksum is `found` instead of the expected one.

    The blame is on the first of these that exist:
    1. replicas whose own checksum differs from the expected one, and bytes that an earlier run fetched from them
    2. sources whose bytes changed in transit
    3. all guests, if there are other replicas, as the file must not be wrong because of guests
    4. one source on suspicion: a replica that only an earlier run used, as this run does not need it; otherwise the
       source that delivered the fewest bytes, so that little is fetched again

    :param suspected: sources that were suspected before, but were right
    :param guests: replicas that another replica's server named
    :returns: at least one source that delivered bytes, with the reason
    :raises VerificationError: if the expected checksum must be wrong, or all sources were suspected before
    """
    delivered = {i: sum(p.end - p.start for p in pieces if p.source == i) for i in {p.source for p in pieces}}
    wholes = await _ask_all(servers, expected.algorithm, size)
    if len(wholes) == servers.size and set(wholes.values()) == {found}:  # one without an answer may have the right file
        raise VerificationError(
            f"every replica has {expected.algorithm} {found}, not the expected {expected.value}",
            "check the expected checksum: it seems to belong to another file",
        )
    other = f"its replica is another file: {expected.algorithm} is not {expected.value}"
    others = {i for i, value in wholes.items() if value != expected.value}
    bad = dict.fromkeys(others | {i for i in delivered if servers.holder(i) in others}, other)
    if not bad.keys() & delivered.keys():
        bad |= await _changed_on_the_way(servers, pieces, [i for i, value in wholes.items() if value == expected.value])
    if not bad.keys() & delivered.keys() and guests & delivered.keys() and set(servers.present) - guests:
        return bad | dict.fromkeys(guests, UNWANTED)
    if not bad.keys() & delivered.keys():
        good = {i for i, value in wholes.items() if value == expected.value}
        suspects = delivered.keys() - suspected
        if not suspects:
            raise VerificationError(
                f"the {expected.algorithm} is {found}, not the expected {expected.value}, whichever source is left out",
                "check the expected checksum, or give a replica that is known to be good",
            )
        bad[min((suspects - good) or suspects, key=lambda i: (servers.includes(i), delivered[i], i))] = SUSPECTED
    return bad


async def _ask_all(servers: WitnessServers, algorithm: str, size: int) -> dict[int, str]:
    """Return the checksums of the whole file from the replicas that can compute it."""
    members = servers.members
    values = await gather(*(servers.digest(i, algorithm, 0, size) for i in members))
    return {i: value for i, value in zip(members, values, strict=True) if value is not None}


async def _changed_on_the_way(servers: WitnessServers, pieces: Sequence[Extent], good: Sequence[int]) -> dict[int, str]:
    """Return the senders whose bytes differ from their replicas, or from a good one if this run does not use theirs."""

    def witness(piece: Extent) -> int:
        holder = servers.holder(piece.source)
        return holder if servers.includes(holder) or not good else good[0]

    summed = [p for p in pieces if p.adler32 is not None]
    values = await gather(*(servers.digest(witness(p), "adler32", p.start, p.end) for p in summed))
    return {
        p.source: "its bytes changed on the way"
        for p, value in zip(summed, values, strict=True)
        if value is not None and value != f"{p.adler32:08x}"
    }


class PieceBlame:
    """The search for the sources of wrong pieces, which several sources may have delivered together. Pure.

    :param guests: replicas that another replica's server named
    """

    def __init__(self, guests: Set[int] = frozenset()) -> None:
        self._guests = guests
        self._parts: Counter[int] = Counter()
        """Number of wrong pieces so far in which each source had a part."""
        self._suspected: Counter[int] = Counter()
        """Number of times that each source was suspected."""

    def find(self, pieces: Sequence[Extent], wrong: Sequence[tuple[int, int]]) -> dict[int, str]:
        """Return the sources to blame if the ranges `wrong` do not match the hashes of a Metalink, with the reason.

        A source that alone delivered a wrong range is bad. If each wrong range has several sources, the guests among
        them are bad; if there are none, the source with a part in most wrong pieces so far is suspected. A
        source that was suspected more than `SUSPICIONS` times is bad, so that the search ends.

        :returns: at least one source
        """
        involved = [{p.source for p in pieces if p.start < end and start < p.end} for start, end in wrong]
        self._parts.update(source for sources in involved for source in sources)
        if alone := {source for sources in involved if len(sources) == 1 for source in sources}:
            return dict.fromkeys(alone, OTHER_HASHES)
        here = set[int]().union(*involved)
        if guests := self._guests & here:
            return dict.fromkeys(guests, UNWANTED)
        chosen = max(sorted(here), key=lambda source: (self._parts[source], -self._suspected[source]))
        self._suspected[chosen] += 1
        return {chosen: SUSPECTED if self._suspected[chosen] <= SUSPICIONS else OTHER_HASHES}
