"""Comparison of a collected file with its origin: checksums of the whole file and, if these differ, of its pieces."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from coalloc.collect.runtime.item import CollectItem
from coalloc.errors import VerificationError
from coalloc.model.checksums import Checksum, PieceHashes
from coalloc.util.concurrency import gather

__all__ = ["FAST", "Ask", "ChecksumVerdict", "check", "wrong_pieces"]

FAST = "adler32"
AT_ONCE = 32
"""Maximum number of pieces whose hashes are asked for at the same time, as a file may have a million pieces."""
STRONG = ("sha256", "sha512", "sha1", "md5")
"""Checksums that a relay is assumed unable to forge, unlike adler32."""
Ask = Callable[[str, int, int], Awaitable[str | None]]
"""`ask(algorithm, start, end)`: the digest of bytes [start, end), in lower-case hex; None if it is not available."""
Range = tuple[int, int]


class ChecksumVerdict(NamedTuple):
    """The checksum at the destination, whether origin or user confirm it, and the byte ranges that are wrong.

    `same`: a checksum, which a relay may have forged, shows that the file is the one of an origin, or the expected one.
    """

    checksum: Checksum | None
    verified: bool
    wrong: tuple[Range, ...] = ()
    same: bool = False


async def check(
    item: CollectItem, pieces: Sequence[Range], origin: Ask, sink: Ask, relayed: bool = False, others: bool = False
) -> ChecksumVerdict:
    """Compare a whole file with its origin, and with the expected checksum.

    :param pieces: byte ranges [start, end), as they arrived
    :param relayed: whether some bytes were relayed by other hosts, which could forge an adler32
    :param others: whether the file can be fetched from another server if the origin holds another file than the
        expected one; then the result is `same`, and wrong as a whole
    :raises VerificationError: when the origin holds another file than the expected one, and there are no `others`; or
        only hashes of pieces are known, and the destination cannot compute them
    """
    if not item.size and not item.expected:
        return ChecksumVerdict(Checksum(FAST, "00000001"), True, same=True)
    if item.pieces and not item.expected:
        return await _by_pieces(item, item.pieces, origin, sink, relayed)
    refuted = unknown = alike = False
    if item.expected and (found := await sink(item.expected.algorithm, 0, item.size)):
        if found == item.expected.value and not (relayed and item.expected.algorithm not in STRONG):
            return ChecksumVerdict(item.expected, True, same=True)
        alike = found == item.expected.value
        refuted = not alike
    elif item.expected:
        stated = await origin(item.expected.algorithm, 0, item.size)
        refuted, unknown = stated not in (None, item.expected.value), stated is None
    at_origin, found = await _checksums(FAST, item, origin, sink)
    checksum = Checksum(FAST, found) if found else None
    if None not in (at_origin, found) and at_origin != found:
        return ChecksumVerdict(checksum, False, await _wrong(item, pieces, origin, sink))
    alike = alike or (at_origin is not None and at_origin == found)
    if alike and not relayed:
        verdict = ChecksumVerdict(checksum, True, same=True)
    else:
        verdict = await _strongly(item, checksum, origin, sink, alike)
    if refuted and item.expected and verdict.verified and not others:
        raise VerificationError(
            f"{item.name} does not have the {item.expected.algorithm} {item.expected.value}, here and at its origin",
            "check the expected checksum, or give a replica that is known to be good",
        )
    if refuted:
        return verdict._replace(wrong=((0, item.size),))
    return verdict._replace(verified=verdict.verified and not unknown)  # both ends may have the same wrong file


async def _by_pieces(item: CollectItem, hashes: PieceHashes, origin: Ask, sink: Ask, relayed: bool) -> ChecksumVerdict:
    wrong = await wrong_pieces(hashes, item.size, sink)
    if wrong is None:
        raise VerificationError(
            f"{item.name} has only {hashes.algorithm} hashes of its pieces, which its destination cannot compute",
            "collect it to a directory of this machine",
        )
    found = await sink(FAST, 0, item.size)
    checksum = Checksum(FAST, found) if found else None
    if wrong:
        return ChecksumVerdict(checksum, False, wrong)
    if relayed and hashes.algorithm not in STRONG:
        return await _strongly(item, checksum, origin, sink, same=True)
    return ChecksumVerdict(checksum, True, same=True)


async def wrong_pieces(hashes: PieceHashes, size: int, ask: Ask) -> tuple[Range, ...] | None:
    """Return the pieces of a file that do not have their hashes; None if their hashes are not available."""
    wrong: list[Range] = []
    pieces = [(start, min(start + hashes.length, size)) for start in range(0, size, hashes.length)]
    for at in range(0, len(pieces), AT_ONCE):
        some, values = pieces[at : at + AT_ONCE], hashes.values[at : at + AT_ONCE]
        found = await gather(*(ask(hashes.algorithm, *piece) for piece in some))
        if None in found:
            return None
        wrong += [piece for piece, value, own in zip(some, values, found, strict=True) if own != value]
    return tuple(wrong)


async def _strongly(
    item: CollectItem, checksum: Checksum | None, origin: Ask, sink: Ask, same: bool
) -> ChecksumVerdict:
    """Compare by a checksum that relays cannot forge; if none is available, the file is not verified."""
    for name in STRONG:
        at_origin, found = await _checksums(name, item, origin, sink)
        if at_origin is not None and found is not None:
            wrong = () if at_origin == found else ((0, item.size),)
            return ChecksumVerdict(Checksum(name, found), not wrong, wrong, not wrong)
    return ChecksumVerdict(checksum, False, same=same)


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
