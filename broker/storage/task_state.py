"""The state of tasks as queries see it: the columns of a task, and whether a pause rule holds it."""

from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, func, literal, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.tasks import Options, Task
from broker.schema.collections import pause_rules, shares
from broker.schema.tasks import lanes, tasks, work, workers
from broker.storage.dialects import clock

__all__ = ["HELD", "shown", "task_of"]

SEEN = 30.0
"""Seconds since its last heartbeat for which a worker counts as running."""
RETRYING = (
    select(func.count())
    .where(work.c.task_id == tasks.c.id, work.c.state == "pending", work.c.attempt > 0)
    .correlate(tasks)
    .scalar_subquery()
)
LANES = select(func.count()).select_from(lanes).where(lanes.c.task_id == tasks.c.id).correlate(tasks).scalar_subquery()


def shown(connection: AsyncConnection) -> list[ColumnElement[Any]]:
    """Return the columns of `Task`."""
    serves = or_(tasks.c.queue == "", workers.c.site == tasks.c.queue)
    alive = select(workers.c.id).where(workers.c.seen_at > clock(connection) - SEEN, serves).correlate(tasks)
    others = {
        "retrying": RETRYING,
        "priority": -tasks.c.nice,
        **FIRST_RULE,
        "open_lanes": LANES,
        "has_worker": alive.exists(),
    }
    return [others[name].label(name) if name in others else tasks.c[name] for name in Task._fields]


def task_of(row: Any) -> Task:
    """Return the task of a row with the columns of `shown`."""
    fields = dict(row._mapping)
    return Task(**{**fields, "options": Options.model_validate_json(fields["options"])})


def _first_rule(column: ColumnElement[Any]) -> ColumnElement[Any]:
    return _rules(column).order_by(pause_rules.c.created_at, pause_rules.c.id).limit(1).scalar_subquery()


def _rules(column: ColumnElement[Any]) -> Select[Any]:
    """Select a column of the pause rules that hold a task."""
    reads = and_(_covers(tasks.c.source), _pauses("task_transfer_read"))
    writes = and_(_covers(tasks.c.destination), _pauses("task_transfer_write"))
    deletes = and_(_covers(tasks.c.source), _pauses("task_delete"))
    transfer = and_(tasks.c.kind == "TRANSFER", or_(reads, writes))
    everybody_or_owner = or_(pause_rules.c.subject.is_(None), pause_rules.c.subject == tasks.c.owner)
    applies = or_(transfer, and_(tasks.c.kind == "DELETE", deletes))
    return select(column).where(tasks.c.status == "ACTIVE", everybody_or_owner, applies).correlate(tasks)


def _held_end() -> ColumnElement[Any]:
    """Return the task's own collection that a rule holds: not its host, which owners of guests may not see."""
    reads = and_(_covers(tasks.c.source), _pauses("task_transfer_read"))  # NULL rather than false without a host
    return case((reads, tasks.c.source), else_=func.coalesce(tasks.c.destination, tasks.c.source))


def _covers(collection: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return whether a rule is for a collection: its own, or one of its host if it is a guest collection."""
    host = select(shares.c.host_id).where(shares.c.collection_id == collection).correlate(tasks).scalar_subquery()
    return or_(pause_rules.c.collection_id == collection, pause_rules.c.collection_id == host)


def _pauses(operation: str) -> ColumnElement[bool]:
    return (literal(" ") + pause_rules.c.operations + " ").contains(f" {operation} ", autoescape=True)


HELD = _rules(pause_rules.c.id).exists()
"""Whether a pause rule of one of its collections holds an active task."""
FIRST_RULE = {
    "rule_collection": _first_rule(_held_end()),
    "rule_message": _first_rule(pause_rules.c.message),
    "rule_since": _first_rule(pause_rules.c.modified_at),
}
"""Columns of a task: the first rule that holds it. They are made once, as that takes milliseconds."""
