"""Drift and blind spots: pairs whose forecasts became worse, and links without recent data."""

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from broker.config.settings import Probing
from broker.models.base import Wire
from broker.models.history import Pair
from broker.reports.archive import Archive, Scope
from broker.reports.document import Action, Column, Fact, Report, Table, Value
from broker.reports.queries import pair_page
from broker.reports.significance import shifted
from broker.reports.unscored import unscored
from broker.reports.words import written
from broker.services.network.probes import possible_links
from broker.storage.forecasts import Daily, Misses
from broker.storage.probes import EndpointLink, ProbeStore
from broker.storage.sums import named
from broker.storage.traffic import DAY

__all__ = ["Drift", "DriftQuery", "drifts", "make"]

WEEK = 7
FEWEST, FEWEST_DAYS = 20, 4
"""Fewest transfers in a week, and days with transfers, for a reliable mean."""
MATTERS = 0.05
"""Smallest mean error whose doubling is reported."""
LIKELY = 0.05
STALE = 7 * DAY
SHOWN = 200
LEAD = (
    "Links whose forecast error doubled in the last full week, compared with the week before, and links between "
    "endpoints without data or without recent data. Weeks begin on Thursdays, UTC."
)
COLUMNS = (
    Column("source", "Source", link="address"),
    Column("address", "Address"),
    Column("sink", "Sink"),
    Column("times", "Error became", "factor"),
    Column("before", "Error, the week before", "factor"),
    Column("after", "Error, last week", "factor"),
    Column("p", "p", "number"),
    Column("transfers_before", "Transfers, the week before", "count"),
    Column("transfers_after", "Transfers, last week", "count"),
)
BLIND = (
    Column("source", "From"),
    Column("sink", "To"),
    Column("used", "Last used", "moment"),
    Column("age", "Age", "seconds"),
    Column("asked", "Measurement requested", "moment"),
)


class DriftQuery(Wire):
    """No parameters."""


class Drift(NamedTuple):
    """The mean errors |log(forecast / actual)| of a pair in two weeks, its transfers, and the p-value of the change."""

    pair_id: int
    before: float
    after: float
    transfers_before: int
    transfers_after: int
    p: float


