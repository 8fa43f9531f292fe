"""Rows for a subject in each table that contains subjects, as in the database of an older broker."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

__all__ = ["RENAMED", "columns", "fill", "found", "new_name"]

MARKED = ("subject", "owner", "principal", "made_by", "modified_by", "by", "canceled")
"""Names of columns that contain a subject."""
FIRST = ("sites", "endpoints", "datasets", "replicas", "pairs", "collections", "workers", "tasks", "clients", "tokens")
"""Tables to which others refer, so that they are filled first."""
RENAMED = {"voices": "reporters", "asides": "ignored_subjects", "doubts": "bad_replica_reports"}
"""Tables that a later version renames, with their new names."""
PARTS = "observations_"
PARTITION = "CREATE TABLE observations_first PARTITION OF observations FOR VALUES FROM (0) TO (10000)"


def new_name(column: str) -> str:
    """Return the present name (TABLE.COLUMN) of a column of an older version."""
    table, _, name = column.partition(".")
    return f"{RENAMED.get(table, table)}.{name}"


def columns(connection: sa.Connection) -> list[sa.Column[Any]]:
    """Return all columns of a database that contain subjects."""
    known = sa.MetaData()
    known.reflect(connection)
    tables = [each for each in known.sorted_tables if not each.name.startswith(PARTS)]
    named = [column for table in tables for column in table.columns if column.name in MARKED]
    named += [known.tables["clients"].c.name]
    return [column for column in named if column.table.name not in ("locks", "alembic_version")]


def fill(connection: sa.Connection, subjects: Sequence[str], kind: str) -> None:
    """Add a row for each subject to each table that contains subjects.

    :param kind: kind of the subjects' tokens; with `token` (issued by an admin), the clients have the subjects' names
    """
    with_subject = {column.table.name: column.table for column in columns(connection)}
    known = next(iter(with_subject.values())).metadata.tables
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(PARTITION))
    for name in (*FIRST, *sorted(with_subject.keys() - set(FIRST))):
        rows = [
            {column.name: _value(column, subject, number, kind) for column in known[name].columns}
            for number, subject in enumerate(subjects, 1000)  # numbers that no sequence has reached
        ]
        connection.execute(sa.insert(known[name]), rows)


def _value(column: sa.Column[Any], subject: str, number: int, kind: str) -> Any:
    fixed = {"principal_type": "identity", "role": "transfer", "kind": kind, "status": "ACTIVE", "action": "put"}
    if column.table.name == "clients" and column.name in ("name", "role"):
        return {"name": (str(number), subject), "role": (None, "transfer")}[column.name][kind == "token"]
    if column.name in MARKED:
        return subject
    if column.name in ("parent_id", "issuer_id", "client_id", "expires_at", "revoked_at", "token_id"):
        return None
    if column.name in fixed:
        return "gridftp" if column.table.name == "collections" and column.name == "kind" else fixed[column.name]
    if column.name == "permissions":
        return "r"
    if isinstance(column.type, sa.Boolean):
        return False
    if isinstance(column.type, sa.Text | sa.String):
        return str(number)
    return number


def found(connection: sa.Connection, subject: str) -> set[str]:
    """Return the names (TABLE.COLUMN) of all text columns that contain this subject."""
    known = sa.MetaData()
    known.reflect(connection)
    tables = [each for each in known.sorted_tables if not each.name.startswith(PARTS)]
    every = [column for table in tables for column in table.columns]
    texts = [column for column in every if isinstance(column.type, sa.Text | sa.String)]
    there = {each: sa.select(sa.literal(1)).where(each == subject).limit(1) for each in texts}
    return {f"{each.table.name}.{each.name}" for each, asked in there.items() if connection.execute(asked).first()}
