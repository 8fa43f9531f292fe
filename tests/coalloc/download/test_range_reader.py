"""Random reads from simulated replicas, in virtual time: the first answer counts, and versions are never mixed."""

import asyncio
import hashlib
from random import Random
from statistics import median

import pytest

from coalloc.download import replica_sessions
from coalloc.download.range_reader import IDLE_SECONDS, RangeReader
from coalloc.download.reader_pool import ReaderPool
from coalloc.errors import (
    NoAnswer,
    NoSuchFile,
    NothingToFetchFrom,
    ReplicaChanged,
    TooMuch,
    UsageError,
    VerificationError,
)
from coalloc.model.checksums import Checksum, PieceHashes
from coalloc.model.forecasts import Estimate
from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.testing.simulated import Behaviour, SimulatedSource
from coalloc.testing.virtual_clock import run

CONTENT = Random(7).randbytes(4 << 20)
SIZE = 64 << 10
GOOD = Behaviour(rates=((0.0, 1e8),), certain=True)


class StallingSource(SimulatedSource):
    """A source that stalls for a second in one of 20 requests."""

    asked = 0

    async def fetch(self, span, deliver):
        StallingSource.asked += 1
        if StallingSource.asked % 20 == 13:
            await asyncio.sleep(1)
        await super().fetch(span, deliver)


class Replicas:
    """A reader of simulated replicas, and the sources that it has made."""

    def __init__(self, *behaviours, content=(), kinds=(), **more):
        self.made = []
        file = ReplicaSet("file", tuple(Replica(f"sim://host{i}/file") for i in range(len(behaviours))), **more)

        def make(i):
            source = (kinds[i] if kinds else SimulatedSource)(
                f"host{i}", content[i] if content else CONTENT, behaviours[i]
            )
            self.made.append((i, source))
            return source

        self.reader = RangeReader(file, make, [Estimate()] * len(behaviours), ReaderPool())

    async def __aenter__(self):
        await self.reader.open()
        return self.reader

    async def __aexit__(self, *error):
        await self.reader.close()

    def sent(self, *replicas):
        return sum(source.sent for i, source in self.made if not replicas or i in replicas)


async def read_at_random(reader, count, length=SIZE):
    """Read `count` ranges one after another, and return the seconds of each."""
    chance, clock, seconds = Random(1), asyncio.get_running_loop().time, []
    for _ in range(count):
        start, began = chance.randrange(len(CONTENT) - length), clock()
        assert await reader.read(start, start + length) == CONTENT[start : start + length]
        seconds.append(clock() - began)
    return seconds


def test_stalls_of_one_replica_are_hardly_noticed():
    async def main():
        replicas = Replicas(GOOD, GOOD, GOOD, kinds=(StallingSource, SimulatedSource, SimulatedSource))
        async with replicas as reader:
            seconds = sorted(await read_at_random(reader, 1000))
        assert seconds[989] <= 2 * median(seconds)
        assert seconds[-1] < 0.4
        assert replicas.sent() <= 1.05 * 1000 * SIZE

    run(main())


def test_many_reads_at_once_are_spread_over_all_replicas_and_survive_stalls():
    async def main():
        replicas = Replicas(GOOD, GOOD, GOOD, kinds=(StallingSource, SimulatedSource, SimulatedSource))
        async with replicas as reader:
            await read_at_random(reader, 30)
            chance = Random(2)
            ranges = [(at, at + SIZE) for at in (chance.randrange(len(CONTENT) - SIZE) for _ in range(300))]
            found = await asyncio.gather(*(reader.read(*each) for each in ranges))
        assert found == [CONTENT[start:end] for start, end in ranges]
        assert min(replicas.sent(i) for i in range(3)) > replicas.sent() / 6
        assert replicas.sent() <= 1.05 * 330 * SIZE

    run(main())


def test_a_replica_that_falls_silent_for_ever_is_left_behind():
    async def main():
        async with Replicas(Behaviour(rates=((0.0, 1e8), (0.2, 0.0))), Behaviour(rates=((0.0, 5e7),))) as reader:
            assert max(await read_at_random(reader, 50)) < 3

    run(main())


