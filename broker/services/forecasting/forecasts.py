"""Forecasts of transfers from the history of their links (`Pair`).

Each link has a forecaster in memory (`LinkForecasters`). For a link without history, the forecast uses the rates of its
source, its sink, and other links (`AllLinks`).
"""

import asyncio
import logging
import math
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from broker.errors import BrokerError
from broker.models.callers import Caller
from broker.models.forecasts import Expected, ForecastRequest, Quantiles
from broker.models.history import Pair
from broker.services.auth.permissions import NOBODY
from broker.services.forecasting.all_links import AllLinks
from broker.services.forecasting.link_forecasters import LinkForecasters
from broker.services.network.places import Places
from broker.storage.database import Database, retried
from broker.storage.forecasts import ForecastStore, GivenForecast
from broker.storage.history import ObservationStore
from predictors.compiled import available
from predictors.context import SIZES, size_class
from predictors.observation import Forecast, Query

__all__ = ["Forecasting", "middle", "quantiles"]

log = logging.getLogger(__name__)

LOOK = 1.0
"""Seconds between checks for new observations."""
FRESH = 10.0
"""Seconds for which the forecast of a size class is reused, although forecasts depend slightly on the time."""
REMEMBERED = 100_000
"""Most forecasts that are remembered as stored already."""
TURN = 20
"""Forecasts that are made before other coroutines may run."""


class Forecasting:
    """Forecasts, and the forecasters in memory.

    :param compiled: whether to compile forecasters; by default if numba is installed
    """

    def __init__(self, database: Database, places: Places, compiled: bool | None = None) -> None:
        self._database = database
        self._places = places
        self.compiled = available() if compiled is None else compiled
        self._all_links = AllLinks(database, places)
        self._links = LinkForecasters(database, self.compiled, self._all_links.learn_ceilings)
        self._ignored_subjects: frozenset[str] = frozenset()
        self._given: dict[tuple[Pair, int, str, int], GivenForecast] = {}
        self._remembered: set[int] = set()
        self._news = asyncio.Event()
        self._looking = asyncio.Lock()

    def news(self) -> None:
        """Check for new observations at once, after a report."""
        self._news.set()

    def knows(self, pair: Pair) -> bool:
        """Return whether a link in memory has a history of its own."""
        cached = self._links.get(pair)
        return self._links.is_being_made(pair) or (cached is not None and bool(cached.forecaster))

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
        cached = self._links.get(pair)
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
        cached = self._links.get(pair)
        forecaster = cached.forecaster if cached else None
        forecast = forecaster.forecast(query) if forecaster else None
        if forecast is None or forecast.rates is None:
            forecast = self._all_links.forecast(query)
            if self._links.is_being_made(pair):
                forecast = forecast._replace(reason=f"{forecast.reason}; the pair's own history is being read")
        forecast = self._all_links.limited(pair, forecast)
        self._remember(pair, nbytes, forecast, now)
        own = forecaster.forecast(query, named) if forecaster and (named := forecaster.own(subject)) else None
        return self._all_links.limited(pair, own) if own and own.rates else forecast

    def _remember(self, pair: Pair, nbytes: int | None, forecast: Forecast, now: float) -> None:
        """Queue a forecast for storage; each distinct forecast is stored once."""
        if forecast.rates is None or not all(map(math.isfinite, forecast.rates)):
            return
        cached = self._links.get(pair)
        own = cached is not None and cached.forecaster is not None
        seen = cached.seen if cached and own else self._all_links.seen
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

    async def _open(self, links: set[Pair]) -> None:
        await self._all_links.look_at_map()
        await self._links.open(links)

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
                await self._links.follow()
                if await self._all_links.learn_new():
                    self._news.set()
                await self._store()
                self._links.trim()
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
        await self._links.clear()
        self._ignored_subjects = ignored_subjects
        self._all_links.clear()

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
