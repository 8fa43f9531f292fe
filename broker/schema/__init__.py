"""The tables, the same for SQLite and PostgreSQL. Alembic's versions in `migrations` create them.

Moments are seconds since the epoch in double precision, by which both databases can sort and partition.
"""

from broker.schema import access, catalogue, collections, guarantees, history, reports, tasks, timers
from broker.schema.base import METADATA

__all__ = ["METADATA", "access", "catalogue", "collections", "guarantees", "history", "reports", "tasks", "timers"]
