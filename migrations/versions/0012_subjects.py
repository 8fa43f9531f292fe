"""Subjects with the whole issuer. Subjects of known users are renamed; the others are locked, and listed.

UUIDs stay: `identities` has them from now on, and subjects that are not in it yet are added with the UUID that programs
were given. Each subject gets a name of its own, so that no two rows become equal.
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
"""Columns with the subjects that own a row, or are granted something by it."""
TOLD = {
    ("clients", "made_by"): ALL,
    ("audit", "subject"): sa.column("action") != "revoke client",  # by the client, under a name of its choice
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
"""Columns with the subjects whose actions are recorded; the broker itself can be among them."""
ISSUED = {("tokens", "subject"): sa.column("kind") == "token", ("clients", "name"): HELD["clients", "name"]}
"""Columns with the subjects that admins gave tokens to."""
CALLED = {(table, "owner") for table in ("collections", "bookmarks", "tasks")} | {
    (table, "subject") for table in ("tokens", "voices", "decisions", "doubts", "probes_wanted")
}
"""Columns with only such subjects as have used the broker."""
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
    aside = {was: to.name for was, to in judged.items() if was != to.name and to.reason}  # so that the name is free
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
    """Return the subjects in these columns; a UUID in an access rule is left out, since it stands for another name."""
    found: set[str] = set()
    for (table, name), which in columns.items():
        column: sa.ColumnClause[str] = sa.column(name)
        asked = sa.select(column).select_from(sa.table(table)).where(which, column.is_not(None), column != "")
        said = op.get_bind().execute(asked.distinct()).scalars()
        found |= {each for each in said if table != "access_rules" or not _is_uuid(each)}
    return found


def _hosts(subjects: Iterable[str]) -> Mapping[str, set[str | None]]:
    """Return the issuers of each host as it was written in subjects; None stands for an unknown issuer.

    :param subjects: subjects that no admin gave a token to
    :raises Invalid: when the issuers are not stated, and some subjects must come from an issuer
    """
    said: Iterable[tuple[str, str | None]] | None = context.config.attributes.get("namers")
    if said is None:
        foreign = sorted(each for each in subjects if "@" in each)
        if foreign:
            raise Invalid(
                f"the database has people whom identity providers have named: {', '.join(foreign[:3])}"
                f"{f' and {len(foreign) - 3} more' if len(foreign) > 3 else ''}",
                "say who these are: coget-broker upgrade --database URL --config FILE, as serve has it",
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
        why = f"a token was issued here to this name, and an issuer at {host} may have named somebody so"
    elif not issuers:
        why = f"no issuer at {host} is configured"
    elif len(issuers) > 1:
        whose = " or ".join(sorted(_whole(local, each) for each in issuers if each))
        why = f"several issuers are at {host}: {whose}"
    elif issuer is None:
        why = f"it is not known whose tokens {host} is asked for: [introspection] has no issuer"
    elif not local or "_" in local:
        why = "its sub was empty" if not local else f"a _ may stand for another character; at {issuer}"
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
    """Add identities for known users without one; their UUIDs were derived from the subject."""
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
