"""Forecasts for links without history, from the observations of all links, and upper limits of all forecasts."""

import asyncio
from collections.abc import Iterable, Mapping

from broker.models.history import Pair
from broker.services.forecasting.ceilings import Ceilings, bounded, capacities
from broker.services.forecasting.horizon import Horizon
from broker.services.network.places import Map, Places, kilometres
from broker.storage.database import Database
from broker.storage.history import ObservationStore, StoredObservation
from predictors.models.hierarchy import Hierarchy
from predictors.observation import Forecast, Query

__all__ = ["AllLinks"]

PAGE, LATELY = 5000, 100_000
"""Most observations that one call learns, and most new numbers that it covers. For more new numbers, and at the start,
it learns a sample of the newest ones."""
TURN = 20
"""Observations that are learned before other coroutines may run."""


class AllLinks:
    """The rates of sources, sinks and links, learned from the observations of all links."""

    def __init__(self, database: Database, places: Places) -> None:
        self._database = database
        self._places = places
        self._hierarchy = Hierarchy(self._distance)
        self._ceilings = Ceilings()
        self._map: Map | None = None
        self._capacities: Mapping[str, float] = {}
        self._coordinates: Mapping[str, tuple[float, float]] = {}
        self._horizon = Horizon()
        self.seen = 0
        """Number of the newest learned observation."""

    def forecast(self, query: Query) -> Forecast:
        """Return a forecast that uses no history of the link itself."""
        return self._hierarchy.forecast(query)

    def limited(self, pair: Pair, forecast: Forecast) -> Forecast:
        """Return the forecast, limited to the rates that the source and sink of its link can have."""
        return bounded(forecast, self._ceilings.of(pair, self._capacities.get(pair.source)))

    def learn_ceilings(self, observations: Iterable[StoredObservation]) -> None:
        """Learn the highest rates of some observations; `learn_new` counts those that are new."""
        for each in observations:
            self._ceilings.learn(each, counted=False)

    def clear(self) -> None:
        """Drop everything learned."""
        self._hierarchy, self._ceilings, self.seen = Hierarchy(self._distance), Ceilings(), 0

    async def look_at_map(self) -> None:
        """Read the capacities and coordinates of servers and sites, if they may have changed."""
        known = await self._places.map()
        if known is not self._map:
            self._map, self._capacities = known, capacities(known.by_id.values())
            self._coordinates = known.all_coordinates()

    def _distance(self, source: str, sink: str) -> float | None:
        return kilometres(self._coordinates.get(source), self._coordinates.get(sink))

    async def learn_new(self) -> bool:
        """Learn the observations since the last call; return whether there may be more."""
        async with self._database.read() as connection:
            history = ObservationStore(connection)
            last = await history.last_id()  # before the writers are read
            until = self._horizon.look(last, await history.writers())
        seen, more = self.seen, False
        if until <= seen:
            return False
        # a new transaction, which sees the rows of all writers that have ended
        async with self._database.read() as connection:
            history = ObservationStore(connection)
            if seen and until - seen <= LATELY:
                new = await history.following(seen, until, PAGE)
                if more := len(new) == PAGE:
                    until = new[-1].id
            else:
                new = await history.sample(max(seen, until - LATELY), until, PAGE)
        await self.look_at_map()
        for i, each in enumerate(new):
            self._hierarchy.learn(each.observation, each.subject)
            self._ceilings.learn(each)
            if i % TURN == 0:
                await asyncio.sleep(0)
        self.seen = until
        return more
