"""Comparison of forecasts with results, and with the forecasts of all other forecasters.

A pair of source and sink is scored when it has new transfers. A replayed forecast depends on the transfers that had
ended when the transfer began. So when a transfer is reported late, all transfers that began after its end are scored
again.
"""

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from broker.models.scores import REPLAYED, Score, ScoreKey, tallied
from broker.services.forecasting.compiling import load_compiler
from broker.storage.database import Database, retried
from broker.storage.scores import Learned, NewTransfers, ScoreStore, UnscoredLink
from predictors.context import size_class
from predictors.experience import telling
from predictors.hindsight import BLOCK, PANEL, WARM, GivenForecasts, Panel, affected, order
from predictors.observation import Forecast, Rates
from predictors.tally import Tally

__all__ = ["MOST", "Scoring", "score"]

MOST = 2000
"""Most transfers of a pair that are scored at once: the newest ones."""
REST = 15.0
"""Seconds before a pair is scored again: scoring many transfers at once costs little more than scoring one."""
SLICE = 0.005
"""Seconds of work between two pauses for other tasks."""
TURNS = 2.0
"""Pause after each slice of work, as a multiple of its duration; limited to `LONGEST`, as compiling takes long."""
LONGEST = 0.1
PANELS = 24
"""Number of pairs whose forecasters stay in memory, at about a megabyte each."""
FORGOTTEN = 240.0
"""Seconds without new transfers after which a pair's forecasters are dropped."""
MEANT = 86_400.0
"""Age in seconds above which a stored forecast is not used to score a transfer that begins."""


class ScoredPanel(NamedTuple):
    """A pair's panel of forecasters, the number of the newest scored transfer, and the time of scoring (monotonic)."""

    scored_id: int
    panel: Panel
    at: float


class Scoring:
    """Scoring of new transfers, safe with several processes: a duplicate score is stored once.

    :param compiled: whether forecasters are compiled
    """

    def __init__(self, database: Database, compiled: bool) -> None:
        self._database = database
        self._compiled = compiled
        self._done: dict[int, float] = {}
        self._panels: OrderedDict[int, ScoredPanel] = OrderedDict()

    async def step(self) -> bool:
        """Score one pair; return whether there was one to score."""
        now = time.monotonic()
        self._done = {pair: at for pair, at in self._done.items() if at > now - REST}
        for each in [each for each, cached in self._panels.items() if cached.at < now - FORGOTTEN]:
            del self._panels[each]
        async with self._database.read() as connection:
            unscored = await ScoreStore(connection).unscored()
        waiting = [each for each in unscored if each.pair_id not in self._done]
        if not waiting:
            return False
        pair = random.choice(waiting)  # other processes probably choose another pair
        self._done[pair.pair_id] = now  # before scoring, so that a failing pair does not block others
        await self.score(pair)
        return True

    async def all(self) -> None:
        """Score all pairs, without pauses."""
        while True:
            async with self._database.read() as connection:
                unscored = await ScoreStore(connection).unscored()
            if not unscored:
                return
            for pair in unscored:
                await self.score(pair)

    async def score(self, pair: UnscoredLink) -> None:
        """Score the new transfers of a pair, and rescore the transfers that they affect."""
        async with self._database.read() as connection:
            stored = ScoreStore(connection)
            extent = await stored.extent(pair)
            newest = [] if extent.earliest is None else await stored.newest(pair, MOST + BLOCK + WARM)
        if self._compiled:
            await asyncio.to_thread(load_compiler)
        panel = self._panel(pair, extent)
        scored = await _slowly(_work(pair, extent, newest, panel))
        new = [each for each in scored.values() if each]
        if await self._keep(pair, scored, new, await asyncio.to_thread(tallied, new)):
            self._panels[pair.pair_id] = ScoredPanel(pair.newest_id, panel, time.monotonic())
            if len(self._panels) > PANELS:
                self._panels.popitem(last=False)

    def _panel(self, pair: UnscoredLink, extent: NewTransfers) -> Panel:
        """Return the cached panel if all new transfers ended after those that it has seen; otherwise a new panel."""
        cached = self._panels.pop(pair.pair_id, None)
        if (
            cached
            and cached.scored_id == pair.scored_id
            and (extent.earliest is None or extent.earliest > cached.panel.until)
        ):
            return cached.panel
        return Panel(self._compiled)

    @retried
    async def _keep(
        self, pair: UnscoredLink, numbers: Collection[int], new: Sequence[Score], more: Mapping[ScoreKey, Tally]
    ) -> bool:
        """Store scores; return False if another process has scored the pair meanwhile."""
        async with self._database.write() as connection:
            stored = ScoreStore(connection)
            if not await stored.claim(pair):
                return False
            if numbers:
                old = await stored.take_back(numbers)
                await stored.add(new)
                await stored.count(more, await asyncio.to_thread(tallied, old))
            await stored.mark(pair)
        return True


