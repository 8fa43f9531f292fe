"""What the tables have in common."""

from sqlalchemy import BigInteger, Double, Integer, MetaData, Text
from sqlalchemy.dialects import postgresql

__all__ = ["HELD", "ID", "METADATA", "MOMENT", "NAME", "TOLD"]

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)
ID = BigInteger().with_variant(Integer(), "sqlite")
"""SQLite numbers rows by itself only in a column called INTEGER."""
MOMENT: Double[float] = Double()
NAME = Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
"""Ordered by its characters, in both databases: pages and prefixes are ranges of an index."""
HELD = {"subject": "held"}
"""Marks a column with the subject to whom the row belongs, or to whom it gives something."""
TOLD = {"subject": "told"}
"""Marks a column with the subject of whom the row tells what they did: the broker itself, too."""
