"""One transfer: its ranges over time, the forecasts for its sources, and the best shares in hindsight."""

import time
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from broker.errors import NotFound
from broker.models.base import Wire
from broker.models.decisions import SourcePart, StoredDecision
from broker.models.history import Pair
from broker.reports.archive import Archive, Scope
from broker.reports.charts import bars, gantt, lines
from broker.reports.document import Column, Fact, Figure, Report, Table, Value
from broker.reports.queries import pair_page
from broker.reports.tracing import incidents, rates
from broker.storage.decisions import DecisionStore

__all__ = ["TransferQuery", "make"]

STEPS = 40
"""Number of time steps in the figure of rates."""
SOURCE = Column("source", "Source", link="pair")
PAIR = Column("pair", "Pair")
CANDIDATES = (
    SOURCE,
    PAIR,
    Column("url", "Replica"),
    Column("p10", "Forecast p10", "rate"),
    Column("p50", "Forecast", "rate"),
    Column("p90", "Forecast p90", "rate"),
    Column("rate", "Actual", "rate"),
    Column("setup_expected", "Set-up expected", "seconds"),
    Column("setup_seconds", "Set-up", "seconds"),
    Column("start_seconds", "First possible byte", "seconds"),
    Column("flow_seconds", "Time of flow", "seconds"),
    Column("planned_bytes", "Planned", "bytes"),
    Column("bytes", "Brought", "bytes"),
    Column("best_bytes", "Best in hindsight", "bytes"),
    Column("seconds", "Busy", "seconds"),
    Column("outcome", "Outcome"),
    Column("error", "Error"),
    Column("reason", "Reason for the forecast"),
)
RANGES = (
    Column("source", "Source"),
    Column("asked", "Asked", "seconds"),
    Column("first", "First byte", "seconds"),
    Column("last", "Last byte", "seconds"),
    Column("over", "Over", "seconds"),
    Column("start", "From byte", "count"),
    Column("end", "To byte", "count"),
    Column("bytes", "Brought", "bytes"),
    Column("ending", "Ending"),
    Column("count", "Ranges", "count"),
)
RATES = (Column("at", "When", "moment"), Column("source", "Source"), Column("rate", "Rate", "rate"))
SHARES = (Column("source", "Source"), Column("share", "Share"), Column("bytes", "Bytes", "bytes"))
INCIDENTS = (
    Column("at", "At", "seconds"),
    Column("source", "Source"),
    Column("ending", "What"),
    Column("missing", "Bytes left", "bytes"),
    Column("by", "Delivered by"),
)


class TransferQuery(Wire):
    """The number of the decision of the transfer to show."""

    id: Annotated[int, Field(ge=0, lt=2**63, json_schema_extra={"hidden": True})]


async def make(archive: Archive, scope: Scope, query: TransferQuery) -> Report:
    """Create the report.

    :raises NotFound: when there is no such transfer, or the caller may not see it
    """
    async with archive.database.read() as connection:
        decision = await DecisionStore(connection).one(query.id, scope.subject)
    if decision is None:
        raise NotFound(f"there is no transfer {query.id}", "choose one from the list of decisions")
    about = decision.listed
    collects = about.kind == "collect"
    names = [each.url for each in decision.sources] if collects else _names(decision.sources)
    return Report(
        "transfer",
        f"{'Collection' if collects else 'Transfer'} of {about.thing}",
        "The ranges of each source over time, the rates, and the shares beside the best ones in hindsight. Seconds "
        "count from the beginning.",
        time.time(),
        _facts(decision),
        [_gantt(decision, names), _rates(decision, names), _shares(decision, names)],
        [_candidates(decision, names), _incidents(decision, names)],
    )


def _names(sources: Sequence[SourcePart]) -> list[str]:
    """Return a name for each candidate: its server, with a number if a server has several candidates."""
    names: list[str] = []
    for each in sources:
        same = sum(other.source == each.source for other in sources[: len(names)])
        names.append(f"{each.source} #{same + 1}" if same else each.source)
    return names