def test_a_lone_replica_that_dies_is_asked_again():
    async def main():
        async with Replicas(Behaviour(rates=((0.0, 1e8),), dies_at=0.3, returns_at=1.5)) as reader:
            await read_at_random(reader, 20)

    run(main())


def test_reads_fail_if_no_server_comes_back():
    async def main():
        async with Replicas(Behaviour(dies_at=1.0), Behaviour(dies_at=1.0)) as reader:
            await asyncio.sleep(2)
            with pytest.raises(NoAnswer, match=r"host0[\s\S]*host1"):
                await reader.read(0, SIZE)

    run(main())


def test_a_missing_replica_is_no_loss_and_missing_everywhere_is_an_error():
    async def main():
        async with Replicas(Behaviour(missing=True), GOOD) as reader:
            await read_at_random(reader, 3)
            assert isinstance(reader.errors["sim://host0/file"], NoSuchFile)
        with pytest.raises(NoSuchFile):
            async with Replicas(Behaviour(missing=True), Behaviour(missing=True)):
                pass

    run(main())


@pytest.mark.parametrize("certain", [True, False])
def test_versions_are_never_mixed(certain):
    """A read fails rather than to give bytes of a new version, also if servers do not tell by themselves."""
    new = bytes(len(CONTENT))

    async def main():
        changing = Behaviour(rates=((0.0, 1e8),), becomes=((1.0, new),), certain=certain)
        async with Replicas(changing, changing) as reader:
            await read_at_random(reader, 5)
            await asyncio.sleep(3)
            with pytest.raises(ReplicaChanged):
                await reader.read(0, SIZE)

    run(main())


@pytest.mark.parametrize("dies_at", [5.0, float("inf")])
def test_a_replica_that_answers_late_may_not_bring_a_new_version(dies_at):
    new = bytes(len(CONTENT))

    async def main():
        first = Behaviour(rates=((0.0, 1e8),), becomes=((10.0, new),), certain=True, dies_at=dies_at)
        late = Behaviour(rates=((0.0, 1e9),), becomes=((10.0, new),), certain=True, dies_at=0.0, returns_at=9.0)
        async with Replicas(first, late) as reader:
            await read_at_random(reader, 5)
            await asyncio.sleep(11)
            for _ in range(3):
                with pytest.raises((NothingToFetchFrom, ReplicaChanged)):
                    await reader.read(0, SIZE)

    run(main())


def test_a_replica_that_answers_late_is_used_if_the_file_is_unchanged():
    async def main():
        replicas = Replicas(GOOD, Behaviour(rates=((0.0, 1e9),), dies_at=0.0, returns_at=9.0))
        async with replicas as reader:
            await read_at_random(reader, 5)
            await asyncio.sleep(11)
            await read_at_random(reader, 300)
        assert replicas.sent(1)

    run(main())


def test_the_unchanged_replica_goes_on_when_another_changes():
    async def main():
        changing = Behaviour(rates=((0.0, 1e9),), becomes=((1.0, bytes(len(CONTENT))),), certain=True)
        async with Replicas(changing, GOOD) as reader:
            await read_at_random(reader, 5)
            await asyncio.sleep(3)
            await read_at_random(reader, 300)
            assert isinstance(reader.errors["sim://host0/file"], ReplicaChanged)

    run(main())


def test_after_a_failed_read_replicas_that_refused_are_asked_again_but_not_changed_ones():
    class Away(SimulatedSource):
        async def fetch(self, span, deliver):
            if 1 < asyncio.get_running_loop().time() < 9:
                raise NoSuchFile("away", "")
            await super().fetch(span, deliver)

    async def main():
        changing = Behaviour(rates=((0.0, 1e9),), becomes=((1.0, bytes(len(CONTENT))),), certain=True)
        async with Replicas(GOOD, changing, kinds=(Away, SimulatedSource)) as reader:
            await read_at_random(reader, 5)
            await asyncio.sleep(3)
            for _ in range(2):
                with pytest.raises(NothingToFetchFrom, match=r"away[\s\S]*changed"):
                    await reader.read(0, SIZE)
            await asyncio.sleep(6)
            await read_at_random(reader, 5)
            assert list(reader.errors) == ["sim://host1/file"]

    run(main())


