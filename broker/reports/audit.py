"""Who changed what, and when."""

import time

from broker.models.access import AuditEntry
from broker.models.base import Wire
from broker.reports.archive import Archive, Scope
from broker.reports.document import Column, Report, Table
from broker.storage.access import Records

__all__ = ["Wanted", "make"]

PAGE = 200
COLUMNS = (
    Column("id", "Number", "count"),
    Column("at", "When", "moment"),
    Column("subject", "Who"),
    Column("action", "What"),
    Column("thing", "To what"),
)


class Wanted(Wire):
    """Those before this number, the newest unless given."""

    before: int | None = None


async def make(archive: Archive, scope: Scope, wanted: Wanted) -> Report:
    """The newest changes first; of admins' eyes only."""
    async with archive.database.read() as connection:
        entries = await Records(connection).audit(wanted.before, PAGE)
    table = Table("changes", "Changes", COLUMNS, [_row(each) for each in entries])
    return Report("audit", "Audit log", "Who changed what here, the newest first.", time.time(), tables=[table])


def _row(entry: AuditEntry) -> tuple[int, float, str, str, str]:
    return entry.id, entry.at, entry.subject, entry.action, entry.thing
