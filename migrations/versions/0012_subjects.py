"""Subjects that contain the whole URL of the issuer, not only its host.

Subjects whose issuer is known are renamed; the others are locked, and listed in the audit log. UUIDs do not change:
subjects that `identities` lacks are added to it, with the UUID that programs have seen. Each subject gets a unique new
name.
"""

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import quote, urlsplit
from uuid import UUID, uuid5

import sqlalchemy as sa
from alembic import context, op

from broker.errors import Invalid

revision = "0012"
down_revision = "0011"

SPACE = UUID("6f0b42b6-4c3e-5d0f-9d35-7d0b7c1f1a52")
ALL = sa.true()
HELD = {
    ("tokens", "subject"): ALL,
    ("identities", "subject"): ALL,
    ("collections", "owner"): ALL,
    ("access_rules", "principal"): sa.column("principal_type") == "identity",
    ("bookmarks", "owner"): ALL,
    ("pause_rules", "subject"): ALL,
    ("tasks", "owner"): ALL,
    ("lanes", "owner"): ALL,
    ("clients", "name"): sa.column("role").is_not(None),
}
"""Columns with the subjects that own a row, or get rights from it."""
TOLD = {
    ("clients", "made_by"): ALL,
    ("audit", "subject"): sa.column("action") != "revoke client",  # the subject is a client, with a name of its choice
    ("doubts", "subject"): ALL,
    ("judgements", "by"): ALL,
    ("pause_rules", "modified_by"): ALL,
    ("voices", "subject"): ALL,
    ("asides", "subject"): ALL,
    ("asides", "by"): ALL,
    ("observation_keys", "subject"): ALL,
    ("observations", "subject"): ALL,
    ("traffic", "subject"): ALL,
    ("scores", "subject"): ALL,
    ("decisions", "subject"): ALL,
    ("regrets", "subject"): ALL,
    ("probes_wanted", "subject"): ALL,
    ("tasks", "canceled"): ALL,
}
"""Columns with the subjects whose actions are recorded, sometimes the broker itself."""
ISSUED = {("tokens", "subject"): sa.column("kind") == "token", ("clients", "name"): HELD["clients", "name"]}
"""Columns with the subjects to whom admins issued tokens."""
CALLED = {(table, "owner") for table in ("collections", "bookmarks", "tasks")} | {
    (table, "subject") for table in ("tokens", "voices", "decisions", "doubts", "probes_wanted")
}
"""Columns that contain only subjects that have used the broker."""
BROKERS = frozenset({"broker", "broker.probes", "broker.reports", "coget-broker"})
RESERVED = BROKERS | {"anonymous"}
CUT = 200
FOREIGN = re.compile(r"@https?:", re.IGNORECASE)
identities = sa.table("identities", *map(sa.column, ("id", "subject", "first_seen", "last_seen")))
audit = sa.table("audit", *map(sa.column, ("at", "subject", "action", "thing")))


class Judgement(NamedTuple):
    """The new name of a subject, and the reason to lock it if its user is unknown."""

    name: str
    reason: str = ""


