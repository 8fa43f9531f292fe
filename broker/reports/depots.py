"""Depots: what users gained and lost with them, and what to do next."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.base import Wire
from broker.reports.archive import Archive, Scope
from broker.reports.charts import bars, intervals
from broker.reports.depot_advice import (
    MOST_ALONE,
    MOST_EACH,
    Moved,
    UnmeasuredDepot,
    advice,
    findings,
    shown_route,
    users,
    worth_using,
)
from broker.reports.depot_gains import (
    SPAN,
    DepotRecord,
    GainSpread,
    MatchedDay,
    RouteGain,
    compared,
    cost_of,
    depots_of,
    matched,
    records,
    spread_of,
    usage_of,
)
from broker.reports.document import Column, Fact, Figure, Report, Table, Value
from broker.reports.queries import Day
from broker.reports.significance import ALPHA, FEWEST
from broker.reports.words import written
from broker.storage.depots import DepotStore
from broker.storage.routes import RouteStore, UsedRoutes
from broker.storage.sums import SumStore
from coalloc.model.routes import DIRECTLY

__all__ = ["DepotsQuery", "make"]

DAY = 86_400.0
MOST = 30_000
"""Most measured uses that the report evaluates; if there are more, it takes a sample."""
OTHERS = 50
"""Most depots in the report that are not registered."""
PAIRS = 400
"""Most pairs in the table of all pairs."""
ENDS = 20
"""Most pairs in the tables of the largest gains and losses."""
ASKED = 50
"""Most pairs whose transfers are looked up."""
NOTHING = (
    "No use of a route was measured in this period. Transfers with --via auto measure the direct route and those over "
    "depots, and report them to the broker; coget probe --via auto measures all of them at once."
)
CHANCE = (
    "p is the probability that chance alone makes so great a difference, corrected for the number of pairs. If it is "
    f"below {ALPHA} and most users agree, the depots are clearly faster or slower. One day of one user is one "
    f"observation; more than half of a pair's users need {FEWEST} of them, in {SPAN} days or more."
)
NEXT = (Column("action", "What to do"), Column("reason", "Why"))
USES = (
    Column("depot", "Depot"),
    Column("registered", "Registered"),
    Column("uses", "Measured uses", "count"),
    Column("users", "Users", "count"),
    Column("sites", "Sites", "count"),
    Column("servers", "Servers", "count"),
    Column("bytes", "Bytes", "bytes"),
    Column("share", "Share of all bytes", "share"),
)
GAINS = (
    Column("depot", "Depot"),
    Column("pairs", "Pairs", "count"),
    Column("gain", "Gain", "factor"),
    Column("low", "From", "factor"),
    Column("high", "To", "factor"),
    Column("faster", "Clearly faster", "share"),
    Column("unclear", "Unclear", "share"),
    Column("slower", "Clearly slower", "share"),
    Column("saved", "Time saved", "seconds"),
    Column("lost", "Time lost", "seconds"),
    Column("faster_uses", "Faster uses", "count"),
    Column("slower_uses", "Slower uses", "count"),
    Column("lower_quartile", "Lower quartile", "factor"),
    Column("upper_quartile", "Upper quartile", "factor"),
)
COMPARED = (
    Column("site", "Site"),
    Column("server", "Server"),
    Column("route", "Over"),
    Column("verdict", "Verdict"),
    Column("gain", "Gain", "factor"),
    Column("low", "From", "factor"),
    Column("high", "To", "factor"),
    Column("days", "Days", "count"),
    Column("won", "Days faster", "count"),
    Column("lost", "Days slower", "count"),
    Column("p", "p", "number"),
    Column("users", "Users", "count"),
)
DRAWN = (Column("pair", "Pair"), *COMPARED[3:])


class DepotsQuery(Wire):
    """A number of days (0 for all stored data), or a period."""

    days: Annotated[Literal[0, 7, 28, 90, 365], BeforeValidator(int)] = 28
    since: Day | None = None
    until: Day | None = None

    def period(self, now: float) -> tuple[float, float]:
        """Return the start of the first day (UTC), and the end of the period, in epoch seconds."""
        until = now if self.until is None else self.until
        since = until - self.days * DAY if self.days else 0.0
        return (since if self.since is None else self.since) // DAY * DAY, until


class DepotData(NamedTuple):
    """The measured uses, the names of registered depots by HOST:PORT, and the gains of all pairs."""

    used: UsedRoutes
    names: Mapping[str, str]
    both: Sequence[MatchedDay]
    gains: Sequence[RouteGain]

    @property
    def sample(self) -> bool:
        """Return whether the uses are a sample."""
        return self.used.total > self.used.uses


async def make(archive: Archive, scope: Scope, query: DepotsQuery) -> Report:
    """Create the report; for users who are not admins, from their own measurements."""
    now = time.time()
    since, until = query.period(now)
    async with archive.database.read() as connection:
        registered = await DepotStore(connection).all()
        used = await RouteStore(connection).used(scope.subject, since, until, MOST)
    names: dict[str, str] = {}
    for name, each in registered.items():
        names.setdefault(str(each.depot.place), name)
    known = await asyncio.to_thread(_compared, used, names)
    wanted = {(each.pair.site, each.pair.server) for each in worth_using(known.gains, names)[:ASKED]}
    async with archive.database.read() as connection:
        transfers = await _moved(connection, scope.subject, wanted, used, (since, until)) if wanted else {}
    return await asyncio.to_thread(_report, known, transfers, scope, now)


async def _moved(
    connection: AsyncConnection,
    subject: str | None,
    wanted: Collection[tuple[str, str]],
    used: UsedRoutes,
    period: tuple[float, float],
) -> dict[tuple[str, str], Moved]:
    """Return the transfers by site and server, of each reporter from the day after its oldest stored measurement.

    Older transfers may have used depots, too: of a reporter with very many measurements, only the newest are stored.
    """
    since, until = period
    oldest = await RouteStore(connection).oldest({each.reporter for each in used.days})
    starts = {reporter: max(int(since // DAY), int(ended // DAY) + 1) for reporter, ended in oldest.items()}
    sums = await SumStore(connection, subject).read_from(wanted, starts, math.ceil(until / DAY))
    over = await RouteStore(connection).over_depots(wanted, starts, until)
    return {place: Moved(*both, over.get(place, 0)) for place, both in sums.items()}


def _compared(used: UsedRoutes, names: Mapping[str, str]) -> DepotData:
    both = matched(used.days)
    return DepotData(used, names, both, compared(both))


def _report(known: DepotData, transfers: Mapping[tuple[str, str], Moved], scope: Scope, now: float) -> Report:
    days, names = known.used.days, known.names
    found = records(days, known.both, known.gains, list(names), OTHERS)
    if scope.subject is not None:
        found = {depot: each for depot, each in found.items() if each.usage.uses}
    return Report(
        "depots",
        "Depots",
        "The time of small files (1 MiB, with the opening of the session) over depots, beside the direct route on the "
        "same days. A gain of 2 means half the time, a gain below 1 a loss. A pair is a route over depots from a "
        "server to a site.",
        now,
        _facts(known),
        [_drawn(known.gains, names), _bytes(found, names)],
        [
            _next(found, known, transfers, admin=scope.subject is None),
            _uses(found, known),
            _gains(found, names),
            *_ends(known.gains, names),
        ],
    )


def _facts(known: DepotData) -> list[Fact]:
    whole, over = usage_of(known.used.days), usage_of([each for each in known.used.days if each.route != DIRECTLY])
    spread, cost = spread_of(known.gains), cost_of(known.both)
    sample = f"a sample of {known.used.total:,}: some servers of each user, with all their days" if known.sample else ""
    few = "the direct route and one over depots were never used on the same day"
    return [
        Fact("Measured uses of routes", whole.uses, "count", sample or f"by {users(whole.reporters)}"),
        Fact("Bytes over depots", over.bytes / whole.bytes if whole.bytes else None, "share", _of_all(over.bytes)),
        Fact("Gain of all depots", spread and spread.quartiles[1], "factor", _interval(spread) if spread else few),
        Fact("Clearly faster", spread and spread.shares["faster"], "share", _of_pairs(spread, "faster")),
        Fact("Clearly slower", spread and spread.shares["slower"], "share", _of_pairs(spread, "slower")),
        Fact("Time saved", cost.saved_seconds, "seconds", f"{cost.faster:,} uses were faster than the direct route"),
        Fact("Time lost", cost.lost_seconds, "seconds", f"{cost.slower:,} uses were slower"),
    ]


def _of_all(nbytes: int) -> str:
    return f"{written(nbytes, 'bytes')} of all measured bytes"


def _interval(spread: GainSpread) -> str:
    low, _, high = spread.quartiles
    text = f"median of the pairs; half of them are between {written(low, 'factor')} and {written(high, 'factor')}"
    if spread.interval is None:
        return f"{text}; too few pairs for an interval"
    return f"{text}; 95 % interval {written(spread.interval[0], 'factor')} to {written(spread.interval[1], 'factor')}"


def _of_pairs(spread: GainSpread | None, verdict: Literal["faster", "slower"]) -> str:
    if spread is None:
        return ""
    return f"{spread.counts[verdict]:,} of {sum(spread.counts.values()):,} pairs; each user has one vote"


def _drawn(gains: Sequence[RouteGain], names: Mapping[str, str]) -> Figure:
    """Return the figure of the gains by pair, with the table of the pairs that have the most data."""
    most = sorted(gains, key=lambda each: (-len(each.reporters), -each.days, each.pair))[:PAIRS]
    schemes = Counter(host for _, host in {(each.pair.scheme, each.pair.host) for each in most})
    rows = []
    for each in sorted(most, key=lambda each: (-each.gain, each.pair)):
        site, server, route, *values = _pair(each, names)
        called = server if schemes[each.pair.host] > 1 else each.pair.host
        rows.append((f"{site}: {called}, {route}", *values))
    note = f"The {PAIRS} of {len(gains):,} pairs with the most users and days." if len(gains) > PAIRS else ""
    table = Table("all", "All pairs", DRAWN, rows, note or (CHANCE if rows else NOTHING))
    return intervals("gains-by-pair", "Gain by pair", table, "pair", "gain", "low", "high", "verdict")


def _bytes(found: Mapping[str, DepotRecord], names: Mapping[str, str]) -> Figure:
    rows = [(names.get(depot, depot), each.usage.bytes) for depot, each in found.items() if each.usage.bytes]
    columns = (USES[0], Column("bytes", "Bytes", "bytes"))
    rows.sort(key=lambda row: (-row[1], row[0]))
    return bars("carried", "Bytes by depot", Table("bytes", "Bytes by depot", columns, rows), "depot", "bytes")


def _pair(each: RouteGain, names: Mapping[str, str]) -> tuple[Value, ...]:
    low, high = each.interval or (None, None)
    verdict = each.verdict if each.p is not None else "too few data"
    return (
        each.pair.site or "unknown",
        each.pair.server,
        shown_route(each.pair.route, names),
        verdict,
        *(each.gain, low, high),
        *(each.days, each.won, each.lost, None if each.p is None else round(each.p, 5)),
        len(each.reporters),
    )


def _next(
    found: Mapping[str, DepotRecord], known: DepotData, transfers: Mapping[tuple[str, str], Moved], admin: bool
) -> Table:
    registered = {depot: each for depot, each in found.items() if depot in known.names}
    alone = MOST_ALONE if admin else MOST_EACH  # users see their own measurements only
    kinds = findings(registered, known.gains, transfers, alone) if known.used.days else []
    if known.sample:
        kinds = [each for each in kinds if not isinstance(each, UnmeasuredDepot)]  # others may have measured it
    rows = [advice(each, known.names, admin) for each in kinds]
    note = "" if rows else "Nothing: no registered depot is clearly slower, and none that is clearly faster is unused."
    return Table("next", "What to do next", NEXT, rows, note if known.used.days else NOTHING)


def _uses(found: Mapping[str, DepotRecord], known: DepotData) -> Table:
    whole = sum(each.bytes for each in known.used.days)
    rows = [
        (
            known.names.get(depot, depot),
            depot in known.names,
            *each.usage,
            each.usage.bytes / whole if whole else None,
        )
        for depot, each in found.items()
    ]
    note = "A route over several depots counts for each of them."
    if known.sample:
        note += " All numbers are those of the sample."
    routes = {each.route for each in known.used.days}
    others = {depot for route in routes for depot in depots_of(route)} - found.keys()
    if others:
        note += f" {len(others):,} depots that are not registered, and have fewer users or uses, are left out."
    return Table("uses", "Uses by depot", USES, rows, note if rows else "No depot is registered or was used.")


def _gains(found: Mapping[str, DepotRecord], names: Mapping[str, str]) -> Table:
    rows: list[Sequence[Value]] = []
    for depot, each in found.items():
        if each.spread is not None:
            low, middle, high = each.spread.quartiles
            rows.append(
                (
                    names.get(depot, depot),
                    len(each.gains),
                    *(middle, *(each.spread.interval or (None, None))),
                    *each.spread.shares.values(),
                    *(each.cost.saved_seconds, each.cost.lost_seconds, each.cost.faster, each.cost.slower),
                    *(low, high),
                )
            )
    note = (
        "Medians and shares of pairs, in which each user has one vote, divided among the user's pairs. Times are those "
        "of the first MiB; they also differ by chance."
    )
    return Table("gains", "Gain and cost by depot", GAINS, rows, note if rows else NOTHING)


def _ends(gains: Sequence[RouteGain], names: Mapping[str, str]) -> list[Table]:
    """Return the tables of the pairs with the largest gains and losses; clear ones come first."""
    order = sorted(gains, key=lambda each: (each.verdict == "unclear", -each.gain, each.pair))
    best = [each for each in order if each.gain > 1][:ENDS]
    order.sort(key=lambda each: (each.verdict == "unclear", each.gain, each.pair))
    worst = [each for each in order if each.gain < 1][:ENDS]
    return [
        Table(name, title, COMPARED, [_pair(each, names) for each in some], CHANCE if some else none)
        for name, title, some, none in (
            ("best", "Largest gains", best, "No pair gained."),
            ("worst", "Largest losses", worst, "No pair lost."),
        )
    ]
