"""Metadata and column types that all tables share."""

from sqlalchemy import BigInteger, Double, Integer, MetaData, Text
from sqlalchemy.dialects import postgresql

__all__ = ["ACTOR", "HELD", "ID", "METADATA", "MOMENT", "NAME"]

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)
ID = BigInteger().with_variant(Integer(), "sqlite")
"""An automatic row number; SQLite assigns one only to a column of type INTEGER."""
MOMENT: Double[float] = Double()
NAME = Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
"""A name that both databases sort by code points, so that pages and prefixes are ranges of an index."""
HELD = {"subject": "held"}
"""The mark of a column with the subject that owns the row, or gets a right from it."""
ACTOR = {"subject": "actor"}
"""The mark of a column with the subject whose action the row records, possibly the broker itself."""