def upgrade() -> None:
    locks = op.create_table(
        "locks",
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("was", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("subject", name="pk_locks"),
        sa.UniqueConstraint("was", name="uq_locks_was"),
    )
    formers = op.create_table(
        "former_hosts",
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("issuer", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_former_hosts"),
    )
    now = time.time()
    held, told, issued = _found(HELD), _found(TOLD) - BROKERS, _found(ISSUED)
    hosts = _hosts((held | told) - issued)
    alone = [{"host": host, "issuer": each} for host, (each, *more) in hosts.items() if each and not more]
    if alone:
        op.bulk_insert(formers, alone)
    judged = {each: _judged(each, each in issued, hosts) for each in held | told}
    _keep_ids(now)
    aside = {was: to.name for was, to in judged.items() if was != to.name and to.reason}  # this frees their names
    _move(HELD, aside)
    _move(TOLD, {was: name for was, name in aside.items() if was not in BROKERS})
    _move(HELD | TOLD, {was: to.name for was, to in judged.items() if _moved(was, to)})
    locked = [(to.name, was, to.reason) for was, to in sorted(judged.items()) if to.reason]
    if locked:
        op.bulk_insert(locks, [{"subject": name, "was": was, "reason": why, "at": now} for name, was, why in locked])
    notes = [("lock subject", f"{was}: {why}") for _, was, why in locked]
    notes += [("move subject", f"{was} to {to.name}") for was, to in sorted(judged.items()) if _moved(was, to)]
    if notes:
        rows = [{"at": now, "subject": "coget-broker", "action": action, "thing": thing} for action, thing in notes]
        op.bulk_insert(audit, rows)


def _moved(was: str, to: Judgement) -> bool:
    return was != to.name and not to.reason


def _found(columns: Mapping[tuple[str, str], sa.ColumnElement[bool]]) -> set[str]:
    """Return the subjects in these columns, without UUIDs in access rules, since these stand for subjects."""
    found: set[str] = set()
    for (table, name), which in columns.items():
        column: sa.ColumnClause[str] = sa.column(name)
        asked = sa.select(column).select_from(sa.table(table)).where(which, column.is_not(None), column != "")
        said = op.get_bind().execute(asked.distinct()).scalars()
        found |= {each for each in said if table != "access_rules" or not _is_uuid(each)}
    return found


def _hosts(subjects: Iterable[str]) -> Mapping[str, set[str | None]]:
    """Return the configured issuers of each host, spelled as in subjects; None if the configuration names no issuer.

    :param subjects: subjects to whom no admin issued a token
    :raises Invalid: when the issuers are not configured, and some subjects need one
    """
    said: Iterable[tuple[str, str | None]] | None = context.config.attributes.get("namers")
    if said is None:
        foreign = sorted(each for each in subjects if "@" in each)
        if foreign:
            raise Invalid(
                f"the database has users of identity providers: {', '.join(foreign[:3])}"
                f"{f' and {len(foreign) - 3} more' if len(foreign) > 3 else ''}",
                "run: coget-broker upgrade --database URL --config FILE, with the FILE that serve uses",
            )
    hosts: dict[str, set[str | None]] = defaultdict(set)
    for url, issuer in said or ():
        hosts[re.sub(r"[^A-Za-z0-9_.@:/+-]", "_", str(urlsplit(url).hostname))].add(issuer)
    return hosts


def _judged(subject: str, issued: bool, hosts: Mapping[str, set[str | None]]) -> Judgement:
    """Return the new name of an old subject, and the reason to lock it if its user is unknown."""
    local, at, host = subject.rpartition("@")
    issuers = hosts.get(host, set())
    if subject.casefold() in RESERVED or _is_uuid(subject) or FOREIGN.search(subject):
        return Judgement(f"{subject}%locked", "the name is reserved")
    if len(subject) >= CUT:
        return Judgement(subject, f"it has {CUT} characters: its end may have been cut off")
    if not at or (issued and not issuers):
        return Judgement(subject)
    (issuer,) = issuers if len(issuers) == 1 else (None,)
    if issued:
        why = f"an admin issued a token to this name, and an issuer at {host} may have used it, too"
    elif not issuers:
        why = f"no issuer at {host} is configured"
    elif len(issuers) > 1:
        whose = " or ".join(sorted(_whole(local, each) for each in issuers if each))
        why = f"several issuers are at {host}: {whose}"
    elif issuer is None:
        why = f"the issuer of the tokens that {host} checks is unknown: [introspection] has no issuer"
    elif not local or "_" in local:
        why = "its sub was empty" if not local else f"a _ in it may stand for another character; the issuer is {issuer}"
    else:
        return Judgement(_whole(local, issuer))
    return Judgement(subject, why)


def _whole(sub: str, issuer: str) -> str:
    return f"{quote(sub, safe=':/+')}@{quote(issuer, safe=':/+')}"


def _is_uuid(subject: str) -> bool:
    try:
        UUID(subject)
    except ValueError:
        return False
    return True


def _keep_ids(now: float) -> None:
    """Add identities for users that have none; their UUIDs are derived from the old subject."""
    held, told = ({key: which for key, which in each.items() if key in CALLED} for each in (HELD, TOLD))
    known = set(op.get_bind().execute(sa.select(identities.c.subject)).scalars())
    here = _found(held) | (_found(told) - BROKERS)
    new = [
        {"id": str(uuid5(SPACE, each)), "subject": each, "first_seen": now, "last_seen": now}
        for each in sorted(here - known)
    ]
    if new:
        op.bulk_insert(identities, new)


def _move(columns: Mapping[tuple[str, str], sa.ColumnElement[bool]], names: Mapping[str, str]) -> None:
    """Rename these subjects in these columns."""
    if not names:
        return
    moves = op.create_table("moves", sa.Column("was", sa.Text, primary_key=True), sa.Column("name", sa.Text))
    op.bulk_insert(moves, [{"was": was, "name": name} for was, name in sorted(names.items())])
    for (table, name), which in columns.items():
        target = sa.table(table, sa.column(name))
        column = target.c[name]
        to = sa.select(moves.c.name).where(moves.c.was == column).scalar_subquery()
        op.execute(sa.update(target).where(which, column.in_(sa.select(moves.c.was))).values({name: to}))
    op.drop_table("moves")
