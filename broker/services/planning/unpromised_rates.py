"""Rates that promises to others leave on links, for the workers' transfers."""

import structlog

from broker.errors import BrokerError, Unavailable
from broker.models.callers import Caller
from broker.models.lanes import LaneCandidate
from broker.services.planning.guarantees import Guarantees
from broker.services.planning.promised_links import unpromised
from broker.storage.database import Database
from broker.storage.dialects import read_clock
from broker.storage.guarantees import GuaranteeStore
from broker.storage.lanes import LaneStore

__all__ = ["UnpromisedRates"]

BYTES = 1_000_000_000
"""Size for which rates are forecast."""
log = structlog.get_logger("broker.worker")


class UnpromisedRates:
    """The rates of links that promises to others leave."""

    def __init__(self, database: Database, guarantees: Guarantees) -> None:
        self._database = database
        self._guarantees = guarantees

    async def of(self, task: LaneCandidate, site: str, caller: Caller) -> dict[str, float]:
        """Return the rates of the links to a site that promises limit, for one lane of a task, by source.

        The lanes between the same two collections share a rate equally.
        """
        async with self._database.read() as connection:
            running = await GuaranteeStore(connection).running(await read_clock(connection))
            others = [link for of, link in running if of != task.task]
            if not others:
                return {}
            lanes = sum(each.pair == task.pair for each in await LaneStore(connection).open())
        sources = list(dict.fromkeys(each.source for each in others))
        try:
            links = await self._guarantees.known(sources, site, "", BYTES, caller)
        except Unavailable:
            raise
        except BrokerError as error:  # no reason to fail a copy
            log.info(
                "cannot compute the rates that promises leave; no limit is set", task=task.task, reason=error.message
            )
            return {}
        own = {link.source: link.share.rate for of, link in running if of == task.task}
        found = {
            source: unpromised(path, own.get(source, 0.0))
            for source, path in zip(links.rates, links.paths(others), strict=True)
        }
        return {source: rate / max(1, lanes) for source, rate in found.items() if rate is not None}
