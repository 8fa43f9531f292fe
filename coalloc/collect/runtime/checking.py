"""Comparison of a collected file with its origin: checksums of the whole file and, if these differ, of its pieces."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from coalloc.collect.runtime.item import CollectItem
from coalloc.errors import VerificationError
from coalloc.model.checksums import Checksum
from coalloc.util.concurrency import gather

__all__ = ["Ask", "ChecksumVerdict", "check"]

FAST = "adler32"
STRONG = ("sha256", "sha512", "sha1", "md5")
"""Checksums that a relay is assumed unable to forge, unlike adler32."""
Ask = Callable[[str, int, int], Awaitable[str | None]]
"""`ask(algorithm, start, end)`: the digest of bytes [start, end), in lower-case hex; None if it is not available."""
Range = tuple[int, int]


class ChecksumVerdict(NamedTuple):
    """The checksum at the destination, whether origin or user confirm it, and the byte ranges that are wrong."""

    checksum: Checksum | None
    verified: bool
    wrong: tuple[Range, ...] = ()


async def check(
    item: CollectItem, pieces: Sequence[Range], origin: Ask, sink: Ask, relayed: bool = False
) -> ChecksumVerdict:
    """Compare a whole file with its origin, and with the expected checksum.

    :param pieces: byte ranges [start, end), as they arrived
    :param relayed: whether some bytes were relayed by other hosts, which could forge an adler32
    :raises VerificationError: when the origin holds another file than the expected one
    """
    if not item.size and not item.expected:
        return ChecksumVerdict(Checksum(FAST, "00000001"), True)
    refuted = unknown = False
    if item.expected and (found := await sink(item.expected.algorithm, 0, item.size)):
        if found == item.expected.value and not (relayed and item.expected.algorithm not in STRONG):
            return ChecksumVerdict(item.expected, True)
        refuted = found != item.expected.value
    elif item.expected:
        stated = await origin(item.expected.algorithm, 0, item.size)
        refuted, unknown = stated not in (None, item.expected.value), stated is None
    at_origin, found = await _checksums(FAST, item, origin, sink)
    checksum = Checksum(FAST, found) if found else None
    if None not in (at_origin, found) and at_origin != found:
        return ChecksumVerdict(checksum, False, await _wrong(item, pieces, origin, sink))
    alike = at_origin is not None and at_origin == found and not relayed
    verdict = ChecksumVerdict(checksum, True) if alike else await _strongly(item, checksum, origin, sink)
    if refuted and item.expected and verdict.verified:
        raise VerificationError(
            f"{item.name} does not have the {item.expected.algorithm} {item.expected.value}, here and at its origin",
            "check the expected checksum, or give a replica that is known to be good",
        )
    if refuted:
        return verdict._replace(wrong=((0, item.size),))
    return verdict._replace(verified=verdict.verified and not unknown)  # both ends may have the same wrong file


async def _strongly(item: CollectItem, checksum: Checksum | None, origin: Ask, sink: Ask) -> ChecksumVerdict:
    """Compare by a checksum that relays cannot forge; if none is available, the file is not verified."""
    for name in STRONG:
        at_origin, found = await _checksums(name, item, origin, sink)
        if at_origin is not None and found is not None:
            wrong = () if at_origin == found else ((0, item.size),)
            return ChecksumVerdict(Checksum(name, found), not wrong, wrong)
    return ChecksumVerdict(checksum, False)


async def _checksums(name: str, item: CollectItem, origin: Ask, sink: Ask) -> tuple[str | None, str | None]:
    """Return the checksums of the whole file at origin and sink."""
    return await gather(origin(name, 0, item.size), sink(name, 0, item.size))


async def _wrong(item: CollectItem, pieces: Sequence[Range], origin: Ask, sink: Ask) -> tuple[Range, ...]:
    """Return the pieces whose checksums differ; the whole file, if none does."""
    same = await gather(*(_same(piece, origin, sink) for piece in pieces))
    return tuple(piece for piece, good in zip(pieces, same, strict=True) if not good) or ((0, item.size),)


async def _same(piece: Range, origin: Ask, sink: Ask) -> bool:
    at_origin, found = await gather(origin(FAST, *piece), sink(FAST, *piece))
    return at_origin == found