def test_replicas_of_different_files_stop_all_reads():
    async def main():
        other = Behaviour(connect_seconds=0.5)
        async with Replicas(GOOD, other, content=(CONTENT, CONTENT[:-1])) as reader:
            await read_at_random(reader, 3)
            await asyncio.sleep(1)
            with pytest.raises(VerificationError):
                await reader.read(0, SIZE)

    run(main())


def test_a_replica_with_another_checksum_than_the_known_one_is_left_out():
    async def main():
        stating = Behaviour(digests=(Checksum("md5", "1" * 32),))
        async with Replicas(stating, GOOD, checksums=(Checksum("md5", "0" * 32),)) as reader:
            await read_at_random(reader, 3)
            assert isinstance(reader.errors["sim://host0/file"], ReplicaChanged)

    run(main())


def test_wrong_bytes_are_noticed_where_hashes_of_pieces_are_known():
    length = 1 << 20
    hashes = PieceHashes(
        "sha256",
        length,
        tuple(hashlib.sha256(CONTENT[at : at + length]).hexdigest() for at in range(0, 4 << 20, length)),
    )

    async def main():
        wrong = Behaviour(rates=((0.0, 1e9),), corrupts=frozenset({3 << 19}), certain=True)
        async with Replicas(wrong, GOOD, pieces=hashes, size=len(CONTENT)) as reader:
            await asyncio.sleep(1)
            assert await reader.read(0, len(CONTENT)) == CONTENT
            assert await reader.read(0, len(CONTENT)) == CONTENT

    run(main())


def test_near_ranges_are_requested_together():
    async def main():
        replicas = Replicas(GOOD)
        async with replicas as reader:
            ranges = [(at, at + 100) for at in range(0, 100_000, 1000)]
            assert await reader.read_many(ranges) == [CONTENT[start:end] for start, end in ranges]
            assert len(replicas.made) == 1
            assert await reader.read_many([(5, 5)]) == [b""]

    run(main())


def test_a_server_that_sends_a_byte_now_and_then_delays_a_read_for_a_limited_time():
    class Dripping(SimulatedSource):
        async def fetch(self, span, deliver):
            for at in range(span.start, span.end):
                await asyncio.sleep(10)
                deliver(at, at + 1, memoryview(CONTENT)[at : at + 1])

    async def main():
        async with Replicas(GOOD, GOOD, kinds=(Dripping, SimulatedSource)) as reader:
            await asyncio.sleep(1)
            reader._choice.budget.take(1 << 18)  # as after other late reads
            began = asyncio.get_running_loop().time()
            assert await reader.read(0, 1 << 20) == CONTENT[: 1 << 20]
            assert asyncio.get_running_loop().time() < began + 40

    run(main())


def test_a_claimed_size_does_not_fill_the_memory():
    async def main():
        async with Replicas(Behaviour(claims_size=1 << 60)) as reader:
            with pytest.raises(TooMuch):
                await reader.read(0, reader.size)

    run(main())


@pytest.mark.parametrize("wanted", [(-1, 5), (3, 2), (0, len(CONTENT) + 1)])
def test_ranges_outside_of_the_file_are_refused(wanted):
    async def main():
        async with Replicas(GOOD) as reader:
            with pytest.raises(UsageError):
                await reader.read(*wanted)

    run(main())


def test_sessions_are_limited_and_closed_when_nothing_is_read(monkeypatch):
    monkeypatch.setattr(replica_sessions, "MOST", 8)
    closed = []

    class Noting(SimulatedSource):
        async def close(self):
            closed.append(self)

    async def main():
        replicas = Replicas(GOOD, kinds=(Noting,))
        async with replicas as reader:
            await reader.read_many([(at, at + 100) for at in range(0, 4 << 20, 100_000)])
            assert len(replicas.made) == 8
            await asyncio.sleep(IDLE_SECONDS + 1)
            assert len(closed) == 8
            await read_at_random(reader, 1)
            assert len(replicas.made) == 9

    run(main())
