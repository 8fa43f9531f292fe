"""The log of decisions: time, reason and outcome of each."""

import time
from collections.abc import Sequence
from typing import Annotated, Literal
from urllib.parse import urlencode

from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.base import Wire
from broker.models.decisions import DecisionSummary
from broker.models.names import Remark, Who
from broker.reports.archive import Archive, Scope
from broker.reports.document import Column, Report, ReportLink, Table, Value
from broker.reports.queries import Day, task_page, transfer_page
from broker.storage import decisions as stored
from broker.storage.collections import CollectionStore
from broker.storage.lanes import LaneStore

__all__ = ["COLUMNS", "DecisionsQuery", "make", "row"]

PAGE = 100
COLUMNS = (
    Column("at", "When", "moment"),
    Column("thing", "What", link="transfer"),
    Column("transfer", "Transfer"),
    Column("sink", "To"),
    Column("bytes", "Size", "bytes"),
    Column("strategy", "Strategy"),
    Column("rationale", "Reason"),
    Column("outcome", "Outcome"),
    Column("error", "Error"),
    Column("seconds", "Took", "seconds"),
    Column("regret", "Over the best time", "seconds"),
    Column("subject", "User"),
    Column("task", "Task", link="task_page"),
    Column("task_page", "Page of the task"),
)
TUNINGS = (
    Column("at", "When", "moment"),
    Column("source", "From"),
    Column("sink", "To"),
    Column("concurrency", "Lanes", "count"),
    Column("step", "Change", "number"),
    Column("rate", "Rate seen", "rate"),
    Column("failures", "Failures seen", "share"),
    Column("reason", "Reason"),
)


class DecisionsQuery(Wire):
    """Search parameters: `text` is searched in names, sinks, sources and reasons; only admins may use `subject`.

    `before` is the number of a decision, for a page of older ones.
    """

    text: Annotated[Remark | None, Field(description="Text in the name, the source, the sink or the reason.")] = None
    subject: Annotated[Who | None, Field(title="User", description="The full name; for admins.")] = None
    outcome: Literal["ok", "failed"] | None = None
    strategy: Remark | None = None
    since: Day | None = None
    until: Day | None = None
    before: Annotated[int | None, Field(ge=0, lt=2**63, json_schema_extra={"hidden": True})] = None


async def make(archive: Archive, scope: Scope, query: DecisionsQuery) -> Report:
    """Create the report, with the newest decisions first; only admins see the decisions of other users."""
    subject = query.subject if scope.subject is None else scope.subject
    conditions = query.model_dump(exclude={"subject"})
    tuned: list[Sequence[Value]] = []
    async with archive.database.read() as connection:
        page = await stored.DecisionStore(connection).page(stored.DecisionFilter(subject=subject, **conditions), PAGE)
        if scope.subject is None and query.before is None:
            tuned = await _tuned(connection, query)
    tables = [Table("decisions", "Decisions", COLUMNS, [row(each) for each in page.decisions], _note(page, query))]
    if scope.subject is None and query.before is None:
        note = "" if tuned else "No change of lanes matches."
        tables.append(Table("lanes", "Lanes between collections", TUNINGS, tuned, note))
    return Report(
        "decisions",
        "Decisions",
        "Sources of transfers and the reasons for them; each decision links to its transfer, range by range.",
        time.time(),
        tables=tables,
        links=[ReportLink("Older ones", _older(page.next, query))] if page.next else [],
    )


def _older(before: int | None, query: DecisionsQuery) -> str:
    return f"decisions?{urlencode({**query.model_dump(exclude_none=True), 'before': before})}"


def _note(page: stored.DecisionPage, query: DecisionsQuery) -> str:
    if page.next is not None and len(page.decisions) < PAGE:
        return f"The newest {stored.LOOKED:,} decisions were searched; follow the link to search older ones."
    if page.next is not None:
        return f"The newest {PAGE} of these."
    return "" if page.decisions else "No decision matches."


def row(each: DecisionSummary) -> tuple[Value, ...]:
    """Return a decision as a row with the columns `COLUMNS`."""
    return (
        each.at,
        each.thing,
        transfer_page(each.id),
        each.sink,
        each.bytes,
        each.strategy,
        each.rationale,
        each.outcome,
        each.error,
        each.seconds,
        None if each.best_seconds is None else each.fetch_seconds - each.best_seconds,
        each.subject,
        each.task_id,
        task_page(each.task_id) if each.task_id else None,
    )


async def _tuned(connection: AsyncConnection, query: DecisionsQuery) -> list[Sequence[Value]]:
    """Return the changes to numbers of lanes, with the names of their collections."""
    found = await LaneStore(connection).tunings(query.text, query.since, query.until, PAGE)
    ends = {end for each in found for end in each.pair}
    names = {str(each.id): each.name for each in await CollectionStore(connection).all(ends)} if ends else {}
    return [
        (
            *(each.at, names.get(each.pair.source, each.pair.source)),
            *(names.get(each.pair.destination, each.pair.destination), each.concurrency, each.step),
            *(each.rate, each.failures, each.reason),
        )
        for each in found
    ]
