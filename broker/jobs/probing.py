"""Measurements of links between endpoints, made while no task is running.

A link is measured when a user requests it, when it was never used, or when it was not used for a day. Each measurement
transfers few bytes; all measurements of a day, failed ones included, stay within the daily budget.
"""

import asyncio
from collections.abc import Iterable, Mapping
from random import Random
from uuid import uuid4

import structlog

from broker.config.settings import Probing
from broker.errors import BrokerError
from broker.models.history import Observed
from broker.services.forecasting.history import Transfers
from broker.services.network.places import Places
from broker.services.network.probes import possible_links
from broker.storage.database import Database, retried
from broker.storage.dialects import read_clock
from broker.storage.lanes import LaneStore
from broker.storage.probes import EndpointLink, ProbeStore
from coalloc.errors import CoallocError
from coalloc.probing import ProbeLimits, measure

__all__ = ["Prober", "due"]

SUBJECT = "broker"
STALE = 86_400.0
"""Seconds after which an unused link is measured again."""
LOOK = 60.0
"""Seconds until the next check when there is nothing to measure."""
log = structlog.get_logger("broker.jobs")


def due(
    links: Iterable[EndpointLink],
    requested: Iterable[tuple[str, str]],
    used: Mapping[EndpointLink, float],
    now: float,
    random: Random,
) -> EndpointLink | None:
    """Return the link to measure next; None if none is due.

    A link that a user requested comes first; then a random link that was never used; then the link whose last use is
    longest ago, if that is more than `STALE`.

    :param used: last use of each link, in seconds since the epoch
    """
    named = {(link.source, link.sink): link for link in links}
    if first := next((named[each] for each in requested if each in named), None):
        return first
    blind = [link for link in links if link not in used]
    if blind:
        return random.choice(blind)
    oldest = min(used, key=lambda link: used[link], default=None)
    return oldest if oldest is not None and used[oldest] < now - STALE else None


class Prober:
    """A loop that measures one link at a time.

    :param probing: limits for the measurements
    """

    def __init__(self, database: Database, places: Places, transfers: Transfers, probing: Probing) -> None:
        self._database = database
        self._places = places
        self._transfers = transfers
        self._probing = probing
        self._random = Random()

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            try:
                measured = await self.probe()
            except BrokerError as error:
                log.warning("cannot measure links now; trying again", error=str(error))
                measured = False
            except Exception:  # otherwise an error would stop the loop silently
                log.exception("cannot measure links now; trying again")
                measured = False
            await asyncio.sleep(0 if measured else LOOK)

    async def probe(self) -> bool:
        """Measure the link that is due; return False if none is, a task is running, or the budget is spent."""
        endpoints = {name: placed.endpoint for name, placed in (await self._places.map()).by_name.items()}
        link = await self._claim(possible_links(endpoints.values()))
        if link is None:
            return False
        source, sink = endpoints[link.source], endpoints[link.sink]
        limits = ProbeLimits(self._probing.bytes, self._probing.seconds)
        try:
            (measured,) = await measure([source.url("")], [sink.url("")], limits, policy=await self._places.policy())
        except CoallocError as error:
            log.warning("not measured", source=link.source, sink=link.sink, error=error.message)
            return True
        observed = Observed(
            id=f"probe.{uuid4().hex}",
            source=link.pair.source,
            sink=link.pair.sink,
            started=measured.start,
            ended=measured.end,
            bytes=measured.bytes,
            outcome="ok" if measured.outcome == "ok" else "failed",
            error=measured.error and " ".join(measured.error.split())[:500],
        )
        await self._transfers.take(SUBJECT, [observed])
        log.info("measured", source=link.source, sink=link.sink, rate=measured.rate, error=measured.error)
        return True

    @retried
    async def _claim(self, able: list[EndpointLink]) -> EndpointLink | None:
        """Reserve the link that is due for this process; return None if there is none to measure now."""
        async with self._database.write() as connection:
            probes = ProbeStore(connection)
            await probes.alone()
            now = await read_clock(connection)
            if (
                await LaneStore(connection).open()
                or (await probes.spent(now) + 1) * self._probing.bytes > self._probing.a_day
            ):
                return None
            used = await probes.used(able, now - STALE)
            link = due(able, await probes.requested(), used, now, self._random)
            if link:
                await probes.claim(link, now)
            return link
