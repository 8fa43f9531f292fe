"""What transfers achieved: reports are taken in once, and what they say is what was kept."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from broker.errors import Invalid
from broker.models.history import Ingested, Observed, TransferRecord
from broker.services.forecasting import Forecasting
from broker.services.places import Places
from broker.storage.database import Database
from broker.storage.history import History
from broker.storage.months import Months

__all__ = ["Reports"]

AHEAD = 3600.0
"""Seconds that a reporter's clock may be ahead of ours."""


class Reports:
    """The history of transfers."""

    def __init__(self, database: Database, places: Places, forecasting: Forecasting) -> None:
        self._database = database
        self._places = places
        self._forecasting = forecasting
        self._months = Months()

    async def take(self, subject: str, observed: Sequence[Observed]) -> Ingested:
        """Keep all that this subject has not reported before; when this returns they are kept.

        :raises Invalid: when one ended later than now, or names an endpoint that there is not
        """
        latest = time.time() + AHEAD
        for i, each in enumerate(observed):
            if each.ended > latest:
                raise Invalid(
                    f"transfer {i} ({each.id}) ended in the future, at {each.ended}",
                    "give seconds since the epoch, and look at your clock",
                )
        sources = await self._places.sources({each.source for each in observed})
        named = [
            each if sources[each.source] == each.source else each.model_copy(update={"source": sources[each.source]})
            for each in observed
        ]
        await self._have_months(named)
        async with self._database.write() as connection:
            accepted = await History(connection).add(subject, named)
        self._forecasting.news()
        return Ingested(accepted=accepted, known=len(observed) - accepted)

    async def _have_months(self, observed: Sequence[Observed]) -> None:
        """In a transaction of its own: it locks the table, for a moment."""
        if self._database.sqlite or not (lacking := self._months.lacking(each.ended for each in observed)):
            return
        async with self._database.write() as connection:
            await self._months.make(connection, lacking)
        self._months.made(lacking)

    async def listed(self, wanted: Mapping[str, Any], before: int | None, limit: int) -> list[TransferRecord]:
        """The newest report first."""
        if wanted.get("source") is not None:
            wanted = {**wanted, "source": (await self._places.sources({wanted["source"]}))[wanted["source"]]}
        async with self._database.read() as connection:
            return await History(connection).listed(wanted, before, limit)
