"""Monthly partitions of the observations, on PostgreSQL: created when needed, dropped when too old."""

from collections.abc import Iterable
from datetime import UTC, datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

__all__ = ["Months", "begin_of_month", "month_of"]

ALONE = "SELECT pg_advisory_xact_lock(hashtext('coget observations'))"
"""The lock that lets only one transaction at a time create or drop partitions."""


def month_of(moment: float) -> tuple[int, int]:
    """Return the year and month of a moment, in UTC.

    >>> month_of(0.0), month_of(1.7e9)
    ((1970, 1), (2023, 11))
    """
    at = datetime.fromtimestamp(moment, UTC)
    return at.year, at.month


def _begin(year: int, month: int) -> float:
    return datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1, tzinfo=UTC).timestamp()


def _name(year: int, month: int) -> str:
    return f"observations_y{year:04}m{month:02}"


class Months:
    """The partitions of one database, with a memory of those known to exist."""

    def __init__(self) -> None:
        self._made: set[tuple[int, int]] = set()

    def lacking(self, moments: Iterable[float]) -> set[tuple[int, int]]:
        """Return the months that are not known to have a partition."""
        return {month_of(moment) for moment in moments} - self._made

    async def make(self, connection: AsyncConnection, months: Iterable[tuple[int, int]]) -> None:
        """Create the partitions of these months; existing ones stay."""
        # Two transactions that create the same partition at once would fail on the catalogue's index.
        await connection.execute(text(ALONE))
        # A report locks pairs and then observations; a new partition would lock them the other way round.
        await connection.execute(text("LOCK TABLE pairs IN SHARE ROW EXCLUSIVE MODE"))
        for year, month in sorted(months):
            await connection.execute(
                text(
                    f"CREATE TABLE IF NOT EXISTS {_name(year, month)} PARTITION OF observations "
                    f"FOR VALUES FROM ({_begin(year, month)!r}) TO ({_begin(year, month + 1)!r})"
                )
            )

    def forget(self) -> None:
        """Forget which partitions exist, as another process may have dropped some."""
        self._made.clear()

    def made(self, months: Iterable[tuple[int, int]]) -> None:
        """Remember that these partitions exist, once their creation is committed."""
        self._made.update(months)

    async def drop_before(self, connection: AsyncConnection, moment: float) -> int:
        """Drop partitions that end before a moment; return how many. Call `forget` once this is committed."""
        await connection.execute(text(ALONE))
        query = text("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'observations'::regclass")
        names = [name for (name,) in await connection.execute(query)]
        old = [name for name in names if name < _name(*month_of(moment))]
        for name in old:
            await connection.execute(text(f"DROP TABLE {name}"))
        return len(old)


def begin_of_month(moment: float) -> float:
    """Return the time at which the month of a moment began; remaining partitions begin then or later."""
    return _begin(*month_of(moment))
