"""What transfers achieved: reports are taken in once, and what they say is what was kept."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from sqlalchemy.exc import IntegrityError

from broker.errors import Forbidden, Invalid
from broker.models.access import Caller, Role
from broker.models.history import Ingested, Observed, TransferRecord
from broker.services.forecasting import Forecasting
from broker.services.permissions import NOBODY
from broker.services.places import Places
from broker.services.quotas import Quotas
from broker.storage.database import Database, retried
from broker.storage.forgetting import forget
from broker.storage.history import History
from broker.storage.months import Months, begin_of_month

__all__ = ["AHEAD", "Transfers"]

log = logging.getLogger(__name__)

PAGE = 2000
AT_ONCE = 10_000
"""Transfers in one transaction: others are served between."""
DAY = 86_400.0
FORGET = 6 * 3600.0
"""Seconds between looks for what is too old."""
AHEAD = 3600.0
"""Seconds that a reporter's clock may be ahead of ours."""


class Transfers:
    """The history of transfers.

    `listeners` are called when something was reported here.
    """

    def __init__(self, database: Database, places: Places, forecasting: Forecasting, quotas: Quotas) -> None:
        self._quotas = quotas
        self._database = database
        self._places = places
        self._months = Months()
        self.listeners: list[Callable[[], None]] = [forecasting.news]

    async def take(self, subject: str, observed: Sequence[Observed], role: Role = "reader") -> Ingested:
        """Keep all that this subject has not reported before; when this returns they are kept.

        :param role: of the subject
        :raises Invalid: when one ended later than now, or names an endpoint that there is not
        :raises TooManyRequests: when this subject has reported too many in this hour
        """
        return await self.keep(subject, await self.filed(subject, observed, role))

    async def filed(self, subject: str, observed: Sequence[Observed], role: Role = "reader") -> list[Observed]:
        """These as they are kept: under the names of their servers and sites, and none later than now.

        :param role: of the subject: a collection that it may not see is filed as one that is not known
        :raises Invalid: when one ended later than now, or names an endpoint that there is not
        :raises TooManyRequests: when this subject has reported too many in this hour
        """
        self._quotas.take(subject, role, len(observed))
        now = time.time()
        latest = now + AHEAD
        for i, each in enumerate(observed):
            if each.ended > latest:
                raise Invalid(
                    f"transfer {i} ({each.id}) ended in the future, at {each.ended}",
                    "give seconds since the epoch, and look at your clock",
                )
        caller = Caller.model_construct(subject=subject, role=role, site="")
        sources = await self._places.sources({each.source for each in observed}, caller)
        sinks = await self._places.sinks({each.sink for each in observed}, caller)
        return [_renamed(_begun(each, now), sources[each.source], sinks[each.sink]) for each in observed]

    async def keep(self, subject: str, observed: Sequence[Observed]) -> Ingested:
        """Keep what is `filed` and this subject has not reported before."""
        accepted = 0
        for begin in range(0, len(observed), AT_ONCE):
            accepted += await self._added(subject, observed[begin : begin + AT_ONCE])
        for listener in self.listeners:
            listener()
        return Ingested(accepted=accepted, known=len(observed) - accepted)

    async def _added(self, subject: str, observed: Sequence[Observed]) -> int:
        try:
            return await self._add(subject, observed)
        except IntegrityError:  # another process has dropped a month in which this reports
            self._months.forget()
            return await self._add(subject, observed)

    @retried
    async def _add(self, subject: str, observed: Sequence[Observed]) -> int:
        await self._have_months(observed)
        async with self._database.write() as connection:
            return await History(connection).add(subject, observed)

    @retried
    async def forget(self, before: float) -> int:
        """Forget what ended before a moment, in whole days (UTC), on PostgreSQL months; how many transfers, or months.

        What was made of it goes with it: so sums stay those of what is kept.
        """
        before = before // DAY * DAY if self._database.sqlite else begin_of_month(before)
        async with self._database.write() as connection:
            history = History(connection)
            if self._database.sqlite:
                count = await history.forget(before)
            else:
                count = await self._months.drop_before(connection, before)
            await history.forget_keys(before)
            await forget(connection, before)
        self._months.forget()
        return count

    async def keep_forgetting(self, days: float) -> None:
        """Forget what is older than this, now and then, until cancelled."""
        while True:
            try:
                if count := await self.forget(time.time() - days * DAY):
                    log.info("forgotten: %d %s", count, "transfers" if self._database.sqlite else "months")
            except Exception:  # else nothing would ever be forgotten again
                log.exception("nothing could be forgotten")
            await asyncio.sleep(FORGET)

    @retried
    async def _have_months(self, observed: Sequence[Observed]) -> None:
        """In a transaction of its own: it locks the table, for a moment."""
        if self._database.sqlite or not (lacking := self._months.lacking(each.ended for each in observed)):
            return
        async with self._database.write() as connection:
            await self._months.make(connection, lacking)
        self._months.made(lacking)

    async def pages(self, wanted: Mapping[str, Any], caller: Caller = NOBODY) -> AsyncIterator[list[TransferRecord]]:
        """All that is wanted, in parts, the newest report first. What is wrong is said before the first."""
        first = await self.listed(wanted, None, PAGE, caller)

        async def all_of_them() -> AsyncIterator[list[TransferRecord]]:
            page = first
            while page:
                yield page
                page = await self.listed(wanted, page[-1].id, PAGE, caller)

        return all_of_them()

    async def listed(
        self, wanted: Mapping[str, Any], before: int | None, limit: int, caller: Caller = NOBODY
    ) -> list[TransferRecord]:
        """The newest report first; whose it was, and why it failed, is shown of one's own alone, but to admins.

        :raises Forbidden: when it is asked for those of somebody else: that would tell whose they are
        """
        if caller.scope is not None and wanted.get("subject") not in (None, caller.scope):
            raise Forbidden(
                f"{caller.subject} may not ask which transfers are another's", f"ask for those of {caller.subject}"
            )
        if wanted.get("source") is not None:
            wanted = {**wanted, "source": (await self._places.sources({wanted["source"]}, caller))[wanted["source"]]}
        if wanted.get("sink") is not None:
            wanted = {**wanted, "sink": (await self._places.sinks({wanted["sink"]}, caller))[wanted["sink"]]}
        async with self._database.read() as connection:
            found = await History(connection).listed(wanted, before, limit)
        return [each.shown_to(caller.scope) for each in found]


def _begun(each: Observed, now: float) -> Observed:
    """A transfer that ended later than now, by its reporter's clock, as one that ended now at the same rate."""
    if each.ended <= now:
        return each
    took = each.ended - each.started
    started = each.started if each.started < now else now - took
    busy = took if each.busy_seconds is None else each.busy_seconds
    return each.model_copy(update={"started": started, "ended": now, "busy_seconds": busy})


def _renamed(each: Observed, source: str, sink: str) -> Observed:
    if (source, sink) == (each.source, each.sink):  # most are: a copy takes time
        return each
    return each.model_copy(update={"source": source, "sink": sink})