def _facts(decision: StoredDecision) -> list[Fact]:
    about = decision.listed
    best, planned = about.best_seconds, about.planned_seconds
    happened = [each.ending for each in incidents(decision.ranges)]
    unknown = f"without {about.unknown} candidates of unknown rate" if about.unknown else ""
    why = "" if best is not None else "not known: it failed, collected many files, or no source showed its rate"
    return [
        Fact("Outcome", about.outcome, "text", about.error or ""),
        Fact("Reason", about.rationale or "not stated", "text"),
        Fact("Strategy", about.strategy, "text"),
        Fact("Began", about.at, "moment", f"reported by {about.subject}"),
        Fact("Destination", about.sink or "not stated", "text"),
        Fact("Size", about.bytes, "bytes", _resumed(decision)),
        Fact("Took", about.seconds, "seconds", "with login and verification"),
        Fact("Until the last byte", about.fetch_seconds, "seconds"),
        Fact("Best in hindsight", best, "seconds", unknown or why),
        Fact("As planned", planned, "seconds", "the planned shares at the actual rates"),
        Fact("Best single source", about.single_seconds, "seconds", "in hindsight, alone"),
        Fact("Lost by forecasts", _less(planned, best), "seconds", "as planned, minus the best"),
        Fact("Lost by the strategy", _less(about.fetch_seconds, planned), "seconds", "below 0: faster than the plan"),
        *(Fact(label, happened.count(ending), "count") for label, ending in ENDINGS),
    ]


ENDINGS = (("Ranges taken over by others", "shortened"), ("Ranges that stalled", "stalled"), ("Faults", "failed"))


def _resumed(decision: StoredDecision) -> str:
    return "" if decision.moved == decision.listed.bytes else f"{decision.moved:,} bytes were new"


def _less(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _gantt(decision: StoredDecision, names: Sequence[str]) -> Figure:
    rows = [
        (
            names[each.source],
            *(each.asked, each.first, each.last, each.over, each.start, each.end, each.bytes),
            each.ending or "under way",
            each.count,
        )
        for each in decision.ranges
    ]
    note = ""
    if decision.range_count > len(rows):
        note = f"{decision.range_count:,} ranges, shown as {len(rows):,} by merging neighbours."
    table = Table("ranges", "Ranges", RANGES, rows, note)
    title = "Hops over time" if decision.listed.kind == "collect" else "Ranges of each source"
    return gantt("gantt", title, table, "source", "asked", "over", "ending")


def _rates(decision: StoredDecision, names: Sequence[str]) -> Figure:
    seconds = decision.listed.fetch_seconds
    found = rates(decision.ranges, len(names), seconds, STEPS)
    step = seconds / STEPS
    rows: list[Sequence[Value]] = [
        (decision.listed.at + (i + 0.5) * step, names[source], rate)
        for source, over_time in enumerate(found)
        if any(over_time)
        for i, rate in enumerate(over_time)
    ]
    return lines("rates", "Rate of each source", Table("rates", "Rates", RATES, rows), "at", "rate", "source")


def _shares(decision: StoredDecision, names: Sequence[str]) -> Figure:
    rows: list[Sequence[Value]] = []
    for i, each in enumerate(decision.sources):
        if each.planned_bytes is not None:
            rows.append((names[i], "planned", each.planned_bytes))
        rows.append((names[i], "delivered", each.bytes))
        if decision.shares:
            rows.append((names[i], "best", decision.shares[i]))
    table = Table("shares", "Shares", SHARES, rows)
    title = "Shares: planned, delivered, best in hindsight"
    return bars("shares", title, table, "source", "bytes", "share", stacked=False)


def _candidates(decision: StoredDecision, names: Sequence[str]) -> Table:
    rows = [
        (
            names[i],
            pair_page(Pair(each.source, decision.listed.sink)),
            each.url,
            *((each.rate.p10, each.rate.p50, each.rate.p90) if each.rate else (None, None, None)),
            each.bytes / each.flow_seconds if each.bytes and each.flow_seconds else None,
            *(each.setup_expected, each.setup_seconds, each.start_seconds, each.flow_seconds),
            *(each.planned_bytes, each.bytes, decision.shares[i] if decision.shares else None),
            *(each.seconds, each.outcome, each.error, each.reason),
        )
        for i, each in enumerate(decision.sources)
    ]
    return Table("candidates", "Candidates: forecasts and results", CANDIDATES, rows)


def _incidents(decision: StoredDecision, names: Sequence[str]) -> Table:
    rows = [
        (each.at, names[each.source], each.ending, each.missing, ", ".join(names[i] for i in each.by))
        for each in incidents(decision.ranges)
    ]
    note = "" if rows else "Every range came complete from its first source."
    return Table("incidents", "Steals, stalls and faults", INCIDENTS, rows, note)
