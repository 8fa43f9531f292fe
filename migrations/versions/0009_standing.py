"""The role and token with which each task was submitted; one form for principals in access rules.

If two rules of one path named the same user in different forms, they are merged, with the narrower permission. Both the
audit log and the program's log list the merged rules.
"""

import logging
import time
from collections import defaultdict
from typing import Any
from uuid import UUID, uuid5

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
SPACE = UUID("6f0b42b6-4c3e-5d0f-9d35-7d0b7c1f1a52")
ROLES = ("reader", "transfer", "curator", "admin")
log = logging.getLogger(__name__)


def _table(name: str, *columns: str) -> sa.TableClause:
    return sa.table(name, *(sa.column(each) for each in columns))


tasks = _table("tasks", "owner", "role")
tokens = _table("tokens", "subject", "role", "kind")
RULE = ("id", "collection_id", "principal_type", "principal", "path", "permissions", "created_at")
rules = _table("access_rules", *RULE)
identities = _table("identities", "id", "subject")
audit = _table("audit", "at", "subject", "action", "thing")


def upgrade() -> None:
    op.add_column("tasks", sa.Column("role", sa.Text, nullable=False, server_default="transfer"))
    op.add_column("tasks", sa.Column("token_id", ID))
    _roles()
    _rules()


def _roles() -> None:
    """Give existing tasks the highest role of their owner's tokens, at least `transfer`."""
    connection = op.get_bind()
    most: dict[str, str] = {}
    for row in connection.execute(sa.select(tokens.c.subject, tokens.c.role).where(tokens.c.kind == "token")):
        most[row.subject] = max(row.role, most.get(row.subject, "transfer"), key=ROLES.index)
    for subject, role in most.items():
        connection.execute(sa.update(tasks).where(tasks.c.owner == subject).values(role=role))


def _rules() -> None:
    connection = op.get_bind()
    known = {row.id: row.subject for row in connection.execute(sa.select(identities))}
    same: defaultdict[tuple[str, str, str], list[Any]] = defaultdict(list)
    every = sa.select(rules).where(rules.c.principal_type == "identity")
    for row in connection.execute(every.order_by(rules.c.created_at, rules.c.id)):
        same[row.collection_id, row.path, _number(row.principal)].append(row)
    for (collection, path, number), (first, *others) in same.items():
        least = min((each.permissions for each in (first, *others)), key=len)
        for each in others:
            connection.execute(sa.delete(rules).where(rules.c.id == each.id))
            was = f"{each.principal} with {each.permissions}"
            said = f"{collection} {path}: {least} for {first.principal}, merged with the rule for {was}"
            log.warning("two rules of one user were merged: %s", said)
            note = {"at": time.time(), "subject": "coget-broker", "action": "merge rules", "thing": said}
            connection.execute(sa.insert(audit).values(note))
        named = known.get(number, number if _told(first.principal) else first.principal)
        connection.execute(sa.update(rules).where(rules.c.id == first.id).values(principal=named, permissions=least))


def _told(principal: str) -> str | None:
    try:
        return str(UUID(principal))
    except ValueError:
        return None


def _number(principal: str) -> str:
    return _told(principal) or str(uuid5(SPACE, principal))
