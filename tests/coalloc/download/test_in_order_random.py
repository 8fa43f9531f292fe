"""Random histories of a file that is read in order, in virtual time: sources die, come back, send wrong bytes, change.

What is read without an error is the file if a checksum is known, otherwise one version of it if servers tell versions
apart. With hashes of pieces, so is every prefix.
"""

import asyncio
import hashlib
from random import Random

import pytest

from coalloc.download import in_order
from coalloc.download.in_order import InOrderDownload, InOrderSettings
from coalloc.errors import CoallocError
from coalloc.model.checksums import Checksum, PieceHashes
from coalloc.model.forecasts import Estimate
from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.testing.simulated import Behaviour, SimulatedSource
from coalloc.testing.virtual_clock import run
from tests.support.effort import effort
from tests.support.seeds import tries

PIECE = 100_000


def behaviour(chance: Random, content: bytes, new: bytes, faithful: bool) -> Behaviour:
    """Return a random behaviour; if `faithful`, without wrong bytes, and with a validator that tells versions apart."""
    trip, dies_at = 10 ** chance.uniform(-3, -1), chance.choice([float("inf"), chance.uniform(0, 20)])
    return Behaviour(
        ((0.0, 10 ** chance.uniform(4.5, 6.5)),),
        connect_seconds=2 * trip,
        setup_seconds=trip,
        dies_at=dies_at,
        returns_at=chance.choice([float("inf"), dies_at + chance.uniform(0, 20)]),
        corrupts=frozenset() if faithful else frozenset({chance.randrange(len(content))}),
        becomes=chance.choice([(), (), (), ((chance.uniform(0, 20), new),)]),
        certain=chance.random() < 0.5,
        tagged=faithful or chance.random() < 0.8,
        in_place=chance.random() < 0.3,
        offers_checksum=chance.random() < 0.5,
        ranged=chance.random() < 0.9,
        disorder=chance.choice([1, 4]),
    )


def described(chance: Random, content: bytes, sources: list[SimulatedSource]) -> ReplicaSet:
    """Return the file, sometimes with hashes of pieces or a checksum."""
    parts = (content[at : at + PIECE] for at in range(0, len(content), PIECE))
    hashes = PieceHashes("sha256", PIECE, tuple(hashlib.sha256(part).hexdigest() for part in parts))
    known = chance.choice([{"pieces": hashes}, {"checksums": (Checksum("md5", hashlib.md5(content).hexdigest()),)}, {}])
    return ReplicaSet("file", tuple(Replica(source.url) for source in sources), size=len(content), **known)


async def one_history(chance: Random, content: bytes, new: bytes) -> tuple[ReplicaSet, bytes, bool, bool]:
    """Read the file; return its description, what was read, whether that succeeded, and whether all were faithful."""
    faithful = [chance.random() < 0.7 for _ in range(chance.randint(1, 4))]
    behaviours = [behaviour(chance, content, new, each) for each in faithful]
    sources = [SimulatedSource(f"s{number}", content, each) for number, each in enumerate(behaviours)]
    file, taken, pause = described(chance, content, sources), bytearray(), chance.choice([0.0, 0.0, 0.1])

    async def take(data: memoryview) -> None:
        taken.extend(data)
        await asyncio.sleep(pause)

    download = InOrderDownload(file, sources, [Estimate()] * len(sources), take, InOrderSettings())
    try:
        async with asyncio.timeout(1e6):
            await download.run()
    except CoallocError:
        return file, bytes(taken), False, all(faithful)
    return file, bytes(taken), True, all(faithful)


@pytest.mark.long
@pytest.mark.seeded
def test_what_is_read_without_an_error_is_the_file(monkeypatch):
    outcomes = set()
    for attempt in tries(effort(60, 2000)):
        with attempt as seed:
            chance = Random(seed)
            monkeypatch.setattr(in_order, "ROOM", chance.choice([200_000, 1_000_000]))
            content = chance.randbytes(chance.randint(1, 2_000_000))
            new = chance.randbytes(len(content))
            file, taken, succeeded, faithful = run(one_history(chance, content, new))
            outcomes.add(succeeded)
            if file.pieces or file.checksums:
                assert not succeeded or taken == content
            elif faithful:
                assert not succeeded or taken in (content, new)
            if file.pieces:
                assert taken == content[: len(taken)]
            assert len(taken) == len(content) or not succeeded
    assert outcomes == {True, False}
