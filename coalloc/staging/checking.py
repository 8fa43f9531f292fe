"""Is a file that was collected the one at its origin? Both ends are asked for checksums; of parts, where it is not."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from coalloc.errors import VerificationError
from coalloc.model import Checksum
from coalloc.staging.item import Item

__all__ = ["Ask", "Verdict", "check"]

KEPT = "adler32"
STRONG = ("sha256", "sha512", "sha1", "md5")
"""Checksums for which who carries bytes finds no others."""
Ask = Callable[[str, int, int], Awaitable[str | None]]
"""`ask(algorithm, start, end)`: the digest of bytes [start, end), in lower-case hex; None where nobody can say."""
Range = tuple[int, int]


class Verdict(NamedTuple):
    """The checksum at the destination, whether somebody else says the same, and which bytes are wrong."""

    checksum: Checksum | None
    verified: bool
    wrong: tuple[Range, ...] = ()


async def check(item: Item, pieces: Sequence[Range], origin: Ask, sink: Ask, relayed: bool = False) -> Verdict:
    """Compare a whole file with its origin, and with the checksum that is expected.

    :param pieces: as they came
    :param relayed: whether some came over other hosts, which can make other bytes of the same adler32
    :raises VerificationError: when the origin has another file than the expected one
    """
    if not item.size and not item.expected:
        return Verdict(Checksum(KEPT, "00000001"), True)
    refuted = False
    if item.expected and (found := await sink(item.expected.algorithm, 0, item.size)):
        if found == item.expected.value and not (relayed and item.expected.algorithm not in STRONG):
            return Verdict(item.expected, True)
        refuted = found != item.expected.value
    said, found = await asyncio.gather(origin(KEPT, 0, item.size), sink(KEPT, 0, item.size))
    if said is None or found is None:
        return _undecided(item, found, refuted)
    if said != found:
        return Verdict(Checksum(KEPT, found), False, await _wrong(item, pieces, origin, sink))
    if refuted and item.expected:
        raise VerificationError(
            f"{item.name} has not the {item.expected.algorithm} {item.expected.value}, neither here nor at its origin",
            "check the expected checksum, or name a replica that is known to be good",
        )
    return await _strongly(item, found, origin, sink) if relayed else Verdict(Checksum(KEPT, found), True)


async def _strongly(item: Item, kept: str, origin: Ask, sink: Ask) -> Verdict:
    """Compare by a checksum that no relay can forge; where no such is known, nothing is verified."""
    for name in STRONG:
        said, found = await asyncio.gather(origin(name, 0, item.size), sink(name, 0, item.size))
        if said is not None and found is not None:
            wrong = () if said == found else ((0, item.size),)
            return Verdict(Checksum(name, found), not wrong, wrong)
    return Verdict(Checksum(KEPT, kept), False)


def _undecided(item: Item, found: str | None, refuted: bool) -> Verdict:
    wrong = ((0, item.size),) if refuted else ()
    return Verdict(Checksum(KEPT, found) if found else None, False, wrong)


async def _wrong(item: Item, pieces: Sequence[Range], origin: Ask, sink: Ask) -> tuple[Range, ...]:
    """The pieces that differ; all of it, if none does."""
    same = await asyncio.gather(*(_same(piece, origin, sink) for piece in pieces))
    return tuple(piece for piece, good in zip(pieces, same, strict=True) if not good) or ((0, item.size),)


async def _same(piece: Range, origin: Ask, sink: Ask) -> bool:
    said, found = await asyncio.gather(origin(KEPT, *piece), sink(KEPT, *piece))
    return said == found
