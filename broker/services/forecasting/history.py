"""The history of transfers. Each observation is stored once."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from sqlalchemy.exc import IntegrityError

from broker.errors import Forbidden, Invalid
from broker.models.callers import Caller, Role
from broker.models.history import Ingested, Observed, TransferRecord
from broker.services.auth.permissions import NOBODY
from broker.services.auth.quotas import Quotas
from broker.services.network.places import Places
from broker.storage.database import Database, retried
from broker.storage.history import ObservationStore
from broker.storage.months import Months, begin_of_month
from broker.storage.routes import RouteStore
from broker.storage.traffic import forget

__all__ = ["AHEAD", "Transfers"]

log = logging.getLogger(__name__)

PAGE = 2000
AT_ONCE = 10_000
"""Most transfers in one transaction; other requests are served between transactions."""
DAY = 86_400.0
FORGET = 6 * 3600.0
"""Seconds between two deletions of old transfers."""
AHEAD = 3600.0
"""Most seconds by which a reporter's clock may be ahead of the broker's."""


class Transfers:
    """The history of transfers.

    :param new_transfers: function to call when this process has stored transfers
    """

    def __init__(self, database: Database, places: Places, quotas: Quotas, new_transfers: Callable[[], None]) -> None:
        self._quotas = quotas
        self._database = database
        self._places = places
        self._months = Months()
        self._new_transfers = new_transfers

    async def take(self, subject: str, observed: Sequence[Observed], role: Role = "reader") -> Ingested:
        """Store the transfers that this subject has not reported before.

        :param role: role of the subject
        :raises Invalid: when a transfer ended more than `AHEAD` seconds after now, or names an unknown endpoint
        :raises TooManyRequests: when the subject has used up its quota
        """
        return await self.keep(subject, await self.filed(subject, observed, role))

    async def filed(self, subject: str, observed: Sequence[Observed], role: Role = "reader") -> list[Observed]:
        """Return transfers in stored form: with addresses instead of endpoints' names, and no end after now.

        :param role: role of the subject; a collection that it may not see is treated as unknown
        :raises Invalid: when a transfer ended more than `AHEAD` seconds after now, or names an unknown endpoint
        :raises TooManyRequests: when the subject has used up its quota
        """
        self._quotas.take(subject, role, len(observed))
        now = time.time()
        latest = now + AHEAD
        for i, each in enumerate(observed):
            if each.ended > latest:
                raise Invalid(
                    f"transfer {i} ({each.id}) ended in the future, at {each.ended}",
                    "send seconds since the epoch, and check your clock",
                )
        caller = Caller.model_construct(subject=subject, role=role, site="")
        sources = await self._places.sources({each.source for each in observed}, caller)
        sinks = await self._places.sinks({each.sink for each in observed}, caller)
        return [_renamed(_begun(each, now), sources[each.source], sinks[each.sink]) for each in observed]

    async def keep(self, subject: str, observed: Sequence[Observed]) -> Ingested:
        """Store transfers from `filed`, except those that this subject has reported before."""
        accepted = 0
        for begin in range(0, len(observed), AT_ONCE):
            accepted += await self._added(subject, observed[begin : begin + AT_ONCE])
        self._new_transfers()
        return Ingested(accepted=accepted, known=len(observed) - accepted)

    async def _added(self, subject: str, observed: Sequence[Observed]) -> int:
        try:
            return await self._add(subject, observed)
        except IntegrityError:  # another process has dropped a month's partition
            self._months.forget()
            return await self._add(subject, observed)

    @retried
    async def _add(self, subject: str, observed: Sequence[Observed]) -> int:
        await self._have_months(observed)
        async with self._database.write() as connection:
            return await ObservationStore(connection).add(subject, observed)

    @retried
    async def forget(self, before: float) -> int:
        """Delete the transfers that ended before a time, by whole days (UTC); by whole months on PostgreSQL.

        Derived data are deleted, too, so that sums match the stored transfers. Return the number of deleted transfers,
        or of deleted months on PostgreSQL.
        """
        before = before // DAY * DAY if self._database.sqlite else begin_of_month(before)
        async with self._database.write() as connection:
            history = ObservationStore(connection)
            if self._database.sqlite:
                count = await history.forget(before)
            else:
                count = await self._months.drop_before(connection, before)
            await history.forget_keys(before)
            await forget(connection, before)
            await RouteStore(connection).forget(before)
        self._months.forget()
        return count

    async def keep_forgetting(self, days: float) -> None:
        """Delete transfers older than `days`, every `FORGET` seconds, until cancelled."""
        while True:
            try:
                if count := await self.forget(time.time() - days * DAY):
                    log.info("deleted old transfers: %d %s", count, "transfers" if self._database.sqlite else "months")
            except Exception:  # otherwise an error would stop the loop silently
                log.exception("failed to delete old transfers; trying again")
            await asyncio.sleep(FORGET)

    @retried
    async def _have_months(self, observed: Sequence[Observed]) -> None:
        """Create the missing partitions of months, in a separate transaction, since this locks the table."""
        if self._database.sqlite or not (lacking := self._months.lacking(each.ended for each in observed)):
            return
        async with self._database.write() as connection:
            await self._months.make(connection, lacking)
        self._months.made(lacking)

    async def pages(
        self, conditions: Mapping[str, Any], caller: Caller = NOBODY
    ) -> AsyncIterator[list[TransferRecord]]:
        """Return pages of all transfers that meet the conditions, newest report first, after reading the first page."""
        first = await self.listed(conditions, None, PAGE, caller)

        async def all_of_them() -> AsyncIterator[list[TransferRecord]]:
            page = first
            while page:
                yield page
                page = await self.listed(conditions, page[-1].id, PAGE, caller)

        return all_of_them()

    async def listed(
        self, conditions: Mapping[str, Any], before: int | None, limit: int, caller: Caller = NOBODY
    ) -> list[TransferRecord]:
        """Return the transfers that meet the conditions, newest report first.

        Callers see the reporter and the error of their own transfers only; admins, of all transfers.

        :param before: number of a transfer, to return only earlier reports; None for all
        :param limit: most transfers to return
        :raises Forbidden: when a user who is no admin requests the transfers of another subject
        """
        if caller.scope is not None and conditions.get("subject") not in (None, caller.scope):
            raise Forbidden(
                f"{caller.subject} may not see other users' transfers", f"request those of {caller.subject}"
            )
        if conditions.get("source") is not None:
            conditions = {
                **conditions,
                "source": (await self._places.sources({conditions["source"]}, caller))[conditions["source"]],
            }
        if conditions.get("sink") is not None:
            conditions = {
                **conditions,
                "sink": (await self._places.sinks({conditions["sink"]}, caller))[conditions["sink"]],
            }
        async with self._database.read() as connection:
            found = await ObservationStore(connection).listed(conditions, before, limit)
        return [each.shown_to(caller.scope) for each in found]


def _begun(each: Observed, now: float) -> Observed:
    """Return a transfer; if its reporter's clock is ahead, with the end `now`, and the same rate."""
    if each.ended <= now:
        return each
    took = each.ended - each.started
    started = each.started if each.started < now else now - took
    busy = took if each.busy_seconds is None else each.busy_seconds
    return each.model_copy(update={"started": started, "ended": now, "busy_seconds": busy})


def _renamed(each: Observed, source: str, sink: str) -> Observed:
    if (source, sink) == (each.source, each.sink):  # the usual case, without a copy
        return each
    return each.model_copy(update={"source": source, "sink": sink})
