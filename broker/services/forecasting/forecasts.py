"""Forecasts of transfers from the history of their links (`Pair`).

Each link has a forecaster in memory. It is created from the link's newest observations at the first request, and
updated with the reports of all processes. So the broker starts fast, memory is bounded, and all processes give the same
forecasts. For a link without history, the forecast uses the rates of its source, its sink, and other links.
"""

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from broker.errors import BrokerError
from broker.models.callers import Caller
from broker.models.forecasts import Expected, ForecastRequest, Quantiles
from broker.models.history import Pair
from broker.services.auth.permissions import NOBODY
from broker.services.forecasting.ceilings import Ceilings, bounded, capacities
from broker.services.forecasting.compiling import load_compiler
from broker.services.forecasting.horizon import Horizon
from broker.services.forecasting.per_subject import MOST, SubjectForecasters
from broker.services.network.places import Map, Places, kilometres
from broker.storage.database import Database, retried
from broker.storage.forecasts import ForecastStore, GivenForecast
from broker.storage.history import LinkProgress, ObservationStore, StoredObservation
from predictors.compiled import available
from predictors.context import SIZES, size_class
from predictors.models.hierarchy import Hierarchy
from predictors.observation import Forecast, Query

__all__ = ["Forecasting", "middle", "quantiles"]

log = logging.getLogger(__name__)

NEWEST, LEAST = 300, 40
"""Number of observations from which a link's forecasters are created, in total and at least for each reporter."""
MOST_LINKS, MEMORY = 1000, 160 << 20
"""Most links in memory, and most bytes of their forecasters; the least recently requested are dropped."""
FORGOTTEN = 240.0
"""Seconds without a request after which a link's forecasters are dropped; to create them again takes 70 ms."""
PATIENCE = 0.5
"""Seconds that a request waits for forecasters that are being created."""
LOOK = 1.0
"""Seconds between checks for new observations."""
FRESH = 10.0
"""Seconds for which the forecast of a size class is reused, although forecasts depend slightly on the time."""
EVERYWHERE, LATELY = 5000, 100_000
"""Most observations that one check learns for all links, and most new numbers that it covers. For more new numbers, and
at the start, it learns a sample of the newest ones."""
REMEMBERED = 100_000
TURN = 20
"""Forecasts that are made before other coroutines may run."""
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


