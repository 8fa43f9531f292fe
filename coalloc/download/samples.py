"""Comparison of samples, for replicas that a server named while no checksum of the file is known.

Such a replica may be of another version of the same size. So a few of the bytes that it delivered, at random places,
are fetched from the user's own replica, too. This finds other files and versions, but not a single wrong byte.
"""

import asyncio
from collections.abc import Iterable, Sequence, Set
from random import Random

from coalloc.download.connections import SourceConnections
from coalloc.engine.base import Source
from coalloc.engine.span import Span
from coalloc.errors import SourceError
from coalloc.model.checksums import Extent
from coalloc.partial_file import PartialFile
from coalloc.util.checksums import hasher
from coalloc.util.disk import in_thread
from coalloc.util.intervals import Intervals

__all__ = ["differing_guests"]

SAMPLES, LENGTH = 8, 16 * 1024
"""Number of samples of all replicas together, at least one of each, and the bytes of each sample."""
SECONDS = 10.0
"""Time limit for the samples of another replica."""
ALGORITHM = "sha256"


async def differing_guests(
    connections: SourceConnections, file: PartialFile, guests: Set[int], others: Iterable[int]
) -> dict[int, str]:
    """Return the replicas among `guests` that delivered other bytes than another replica has, with the reason.

    :param others: replicas to ask, of which the first one that answers decides; if none does, nothing is found
    """
    samples = _samples(file, guests & file.senders, Random())
    for other in others if samples else ():
        try:
            async with connections.in_use[other], asyncio.timeout(SECONDS):
                received = await _received(connections.sources[other], samples)
        except SourceError as error:
            connections.errors[other] = error
            continue
        except TimeoutError:
            continue
        mine = [await in_thread(file.digest, ALGORITHM, sample.start, sample.end) for sample in samples]
        different = [sample for sample, one, two in zip(samples, mine, received, strict=True) if one != two]
        return dict.fromkeys((sample.source for sample in different), "its replica differs from the one that you named")
    return {}


def _samples(file: PartialFile, guests: Set[int], chance: Random) -> list[Extent]:
    """Return random parts of the bytes that these replicas delivered, in order."""
    samples = []
    for guest in guests:
        delivered, chosen = file.delivered_by(guest), Intervals()
        for start, end in chance.choices(
            delivered, [end - start for start, end in delivered], k=max(1, SAMPLES // len(guests))
        ):
            at = chance.randrange(start, max(start, end - LENGTH) + 1)
            chosen.add(at, min(at + LENGTH, end))
        samples += [Extent(*each, guest) for each in chosen]
    return sorted(samples)


async def _received(source: Source, samples: Sequence[Extent]) -> list[str]:
    """Return the digests of these bytes at another replica.

    :raises SourceError: if it cannot deliver them
    """
    content = [bytearray(sample.end - sample.start) for sample in samples]

    def deliver(start: int, end: int, data: memoryview | None) -> None:
        assert data is not None, "these engines deliver bytes"
        for sample, part in zip(samples, content, strict=True):
            first, last = max(start, sample.start), min(end, sample.end)
            if first < last:
                part[first - sample.start : last - sample.start] = data[first - start : last - start]

    first, last = samples[0].start, samples[-1].end
    between = Intervals([(first, last)])
    for sample in samples:
        between.remove(sample.start, sample.end)
    await source.fetch(Span(first, last, tuple(between)), deliver)
    return [_digest(part) for part in content]


def _digest(content: bytearray) -> str:
    found = hasher(ALGORITHM)
    found.update(memoryview(content))
    return found.hexdigest()
