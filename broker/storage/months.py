"""Monthly partitions of the observations on PostgreSQL."""

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
    """The partitions of one database, with a cache of the existing ones."""

    def __init__(self) -> None:
        self._made: set[tuple[int, int]] = set()

    def lacking(self, moments: Iterable[float]) -> set[tuple[int, int]]:
        """Return the months that are not known to have a partition."""
        return {month_of(moment) for moment in moments} - self._made

    async def make(self, connection: AsyncConnection, months: Iterable[tuple[int, int]]) -> None:
        """Create the missing partitions of some months."""
        # two transactions that create the same partition would fail on an index of PostgreSQL's catalogue
        await connection.execute(text(ALONE))
        # reports lock pairs before observations; a new partition would lock observations first
        await connection.execute(text("LOCK TABLE pairs IN SHARE ROW EXCLUSIVE MODE"))
        for year, month in sorted(months):
            await connection.execute(
                text(
                    f"CREATE TABLE IF NOT EXISTS {_name(year, month)} PARTITION OF observations "
                    f"FOR VALUES FROM ({_begin(year, month)!r}) TO ({_begin(year, month + 1)!r})"
                )
            )

    def forget(self) -> None:
        """Clear the cache, because another process may have dropped partitions."""
        self._made.clear()

    def made(self, months: Iterable[tuple[int, int]]) -> None:
        """Add partitions to the cache, after their creation is committed."""
        self._made.update(months)

    async def drop_before(self, connection: AsyncConnection, moment: float) -> int:
        """Drop the partitions of months before that of `moment`; return their number. Call `forget` when committed."""
        await connection.execute(text(ALONE))
        query = text("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'observations'::regclass")
        names = [name for (name,) in await connection.execute(query)]
        old = [name for name in names if name < _name(*month_of(moment))]
        for name in old:
            await connection.execute(text(f"DROP TABLE {name}"))
        return len(old)


def begin_of_month(moment: float) -> float:
    """Return the start of the month of a moment, in epoch seconds; partitions from there on are kept."""
    return _begin(*month_of(moment))
