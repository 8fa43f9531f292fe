"""Promised finish times: admission beside all that is promised already, reports of running transfers, and ends.

All changes of the ledger take place one after the other, so that no share is promised twice. The decisions are those of
`promised_links`.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.errors import Conflict, Forbidden, Invalid, NotFound, TooLarge, TooManyRequests
from broker.models.callers import Caller
from broker.models.forecasts import Expected, ForecastRequest, Resolved
from broker.models.guarantees import MOST_SOURCES, Guarantee, NewGuarantee, Outcome, WantedGuarantee
from broker.models.history import Pair
from broker.services.auth.quotas import Quotas
from broker.services.catalogue.replicas import Replicas
from broker.services.forecasting.ceilings import capacities
from broker.services.forecasting.forecasts import Forecasting
from broker.services.network.places import Places
from broker.services.planning.promised_links import KnownLinks, Promising, decide, look, scale_left
from broker.storage.database import Database, retried
from broker.storage.dialects import read_clock
from broker.storage.guarantees import GuaranteeStore as Stored
from broker.storage.tokens import TokenStore
from coalloc.guarantees.deadline import paths_of
from coalloc.guarantees.finish_admission import AdmittedFinish, FinishView, RefusedFinish
from coalloc.model.forecasts import Estimate

__all__ = ["MOST_BYTES", "DecidedGuarantee", "Guarantees", "within"]

LEASE = 300.0
"""Seconds without a report after which the client of a promise counts as gone."""
MOST_OPEN, MOST_CLOSED = 100, 1000
"""Most open promises of a user; number of closed ones, the newest, that are kept."""
FURTHEST = 30 * 86_400.0
"""Longest time to a promised deadline, in seconds."""
MOST_BYTES = 1 << 62
"""Bytes that no promise reaches, so that their number can be stored."""
ENDLESS = 3e8
"""Seconds beyond which a finish is not shown."""


class DecidedGuarantee(NamedTuple):
    """A promise or a refusal as it is stored; for a refusal with the earliest time that would be promised, if any.

    :ivar considered: the sources of a client's request about which something is known, as it names them
    """

    guarantee: Guarantee
    earliest: float | None = None
    considered: Sequence[str] = ()


class Guarantees:
    """The promises of all users. Users see their own, admins all."""

    def __init__(
        self, database: Database, places: Places, forecasting: Forecasting, replicas: Replicas, quotas: Quotas
    ) -> None:
        self._database = database
        self._places = places
        self._forecasting = forecasting
        self._replicas = replicas
        self._quotas = quotas

    async def admit(self, caller: Caller, wanted: WantedGuarantee) -> DecidedGuarantee:
        """Make a promise if it can be kept with the wanted probability, and reserve its shares.

        :raises Invalid: when a source, the sink or the time is not valid
        :raises NotFound: when a dataset does not exist
        :raises TooLarge: when the datasets have more bytes than can be stored
        :raises Conflict: when nothing is known about the links, or about the size or the replicas of a dataset
        :raises TooManyRequests: when the caller has too many promises
        """
        self._quotas.take(caller.subject, caller.role, 1)
        sink = caller.site if wanted.sink is None else wanted.sink
        size, sources = wanted.bytes or 0, wanted.sources
        if wanted.files:
            size, holders = await self._located(wanted.files, sink, caller)
            sources = sources or holders
            if not sources:
                raise Conflict(
                    "no endpoint has available replicas of all files", "name sources, or ask for fewer files"
                )
        links, considered = await self._links(sources, sink, size, caller)
        request_id = None if wanted.request_id is None else str(wanted.request_id)
        promising = Promising(caller.subject, links, size, wanted.by, wanted.sure, request_id)
        return (await self.promise(promising))._replace(considered=considered)

    async def _located(self, files: Sequence[str], sink: str, caller: Caller) -> tuple[int, tuple[str, ...]]:
        """Return the bytes of datasets, and the endpoints that have all of them, the best of the first one first."""
        found = [each async for part in self._replicas.resolve(files, sink, caller) for each in part]
        sizes = [_size(each) for each in found]
        common = set.intersection(*({replica.endpoint for replica in each.replicas} for each in found))
        holders = dict.fromkeys(each.endpoint for each in found[0].replicas if each.endpoint in common)
        if sum(sizes) >= MOST_BYTES:
            raise TooLarge(f"{len(found)} datasets have more than {MOST_BYTES} bytes", "ask for fewer")
        return max(1, sum(sizes)), tuple(holders)[:MOST_SOURCES]

    async def _links(
        self, sources: Sequence[str], sink: str, size: int, caller: Caller
    ) -> tuple[KnownLinks, list[str]]:
        """Return what is known about the links from some sources to a sink, and the sources of known links.

        :raises Conflict: when nothing is known
        """
        addresses = await self._places.sources(sources, caller)
        site = (await self._places.sinks([sink], caller))[sink]
        server = (await self._places.sources([sink], caller))[sink] if "://" in sink else ""
        links = await self.known(list(dict.fromkeys(addresses.values())), site, server, size, caller)
        return links, [each for each in addresses if addresses[each] in links.rates]

    async def known(self, sources: Sequence[str], site: str, server: str, size: int, caller: Caller) -> KnownLinks:
        """Return what is known about links, from transfers over these links.

        :param sources: addresses of the servers, in stored form
        :param site: the destination's site, or another name of the sink
        :param server: address of the destination's server; empty if only its site is known
        :raises Conflict: when nothing is known about any of them
        """
        try:
            asked = [ForecastRequest(source=each, sink=site, size=size) for each in sources]
        except ValidationError:
            raise Invalid("a source is not an address of a server", "write it as SCHEME://HOST[:PORT]") from None
        expected = await self._forecasting.ask(asked, caller)
        own = [each for each in expected if self._forecasting.knows(Pair(each.source, each.sink))]
        known = [each for each in own if each.rate and each.rate.p50 > 0]
        if not known:
            raise Conflict(
                f"nothing is known about the rates to {site or 'your site'}",
                "transfer something over these links first, and report it, or name other sources",
            )
        rates = dict(zip((each.source for each in known), paths_of([_estimate(each) for each in known]), strict=True))
        limits = capacities((await self._places.map()).by_id.values())
        return KnownLinks(site, server, rates, limits)

    @retried
    async def promise(self, wanted: Promising) -> DecidedGuarantee:
        """Make a promise over known links, or store a refusal.

        :raises Invalid: when the time is not valid
        :raises Conflict: when its task is over, or has another deadline by now
        :raises TooManyRequests: when its owner has too many promises
        """
        async with self._database.write() as connection:
            stored, now = await _begun(connection)
            if wanted.request_id and (known := await stored.requested(wanted.owner, wanted.request_id, now)):
                return DecidedGuarantee(known)
            if wanted.task and (known := await _of_task(stored, wanted.task, wanted.by, now)):
                return DecidedGuarantee(known)
            _check_time(wanted.by, now)
            if await stored.count(wanted.owner) >= MOST_OPEN:
                raise TooManyRequests(
                    f"{wanted.owner} has {MOST_OPEN} open promises already", "give up some of them", retry_after=10
                )
            ledger = await stored.promised(wanted.links.rates, wanted.links.sink, now)
            decided = await asyncio.to_thread(decide, wanted, ledger, now)  # it takes long beside thousands of promises
            number = await stored.add(*_to_store(wanted, decided, now), MOST_CLOSED)
            made = await stored.one(number, now)
            assert made is not None
            earliest = decided.earliest if isinstance(decided, RefusedFinish) else None
            return DecidedGuarantee(made, earliest if earliest is None or earliest <= now + FURTHEST else None)

    async def one(self, caller: Caller, number: int) -> Guarantee:
        """Return a promise. :raises NotFound: when there is none, or the caller may not see it"""
        async with self._database.read() as connection:
            return await _owned(Stored(connection), caller, number, await read_clock(connection))

    async def page(self, caller: Caller, owner: str | None, before: int | None, limit: int) -> list[Guarantee]:
        """Return promises and refusals, the newest first.

        :param owner: user whose promises to return; None for those of all users
        :raises Forbidden: when the caller may not see them
        """
        if owner != caller.subject and not caller.may("admin"):
            raise Forbidden(f"{caller.subject} may not see other users' guarantees", "leave out owner")
        async with self._database.read() as connection:
            return await Stored(connection).page(owner, before, limit, await read_clock(connection))

    async def report(self, caller: Caller, number: int, left: int) -> Guarantee:
        """Store how many bytes a running transfer lacks; return its promise with the present probability.

        The report keeps the promise open. Its shares shrink if it is ahead of its time.

        :raises NotFound: when there is no such promise, or the caller may not see it
        :raises Conflict: when the promise is over, or that of a task
        """
        known = await self.one(caller, number)
        _check_open(known)
        _check_own(known)
        sources = [share.source for share in known.shares]
        try:
            links: KnownLinks | float = await self.known(sources, known.sink, "", max(1, left), caller)
        except Conflict:  # the history of its links was deleted meanwhile
            links = known.chance_now
        await self.renew(number, min(left, known.bytes), links)
        return await self.one(caller, number)

    @retried
    async def renew(self, number: int, left: int, known: KnownLinks | float) -> None:
        """Store the bytes that an open promise lacks, and its probability; give back what it does not need.

        :param known: its links, from which the probability follows; or the probability, if the rate was measured
        :raises Conflict: when the promise is over
        """
        async with self._database.write() as connection:
            stored, now = await _begun(connection)
            made = await stored.one(number, now)
            assert made is not None  # open promises are not deleted
            _check_open(made)
            chance = known if isinstance(known, float) else await _chance(stored, made, left, known, now)
            rate = sum(each.rate for each in made.shares)
            scale = scale_left(left, made.by, made.shares[0].since, rate, now)
            await stored.report(number, left, chance, None if made.task else now + LEASE, scale)

    async def outlook(self, wanted: Promising, number: int | None) -> FinishView:
        """Return the outlook of a transfer whose rate was not measured yet, after all earlier promises.

        :param number: its promise; None if it has none
        """
        async with self._database.read() as connection:
            now = await read_clock(connection)
            ledger = await Stored(connection).promised(wanted.links.rates, wanted.links.sink, now)
            return await asyncio.to_thread(look, wanted, ledger, now, number)

    async def end(self, caller: Caller, number: int, complete: bool) -> Guarantee:
        """Note that all bytes of a promise have arrived, or that they will not; a promise that is over stays as it is.

        :raises NotFound: when there is no such promise, or the caller may not see it
        :raises Conflict: when it is the promise of a task
        """
        _check_own(await self.one(caller, number))
        return await self._close(caller, number, "kept" if complete else "broken")

    async def remove(self, caller: Caller, number: int) -> None:
        """Give up a promise; one that is over does not change.

        :raises NotFound: when there is no such promise, or the caller may not see it
        """
        await self._close(caller, number, "given up")

    @retried
    async def _close(self, caller: Caller, number: int, outcome: Outcome) -> Guarantee:
        async with self._database.write() as connection:
            stored, now = await _begun(connection)
            known = await _owned(stored, caller, number, now)
            if known.outcome == "open":
                await stored.close(number, outcome, now)
                if known.owner != caller.subject:
                    await TokenStore(connection).note(now, caller.subject, "close guarantee", str(number))
            return await _owned(stored, caller, number, now)


async def _begun(connection: AsyncConnection) -> tuple[Stored, float]:
    """Lock and settle the ledger; return it with the present time."""
    stored = Stored(connection)
    await stored.alone()
    now = await read_clock(connection)
    await stored.settle(now)
    return stored, now


async def _owned(stored: Stored, caller: Caller, number: int, now: float) -> Guarantee:
    known = await stored.one(number, now)
    if known is None or not (known.owner == caller.subject or caller.may("admin")):
        raise NotFound(f"there is no guarantee {number}", "choose one listed by GET /broker/v1/guarantees")
    return known


async def _chance(stored: Stored, made: Guarantee, left: int, links: KnownLinks, now: float) -> float:
    ledger = await stored.promised(links.rates, links.sink, now)
    server = next((each.server for each in ledger if each.guarantee == made.id), "")
    wanted = Promising(made.owner, links._replace(server=server), left, made.by, made.sure)
    return (await asyncio.to_thread(look, wanted, ledger, now, made.id)).chance


async def _of_task(stored: Stored, task: str, by: float, now: float) -> Guarantee | None:
    """Return the promise that a task has already. :raises Conflict: when it has another deadline, or is over"""
    if not await stored.still_asked(task, by):
        raise Conflict(f"task {task} is over, or has another deadline", "look at it again")
    return await stored.of_task(task, by, now)


def _check_own(known: Guarantee) -> None:
    if known.task is not None:
        raise Conflict(f"guarantee {known.id} belongs to task {known.task}", "let the task report it")


def _check_open(known: Guarantee) -> None:
    if known.outcome != "open":
        raise Conflict(f"guarantee {known.id} is over: {known.outcome}", "ask for a new one")


def _size(resolved: Resolved) -> int:
    if resolved.error is not None:
        raise NotFound(resolved.error.message, resolved.error.remedy)
    if resolved.size is None:
        raise Conflict(f"the size of {resolved.name} is unknown", f"set it: PUT /broker/v1/datasets/{resolved.name}")
    return resolved.size


def _estimate(expected: Expected) -> Estimate:
    assert expected.rate is not None
    return Estimate(expected.setup_seconds, expected.rate.p50, bounds=(expected.rate.p10, expected.rate.p90))


def within(moment: float, now: float) -> float | None:
    """Return a time that a finish is expected at; None if it is so late that it is not shown."""
    return moment if moment < now + ENDLESS else None


def _check_time(by: float, now: float) -> None:
    if by <= now:
        raise Invalid("the time has passed", "choose a later one")
    if by > now + FURTHEST:
        raise Invalid("the time is more than 30 days away", "choose an earlier one")


def _to_store(
    wanted: Promising, decided: AdmittedFinish | RefusedFinish, now: float
) -> tuple[NewGuarantee, dict[str, float], float]:
    """Return the promise or refusal to store, its shares by source, and when these begin."""
    refusal = NewGuarantee(
        owner=wanted.owner,
        request_id=None,
        task_id=wanted.task,
        bytes=wanted.bytes,
        sink=wanted.links.sink,
        server=wanted.links.server,
        made_at=now,
        deadline=wanted.by,
        sure=wanted.sure,
        chance=decided.chance,
        t50=None,
        t95=None,
        expires_at=None,
        outcome="refused",
    )
    if isinstance(decided, RefusedFinish):
        return refusal, {}, now
    made = refusal._replace(
        request_id=wanted.request_id,
        t50=within(decided.t50, now),
        t95=within(decided.t95, now),
        expires_at=None if wanted.task else now + LEASE,
        outcome=None,
    )
    sources = list(wanted.links.rates)
    return made, {sources[i]: rate for i, rate in decided.shares.items()}, decided.since
