"""Reasons why tasks do not move, in one sentence, with what to do: a pure function of the facts about a task."""

import time
from collections.abc import Mapping
from typing import NamedTuple

from broker.models.base import Moment, Wire
from broker.models.tasks import Task

__all__ = ["PAUSES", "Standstill", "standstill"]

ITSELF = "wait: the task then continues by itself"
PAUSES = ("PAUSED", "PAUSED_BY_RULE")
"""The codes of tasks that an admin holds."""
DAY = 86_400.0


class Standstill(Wire):
    """The reason why a task does not move.

    - `code`: `PAUSED`, `PAUSED_BY_RULE`, `NO_WORKER`, `LANE` or `TURN`, or the fault that the task is retrying
    - `since`: when it began, as far as the broker knows
    - `message`, `remedy`: the reason, and what to do
    """

    code: str
    since: Moment | None
    message: str
    remedy: str

    def __str__(self) -> str:
        """Return both in one sentence."""
        return f"{self.message} ({self.remedy})"


class _Meaning(NamedTuple):
    """A fault in words; `{end}` is the collection that failed, `{sink}` the destination."""

    message: str
    remedy: str


FAULTS = {
    "AUTH": _Meaning("{end} refuses the login", "have its admin renew the credential"),
    "PERMISSION_DENIED": _Meaning("{end} refuses access", "check the permissions there, or ask its owner"),
    "NO_SPACE_LEFT": _Meaning("the disk of {sink} is full", "make room there; the task then continues by itself"),
    "QUOTA_EXCEEDED": _Meaning("the quota at {sink} is used up", "make room there, or ask for more"),
    "CONNECT_FAILED": _Meaning("{end} cannot be reached", "tell its admin, unless it is expected to come back"),
    "CONNECTION_BROKEN": _Meaning("connections to {end} break", ITSELF),
    "TIMEOUT": _Meaning("{end} does not answer in time", ITSELF),
    "ENDPOINT_TOO_BUSY": _Meaning("{end} is too busy", ITSELF),
    "FILE_NOT_FOUND": _Meaning("{end} does not have a file", "check the path; the task gives the file up soon"),
    "VERIFY_CHECKSUM": _Meaning("a file arrived with wrong bytes", "wait: it is copied again"),
    "INTERNAL_ERROR": _Meaning("the broker's database cannot be used", ITSELF),
}
"""Faults by code; others are just named."""


def standstill(task: Task, names: Mapping[str, str], now: float) -> Standstill | None:
    """Return why a task does not move; None if it does, or is over.

    :param names: names of the collections that still exist, by id
    :param now: seconds since the epoch
    """
    if task.completed_at is not None:
        return None
    if task.paused is not None:
        return Standstill(
            code="PAUSED",
            since=None,
            message=f"an admin has paused this task: {task.paused}",
            remedy="ask an admin to resume it, or cancel it",
        )
    if task.rule_collection is not None:
        where = names.get(task.rule_collection, task.rule_collection)
        return Standstill(
            code="PAUSED_BY_RULE",
            since=task.rule_since,
            message=f"{where} is paused{_since(task.rule_since, now)}: {task.rule_message}",
            remedy="wait until its admin lifts the pause; the task then continues by itself",
        )
    if not task.has_worker:
        return Standstill(
            code="NO_WORKER",
            since=None,
            message=f"no worker is running{f' for the site {task.queue}' if task.queue else ''}",
            remedy="ask an admin to start coget-broker worker",
        )
    return _fault(task, names, now) if task.error_code else _waiting(task)


def _fault(task: Task, names: Mapping[str, str], now: float) -> Standstill:
    """Return the fault that a task is retrying."""
    code = task.error_code or ""
    source, sink = (names.get(number or "", number or "") for number in (task.source, task.destination))
    either = f"{source} or {sink}" if sink else source
    end = {"source": source, "destination": sink}.get(task.error_side) or either
    known = FAULTS.get(code, _Meaning(f"a fault is being retried, {code.replace('_', ' ').lower()}", ITSELF))
    message = known.message.format(end=end, sink=sink or source) if code in FAULTS else known.message
    since = _since(task.error_since, now)
    return Standstill(code=code, since=task.error_since, message=f"{message}{since}", remedy=known.remedy)


def _waiting(task: Task) -> Standstill | None:
    """Return what a task without faults waits for."""
    if task.waits:
        remedy = "wait for its turn: users take turns"
        return Standstill(code="LANE", since=None, message=task.waits, remedy=remedy)
    if task.started_at is None and not task.open_lanes:
        message = "it waits for its turn, after earlier tasks"
        return Standstill(code="TURN", since=task.requested_at, message=message, remedy=ITSELF)
    return None


def _since(moment: float | None, now: float) -> str:
    """Return a time in UTC, with the date if it is a day ago.

    >>> _since(1_000_000_000.0, 1_000_000_060.0), _since(1_000_000_000.0, 1_000_100_000.0), _since(None, 0.0)
    (' since 01:46 UTC', ' since 2001-09-09 01:46 UTC', '')
    """
    if moment is None:
        return ""
    return time.strftime(f" since {'%Y-%m-%d ' if now - moment > DAY else ''}%H:%M UTC", time.gmtime(moment))