async def _slowly(work: Iterator[tuple[int, Score | None] | None]) -> dict[int, Score | None]:
    """Do work in a thread in short slices, so that requests are served in between; return the results."""
    done: dict[int, Score | None] = {}
    while True:
        began = time.monotonic()
        part, more = await asyncio.to_thread(_slice, work)
        done.update(part)
        if not more:
            return done
        await asyncio.sleep(min(TURNS * (time.monotonic() - began), LONGEST))


def _slice(work: Iterator[tuple[int, Score | None] | None]) -> tuple[list[tuple[int, Score | None]], bool]:
    until, done = time.monotonic() + SLICE, []
    for each in work:
        if each:
            done.append(each)
        if time.monotonic() > until:
            return done, True
    return done, False


def _work(
    pair: UnscoredLink, extent: NewTransfers, newest: Sequence[Learned], panel: Panel
) -> Iterator[tuple[int, Score | None] | None]:
    """Yield the number and score of each new or affected transfer, and None after other steps of work.

    The score is None if there was no forecast when the transfer began.
    """
    known = sorted(newest, key=lambda each: order(each.observation))
    seen = [each.observation for each in known]
    rank = extent.transfers - len(seen)
    fresh = {i for i, each in enumerate(known) if each.id > pair.scored_id}
    numbers = list(affected(seen, rank, fresh, extent.earliest or 0.0, MOST))
    for forecasts in panel.hindsight(seen, rank, numbers):
        yield forecasts and (known[forecasts.number].id, score(pair.pair_id, known[forecasts.number], forecasts))


def score(pair_id: int, learned: Learned, given_forecasts: GivenForecasts) -> Score | None:
    """Return a transfer's score against its forecast; None if there was no forecast."""
    observation, forecast = learned.observation, learned.forecast
    if forecast and forecast.made_at > observation.start - MEANT and min(forecast.rates) > 0:
        given, forecaster, leader, rates = True, forecast.forecaster, forecast.leader, forecast.rates
    elif (replayed := given_forecasts.forecasts.get(REPLAYED)) and replayed.rates:
        given, forecaster, leader, rates = False, REPLAYED, replayed.leader, replayed.rates
    else:
        return None
    rate = telling(observation)
    assert rate is not None  # only transfers that show a rate are scored
    return Score(
        learned.id,
        pair_id,
        size_class(observation.bytes),
        learned.subject,
        observation.start,
        observation.end,
        observation.bytes,
        rate,
        observation.setup_seconds,
        forecaster,
        leader,
        given,
        rates,
        _panel(given_forecasts),
    )


def _panel(given: GivenForecasts) -> dict[str, Rates]:
    """Return the forecasts of the panel, with five digits; empty if one is missing, so that comparisons are fair."""
    if len(given.forecasts) < len(PANEL):
        return {}
    return {name: _rounded(forecast) for name, forecast in given.forecasts.items()}


def _rounded(forecast: Forecast) -> Rates:
    assert forecast.rates is not None
    return Rates(*(float(f"{rate:.5g}") for rate in forecast.rates))
