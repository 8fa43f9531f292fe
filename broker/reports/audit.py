"""The audit log: each change, its author and its time."""

import time
from typing import Annotated
from urllib.parse import urlencode

from pydantic import Field

from broker.models.base import Wire
from broker.models.callers import AuditEntry
from broker.models.subjects import LONGEST
from broker.reports.archive import Archive, Scope
from broker.reports.document import Column, Report, ReportLink, Table
from broker.storage.tokens import TokenStore

__all__ = ["AuditQuery", "make"]

PAGE = 200
COLUMNS = (
    Column("id", "Number", "count"),
    Column("at", "When", "moment"),
    Column("subject", "User"),
    Column("action", "Action"),
    Column("thing", "Object"),
)
Number = Annotated[int | None, Field(ge=0, lt=2**63, json_schema_extra={"hidden": True})]
Exactly = Annotated[str | None, Field(max_length=LONGEST)]


class AuditQuery(Wire):
    """A selection of changes: by one subject, of one action, before or after a number; by default the newest."""

    subject: Annotated[Exactly, Field(title="User", description="The full name.")] = None
    action: Annotated[Exactly, Field(title="Action", description="A value of this column.")] = None
    before: Number = None
    after: Number = None


async def make(archive: Archive, scope: Scope, query: AuditQuery) -> Report:
    """Create the report, with the newest changes first; only admins may see it."""
    async with archive.database.read() as connection:
        found = await TokenStore(connection).changes(PAGE + 1, **query.model_dump())
    entries = found[-PAGE:] if query.after is not None else found[:PAGE]
    table = Table("changes", "Changes", COLUMNS, [_row(each) for each in entries])
    lead = "All changes on this broker, the newest first."
    links = _links(query, entries, more=len(found) > PAGE)
    return Report("audit", "Audit log", lead, time.time(), tables=[table], links=links)


def _row(entry: AuditEntry) -> tuple[int, float, str, str, str]:
    return entry.id, entry.at, entry.subject, entry.action, entry.thing


def _links(query: AuditQuery, entries: list[AuditEntry], more: bool) -> list[ReportLink]:
    """Return links to newer and older changes, as far as there may be any."""
    if not entries:
        return [ReportLink("The newest", _address(query))] if query.before is not None else []
    links = []
    if query.before is not None or (query.after is not None and more):
        links.append(ReportLink("Newer", _address(query, after=entries[0].id)))
    if query.after is not None or more:
        links.append(ReportLink("Older", _address(query, before=entries[-1].id)))
    return links


def _address(query: AuditQuery, **place: int) -> str:
    parameters = query.model_dump(include={"subject", "action"}, exclude_none=True) | place
    return f"audit?{urlencode(parameters)}" if parameters else "audit"
