"""Adaptation of the number of lanes of pairs of collections to the work done; the database keeps the decisions."""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from broker.models.lanes import CollectionPair, LaneTuning
from broker.storage.database import Database
from broker.storage.dialects import read_clock
from broker.storage.lanes import LaneStore
from broker.worker.policy.lane_count import FIRST, PairTraffic, decide

__all__ = ["PairWork", "Tuner"]

PERIOD = 10.0
"""Seconds between decisions about a pair, by any worker."""
FILE = 1 << 20
"""Bytes that are added to the size of each file."""


class PairWork(NamedTuple):
    """The work done between a pair: bytes and files that have arrived, and attempts that have failed."""

    bytes: int = 0
    files: int = 0
    failures: int = 0


class Tuner:
    """The work of this worker for each pair since the last decision."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._bytes: Counter[CollectionPair] = Counter()
        self._files: Counter[CollectionPair] = Counter()
        self._failures: Counter[CollectionPair] = Counter()
        self._since = time.monotonic()

    async def limits(self, lanes: LaneStore, pairs: Iterable[CollectionPair]) -> Mapping[CollectionPair, int]:
        """Return the highest number of lanes of each pair."""
        pairs = set(pairs)
        tuned = await lanes.tuned(pairs)
        return {pair: tuned[pair].concurrency if pair in tuned else FIRST for pair in pairs}

    def saw(self, pair: CollectionPair, done: PairWork) -> None:
        """Add work that was done for a pair."""
        self._bytes[pair] += done.bytes
        self._files[pair] += done.files
        self._failures[pair] += done.failures

    async def step(self, mine: Collection[CollectionPair]) -> None:
        """Set the number of lanes of those pairs of this worker whose last decision is at least `PERIOD` old.

        :param mine: the pair of each lane of this worker
        """
        seconds = time.monotonic() - self._since
        if seconds < PERIOD:
            return
        seen = {pair: self._seen(pair, seconds) for pair in mine}
        self._since = time.monotonic()
        for counts in (self._bytes, self._files, self._failures):
            counts.clear()
        if not seen:
            return
        async with self._database.write() as connection:
            lanes = LaneStore(connection)
            await lanes.alone()
            now = await read_clock(connection)
            everywhere = Counter(lane.pair for lane in await lanes.open())
            tuned, here = await lanes.tuned(seen), Counter(mine)
            for pair, (rate, failures) in sorted(seen.items()):
                last = tuned.get(pair)
                if last is None or now - last.at >= PERIOD:
                    rate *= everywhere[pair] / here[pair] if everywhere[pair] else 1.0
                    await self._decide(lanes, pair, last, PairTraffic(rate, failures, False), everywhere[pair], now)

    async def _decide(
        self, lanes: LaneStore, pair: CollectionPair, last: LaneTuning | None, seen: PairTraffic, used: int, now: float
    ) -> None:
        concurrency = last.concurrency if last else FIRST
        before = PairTraffic(last.rate, last.failures, True) if last else None
        seen = seen._replace(busy=used >= concurrency)
        tried = last.step if last else 0
        target, reason = decide(concurrency, before, tried, now - last.at if last else 0.0, seen)
        if target != concurrency or (last is None and seen.busy):
            await lanes.tune(LaneTuning(pair, now, target, target - concurrency, seen.rate, seen.failures, reason))

    def _seen(self, pair: CollectionPair, seconds: float) -> tuple[float, float]:
        attempts = self._files[pair] + self._failures[pair]
        rate = (self._bytes[pair] + FILE * self._files[pair]) / seconds
        return rate, self._failures[pair] / attempts if attempts else 0.0