async def make(archive: Archive, scope: Scope, query: DriftQuery) -> Report:
    """Create the report: drift for the caller's data; for admins, also blind spots."""
    now = time.time()
    begin = int(now // DAY) // WEEK * WEEK * DAY
    async with archive.database.read() as connection:
        daily = await Misses(connection, scope.subject).daily(begin - 2 * WEEK * DAY, begin)
        compared, found = drifts(daily, int(begin // DAY) - WEEK)
        links = await named(connection, {each.pair_id for each in found})
        behind = await unscored(connection, scope.subject)
    table = _drifted(found, links, compared)
    facts = [
        Fact("Links compared", compared, "count", f"with {FEWEST} transfers on {FEWEST_DAYS} days in both weeks"),
        Fact("Error doubled", len(found), "count"),
        Fact("Unlikely by chance", sum(each.p <= LIKELY for each in found), "count", f"p is {LIKELY:g} or less"),
        *behind,
    ]
    if scope.subject is not None:
        return Report("drift", "Drift and blind spots", LEAD, now, facts, tables=[table])
    never, stale, blind = await _blind(archive, now)
    facts += [
        Fact("Links never used", never, "count"),
        Fact("Links not used for a week", stale, "count"),
    ]
    return Report("drift", "Drift and blind spots", LEAD, now, facts, tables=[table, blind])


def drifts(daily: Iterable[Daily], middle: int) -> tuple[int, list[Drift]]:
    """Return the number of pairs that can be compared, and the pairs whose error doubled, by ascending p-value.

    :param daily: errors of two weeks, by pair and day
    :param middle: first day of the second week
    """
    weeks: dict[int, tuple[list[Daily], list[Daily]]] = defaultdict(lambda: ([], []))
    for each in daily:
        weeks[each.pair_id][each.day >= middle].append(each)
    enough = {pair: both for pair, both in weeks.items() if all(map(_enough, both))}
    found = [_drift(pair, *both) for pair, both in enough.items() if _doubled(*both)]
    return len(enough), sorted(found, key=lambda each: (each.p, -each.after / max(each.before, 1e-9)))


def _enough(week: Sequence[Daily]) -> bool:
    return len(week) >= FEWEST_DAYS and sum(each.transfers for each in week) >= FEWEST


def _mean(week: Sequence[Daily]) -> float:
    return math.fsum(each.error * each.transfers for each in week) / sum(each.transfers for each in week)


def _doubled(before: Sequence[Daily], after: Sequence[Daily]) -> bool:
    return _mean(after) >= max(2 * _mean(before), MATTERS)


def _drift(pair: int, before: Sequence[Daily], after: Sequence[Daily]) -> Drift:
    """Return the drift of a pair. Its p-value compares days, since transfers of the same day are not independent."""
    p = shifted([each.error for each in before], [each.error for each in after])
    first, second = (sum(each.transfers for each in week) for week in (before, after))
    return Drift(pair, _mean(before), _mean(after), first, second, p)


def _drifted(found: Sequence[Drift], links: Mapping[int, Pair], compared: int) -> Table:
    rows: list[tuple[Value, ...]] = [
        (
            links[each.pair_id].source,
            pair_page(links[each.pair_id]),
            links[each.pair_id].sink,
            each.after / each.before if each.before else None,
            math.exp(each.before),
            math.exp(each.after),
            round(each.p, 5),
            each.transfers_before,
            each.transfers_after,
        )
        for each in found[:SHOWN]
    ]
    if not compared:
        return Table("drift", "Forecasts that became worse", COLUMNS, rows, "Too few transfers to compare two weeks.")
    note = (
        "p is the probability that chance alone ranks the days of last week so high among those of both weeks "
        f"(Wilcoxon's rank sum test, exact). If nothing has changed, about {compared * LIKELY:,.1f} of {compared:,} "
        f"links still have a p of {LIKELY:g} or less."
    )
    return Table("drift", "Forecasts that became worse", COLUMNS, rows, note if rows else "No link's error doubled.")


async def _blind(archive: Archive, now: float) -> tuple[int, int, Table]:
    """Return the numbers of links never used, and not used for a week, and their table, longest unused first."""
    able = possible_links(placed.endpoint for placed in (await archive.places.map()).by_id.values())
    async with archive.database.read() as connection:
        probes = ProbeStore(connection)
        used, requested = await probes.used(able, now - STALE), await probes.requested()
    never = sum(link not in used for link in able)
    old = [link for link in able if used.get(link, 0.0) < now - STALE]
    old.sort(key=lambda link: (used.get(link, 0.0), link.source, link.sink))
    rows = [_row(link, used.get(link), requested, now) for link in old[:SHOWN]]
    probing = archive.settings.probing
    action = Action("Measure", "probes", ("source", "sink")) if probing else None
    note = _note(len(able), len(old), probing)
    return never, len(old) - never, Table("blind", "Blind spots", BLIND, rows, note, action=action)


def _row(
    link: EndpointLink, used: float | None, requested: Mapping[tuple[str, str], float], now: float
) -> tuple[Value, ...]:
    age = None if used is None else now - used
    return link.source, link.sink, used, age, requested.get((link.source, link.sink))


def _note(able: int, old: int, probing: Probing | None) -> str:
    if not able:
        return "No link can be measured: that takes two endpoints with a write priority."
    if not old:
        return f"All {able:,} links between endpoints were used in the last week."
    text = f"{able:,} links between endpoints can be measured."
    if probing is None:
        return f"{text} Measurements are off; the section [probing] of the configuration turns them on."
    most = f"{written(probing.bytes, 'bytes')}, {written(probing.seconds, 'seconds')} at most"
    return f"{text} A measurement moves {most}, while no task is running."
