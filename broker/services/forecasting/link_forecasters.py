"""Forecasters of single links in memory, from the newest observations of each link.

A link's forecaster is created from its newest observations at the first request, and updated with the reports of all
processes. So the broker starts fast, memory is bounded, and all processes give the same forecasts.
"""

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from broker.errors import BrokerError
from broker.models.history import Pair
from broker.services.forecasting.compiling import load_compiler
from broker.services.forecasting.per_subject import MOST, SubjectForecasters
from broker.storage.database import Database
from broker.storage.history import LinkProgress, ObservationStore, StoredObservation
from predictors.observation import Forecast

__all__ = ["LinkForecasters"]

log = logging.getLogger(__name__)

NEWEST, LEAST = 300, 40
"""Number of observations from which a link's forecasters are created, in total and at least for each reporter."""
MOST_LINKS, MEMORY = 1000, 160 << 20
"""Most links in memory, and most bytes of their forecasters; the least recently requested are dropped."""
FORGOTTEN = 240.0
"""Seconds without a request after which a link's forecasters are dropped; to create them again takes 70 ms."""
PATIENCE = 0.5
"""Seconds that a request waits for forecasters that are being created."""
MAKING = 4
"""Most links whose forecasters are created at once; each takes a connection and a thread."""


class LinkForecaster:
    """The forecaster of one link, None without a history, and the number of the newest learned observation."""

    def __init__(
        self,
        progress: LinkProgress | None,
        forecaster: SubjectForecasters | None,
        observations: Sequence[StoredObservation] = (),
    ) -> None:
        self.forecaster = forecaster
        self.last_requested = time.monotonic()
        self.seen = 0
        self.saw(progress, observations)
        self.by_class: dict[tuple[int, str], tuple[float, Forecast]] = {}

    def saw(self, progress: LinkProgress | None, observations: Sequence[StoredObservation]) -> None:
        """Set the number of the newest learned observation.

        `observations` may include newer ones than `progress`, which was read earlier.
        """
        self.seen = max([self.seen, progress.newest_id if progress else 0, *(each.id for each in observations)])


class LinkForecasters:
    """The forecasters of the links that were requested lately.

    :param compiled: whether to compile forecasters
    :param read: called with the observations from which a forecaster was created
    """

    def __init__(self, database: Database, compiled: bool, read: Callable[[Sequence[StoredObservation]], None]) -> None:
        self._database = database
        self._compiled = compiled
        self._read = read
        self._cached: OrderedDict[Pair, LinkForecaster] = OrderedDict()
        self._making: dict[Pair, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(MAKING)

    def get(self, pair: Pair) -> LinkForecaster | None:
        """Return a link's forecaster if it is in memory."""
        return self._cached.get(pair)

    def is_being_made(self, pair: Pair) -> bool:
        """Return whether a link's forecaster is being created."""
        return pair in self._making

    async def open(self, links: set[Pair]) -> None:
        """Create the missing forecasters of some links; wait for them for at most `PATIENCE` seconds."""
        for pair in links & self._cached.keys():
            self._cached[pair].last_requested = time.monotonic()
            self._cached.move_to_end(pair)
        unknown = links - self._cached.keys() - self._making.keys()
        if unknown:
            async with self._database.read() as connection:
                stored = await ObservationStore(connection).progress_of(unknown)
            for pair in unknown:
                progress = stored.get(pair)
                if progress is None or not progress.newest_id:
                    self._cached[pair] = LinkForecaster(progress, None)
                elif pair not in self._making:  # another request may have begun during the query
                    self._making[pair] = asyncio.create_task(self._make(pair, progress))
            self.trim()
        if making := [self._making[pair] for pair in links & self._making.keys()]:
            await asyncio.wait(making, timeout=PATIENCE)

    def trim(self) -> None:
        """Drop forecasters above the limits, and those not requested lately; the most recent one always stays."""
        sizes = {pair: cached.forecaster.size if cached.forecaster else 0 for pair, cached in self._cached.items()}
        memory, long_ago = sum(sizes.values()), time.monotonic() - FORGOTTEN
        for pair, cached in list(self._cached.items())[:-1]:
            if len(self._cached) <= MOST_LINKS and memory <= MEMORY and cached.last_requested > long_ago:
                break
            memory -= sizes[pair]
            del self._cached[pair]

    async def all_made(self) -> None:
        """Wait for all forecasters that are being created."""
        if self._making:
            await asyncio.wait(self._making.values())

    async def clear(self) -> None:
        """Drop all forecasters."""
        await self.all_made()  # their history may have been read before the change that makes this necessary
        self._cached.clear()

    async def follow(self) -> None:
        """Learn the observations that were added since the last call."""
        if not self._cached:
            return
        async with self._database.read() as connection:
            history = ObservationStore(connection)
            stored = await history.progress_of(list(self._cached))
            behind = {pair: progress for pair, progress in stored.items() if self._seen(pair) < progress.newest_id}
            new: dict[Pair, list[StoredObservation]] = {}
            for pair, progress in behind.items():
                if (cached := self._cached.get(pair)) and cached.forecaster:
                    new[pair] = await history.since(progress.id, cached.seen, NEWEST + 1)
        for pair, progress in behind.items():  # outside the transaction, since learning is slow
            cached = self._cached.get(pair)
            if cached is None or cached.seen >= progress.newest_id:  # evicted or recreated during the query
                continue
            if cached.forecaster and pair in new and len(new[pair]) <= NEWEST:
                await self._learn(cached.forecaster, new[pair])
                cached.saw(progress, new[pair])
                cached.by_class.clear()
            else:
                del self._cached[pair]
                if pair not in self._making:
                    self._making[pair] = asyncio.create_task(self._make(pair, progress))

    def _seen(self, pair: Pair) -> float:
        cached = self._cached.get(pair)
        return cached.seen if cached else math.inf

    @staticmethod
    async def _learn(forecaster: SubjectForecasters, new: Iterable[StoredObservation]) -> None:
        for each in new:
            forecaster.learn(each)
            await asyncio.sleep(0)

    async def _make(self, pair: Pair, progress: LinkProgress) -> None:
        try:
            async with self._turns:
                async with self._database.read() as connection:
                    history = ObservationStore(connection)
                    subjects = await history.reporters(progress.id, MOST)
                    each = max(min(LEAST, NEWEST), NEWEST // max(1, len(subjects)))
                    observations = [
                        one for subject in subjects for one in await history.newest(progress.id, subject, each)
                    ]
                forecaster = await asyncio.to_thread(self._created, subjects, observations)
            self._cached[pair] = LinkForecaster(progress, forecaster, observations)
            self._read(observations)
            self.trim()
        except BrokerError as error:  # the next request tries again
            log.warning("failed to make a forecaster for %s to %s: %s", pair.source, pair.sink, error)
        finally:
            del self._making[pair]

    def _created(self, subjects: Iterable[str], observations: Iterable[StoredObservation]) -> SubjectForecasters:
        if self._compiled:
            load_compiler()
        forecaster = SubjectForecasters(subjects, self._compiled)
        for each in observations:
            forecaster.learn(each)
        return forecaster