class Forecasting:
    """Forecasts, and the forecasters in memory.

    :param compiled: whether to compile forecasters; by default if numba is installed
    """

    def __init__(self, database: Database, places: Places, compiled: bool | None = None) -> None:
        self._database = database
        self._places = places
        self.compiled = available() if compiled is None else compiled
        self._cached: OrderedDict[Pair, LinkForecaster] = OrderedDict()
        self._making: dict[Pair, asyncio.Task[None]] = {}
        self._everywhere = Hierarchy(self._distance)
        self._ceilings = Ceilings()
        self._map: Map | None = None
        self._capacities: Mapping[str, float] = {}
        self._coordinates: Mapping[str, tuple[float, float]] = {}
        self._horizon = Horizon()
        self._seen_everywhere = 0
        self._ignored_subjects: frozenset[str] = frozenset()
        self._given: dict[tuple[Pair, int, str, int], GivenForecast] = {}
        self._remembered: set[int] = set()
        self._news = asyncio.Event()
        self._looking = asyncio.Lock()
        self._turns = asyncio.Semaphore(MAKING)

    def news(self) -> None:
        """Check for new observations at once, after a report."""
        self._news.set()

    def knows(self, pair: Pair) -> bool:
        """Return whether a link in memory has a history of its own."""
        cached = self._cached.get(pair)
        return pair in self._making or (cached is not None and bool(cached.forecaster))

    async def ask(self, requests: Sequence[ForecastRequest], caller: Caller = NOBODY) -> list[Expected]:
        """Return a forecast for each request, in this order.

        :param caller: user of the forecasts, whose own transfers have more weight; collections that the caller may not
            see are treated as unknown
        :raises Invalid: when a request names an unknown endpoint
        """
        sources = await self._places.sources({each.source for each in requests}, caller)
        sinks = await self._places.sinks({each.sink for each in requests}, caller)
        requests = [
            each.model_copy(update={"source": sources[each.source], "sink": sinks[each.sink]}) for each in requests
        ]
        now = time.time()
        await self._open({_pair(each) for each in requests})
        answers = []
        for i, each in enumerate(requests):
            answers.append(self._answer(each, now, caller.subject))
            if i % TURN == TURN - 1:
                await asyncio.sleep(0)
        return answers

    async def by_class(
        self, links: Iterable[Pair], classes: Iterable[int], subject: str = ""
    ) -> dict[tuple[Pair, int], Forecast]:
        """Return a forecast for each link and size class, for the middle size of the class.

        :param subject: subject of the caller
        """
        now, size_classes = time.time(), set(classes)
        links = set(links)
        await self._open(links)
        return {(pair, size): self._of_class(pair, size, now, subject) for pair in links for size in size_classes}

    def _answer(self, request: ForecastRequest, now: float, subject: str) -> Expected:
        pair = _pair(request)
        forecast = self._forecast(pair, request.size, request.file_class, now, subject)
        return Expected.model_construct(
            **request.model_dump(exclude={"file_class"}),
            rate=quantiles(forecast),
            setup_seconds=forecast.setup_seconds,
            seconds=None if request.size is None else forecast.seconds(request.size),
            forecaster=forecast.forecaster,
            observations=forecast.observations,
            newest_age=forecast.newest_age,
            reason=forecast.reason,
            new=forecast.new,
            at=now,
        )

    def _of_class(self, pair: Pair, size: int, now: float, subject: str) -> Forecast:
        cached = self._cached.get(pair)
        own = cached.forecaster.own(subject) if cached and cached.forecaster else ""
        known = cached and cached.by_class.get((size, own))
        if known and now < known[0] + FRESH:
            return known[1]
        forecast = self._forecast(pair, middle(size), "", now, subject)
        if cached:
            cached.by_class[size, own] = (now, forecast)
        return forecast

    def _forecast(self, pair: Pair, nbytes: int | None, file_class: str, now: float, subject: str) -> Forecast:
        query = Query(pair.source, now, nbytes, pair.sink, pair.direction, file_class)
        cached = self._cached.get(pair)
        forecaster = cached.forecaster if cached else None
        forecast = forecaster.forecast(query) if forecaster else None
        if forecast is None or forecast.rates is None:
            making = pair in self._making
            forecast = self._everywhere.forecast(query)
            if making:
                forecast = forecast._replace(reason=f"{forecast.reason}; the pair's own history is being read")
        most = self._ceilings.of(pair, self._capacities.get(pair.source))
        forecast = bounded(forecast, most)
        self._remember(pair, nbytes, forecast, now)
        own = forecaster.forecast(query, named) if forecaster and (named := forecaster.own(subject)) else None
        return bounded(own, most) if own and own.rates else forecast

    def _remember(self, pair: Pair, nbytes: int | None, forecast: Forecast, now: float) -> None:
        """Queue a forecast for storage; each distinct forecast is stored once."""
        if forecast.rates is None or not all(map(math.isfinite, forecast.rates)):
            return
        cached = self._cached.get(pair)
        own = cached is not None and cached.forecaster is not None
        seen = cached.seen if cached and own else self._seen_everywhere
        key = (pair, size_class(nbytes or 0), forecast.forecaster, seen)
        if hash(key) in self._remembered:
            return
        if len(self._remembered) > REMEMBERED:
            self._remembered.clear()
        self._remembered.add(hash(key))  # the keys themselves would take 40 MB
        self._given[key] = GivenForecast(
            0, key[1], key[2], seen, now, nbytes, *forecast.rates, forecast.setup_seconds, forecast.observations,
            forecast.reason, forecast.leader,
        )  # fmt: skip

    # Forecasters in memory

    async def _open(self, links: set[Pair]) -> None:
        """Create the missing forecasters of some links; wait for them for at most `PATIENCE` seconds."""
        await self._look_at_map()
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
            self._trim()
        if making := [self._making[pair] for pair in links & self._making.keys()]:
            await asyncio.wait(making, timeout=PATIENCE)

    async def _look_at_map(self) -> None:
        """Read the capacities and coordinates of servers and sites, if they may have changed."""
        known = await self._places.map()
        if known is not self._map:
            self._map, self._capacities = known, capacities(known.by_id.values())
            self._coordinates = known.all_coordinates()

    def _distance(self, source: str, sink: str) -> float | None:
        return kilometres(self._coordinates.get(source), self._coordinates.get(sink))

    def _trim(self) -> None:
        """Drop forecasters above the limits, and those not requested lately; the most recent one always stays."""
        sizes = {pair: cached.forecaster.size if cached.forecaster else 0 for pair, cached in self._cached.items()}
        memory, long_ago = sum(sizes.values()), time.monotonic() - FORGOTTEN
        for pair, cached in list(self._cached.items())[:-1]:
            if len(self._cached) <= MOST_LINKS and memory <= MEMORY and cached.last_requested > long_ago:
                break
            memory -= sizes[pair]
            del self._cached[pair]

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
                forecaster = await asyncio.to_thread(self._made, subjects, observations)
            self._cached[pair] = LinkForecaster(progress, forecaster, observations)
            for one in observations:
                self._ceilings.learn(one, counted=False)  # `_learn_everywhere` counts it if it is new
            self._trim()
        except BrokerError as error:  # the next request tries again
            log.warning("failed to make a forecaster for %s to %s: %s", pair.source, pair.sink, error)
        finally:
            del self._making[pair]

    def _made(self, subjects: Iterable[str], observations: Iterable[StoredObservation]) -> SubjectForecasters:
        if self.compiled:
            load_compiler()
        forecaster = SubjectForecasters(subjects, self.compiled)
        for each in observations:
            forecaster.learn(each)
        return forecaster

    # New observations

    async def watch(self) -> None:
        """Learn new observations and store the given forecasts, until cancelled; then store the remaining forecasts."""
        try:
            while True:
                await self.look()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK):  # wait_for loses a cancellation if news arrive with it
                        await self._news.wait()
                self._news.clear()
        finally:
            await self._store()

    async def look(self) -> None:
        """Learn the observations since the last call, and store the given forecasts."""
        try:
            async with self._looking:  # two at once would learn the same observations twice
                await self._check_ignored_subjects()
                await self._follow()
                await self._learn_everywhere()
                await self._store()
                self._trim()
        except BrokerError as error:
            log.warning("failed to read new transfers; trying again: %s", error)
        except Exception:  # otherwise an error would silently stop the updates
            log.exception("failed to read new transfers; trying again")

    async def _check_ignored_subjects(self) -> None:
        """Drop everything learned if the ignored subjects have changed."""
        async with self._database.read() as connection:
            ignored_subjects = await ObservationStore(connection).ignored_subjects()
        if ignored_subjects == self._ignored_subjects:
            return
        if self._making:  # their history may have been read before the change
            await asyncio.wait(list(self._making.values()))
        self._ignored_subjects = ignored_subjects
        self._cached.clear()
        self._everywhere, self._ceilings, self._seen_everywhere = Hierarchy(self._distance), Ceilings(), 0

    async def _follow(self) -> None:
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

    async def _learn_everywhere(self) -> None:
        async with self._database.read() as connection:
            history = ObservationStore(connection)
            last = await history.last_id()  # before the writers are read
            until = self._horizon.look(last, await history.writers())
        seen = self._seen_everywhere
        if until <= seen:
            return
        async with (
            self._database.read() as connection
        ):  # a new transaction, which sees the rows of all writers that have ended
            history = ObservationStore(connection)
            if seen and until - seen <= LATELY:
                new = await history.following(seen, until, EVERYWHERE)
                if len(new) == EVERYWHERE:  # the next call, which follows at once, learns the others
                    until = new[-1].id
                    self._news.set()
            else:
                new = await history.sample(max(seen, until - LATELY), until, EVERYWHERE)
        await self._look_at_map()
        for i, each in enumerate(new):
            self._everywhere.learn(each.observation, each.subject)
            self._ceilings.learn(each)
            if i % TURN == 0:
                await asyncio.sleep(0)
        self._seen_everywhere = until

    @retried
    async def _store(self) -> None:
        given, self._given = self._given, {}
        if not given:
            return
        try:
            async with self._database.write() as connection:
                stored = await ObservationStore(connection).progress_of({key[0] for key in given})
                # forecasts of links without reports have no pair to refer to
                known = sorted((key, each) for key, each in given.items() if key[0] in stored)
                await ForecastStore(connection).add([each._replace(pair_id=stored[key[0]].id) for key, each in known])
        except BaseException:
            self._given = given | self._given
            raise


def _pair(request: ForecastRequest) -> Pair:
    return Pair(request.source, request.sink, request.direction)


def middle(size: int) -> int:
    """Return the middle size of a class in bytes (geometric mean), for which the class's forecasts are made."""
    low = SIZES[size - 1] if size else SIZES[0] / 4
    high = SIZES[size] if size < len(SIZES) else 4 * SIZES[-1]
    return int(math.sqrt(low * high))


def quantiles(forecast: Forecast) -> Quantiles | None:
    """Return the rates of a forecast as a wire type; None without rates."""
    return None if forecast.rates is None else Quantiles.model_construct(**forecast.rates._asdict())
