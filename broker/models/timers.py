"""Timers: transfers that the broker submits at planned times, and the rules of their schedules, which are pure."""

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple
from uuid import UUID, uuid5

from broker.models.callers import Role
from broker.models.tasks import Item, NewTask, Options

__all__ = ["LATEST", "NewTimer", "Schedule", "Stopped", "Timer", "TimerRun", "TimerTransfer"]

DAY = 86_400.0
LATEST = 3600.0
"""Seconds after the end of a timer during which a late run may still begin."""
Stopped = Literal["user", "credentials"]
"""Reasons why a timer is inactive: its owner paused it, or its token, login or client is no longer valid."""


class Schedule(NamedTuple):
    """The planned times of a timer.

    :param start: first planned time, in seconds since the epoch
    :param interval: seconds between planned times; None to run once
    :param until: time after which there is no planned time; None for no end
    :param most: most runs; None for no limit
    """

    start: float
    interval: int | None = None
    until: float | None = None
    most: int | None = None

    def after(self, moment: float) -> float | None:
        """Return the first planned time after a moment; None if there is none.

        >>> hourly = Schedule(1000.0, 3600, until=9000.0)
        >>> hourly.after(0), hourly.after(1000), hourly.after(8300), Schedule(1000.0).after(1000)
        (1000.0, 4600.0, None, None)
        """
        if moment < self.start:
            return self._kept(self.start)
        if self.interval is None:
            return None
        return self._kept(self.start + (math.floor((moment - self.start) / self.interval) + 1) * self.interval)

    def over(self, moment: float) -> bool:
        """Return whether it is too late for a run, even for one that was planned earlier."""
        return self.until is not None and moment > self.until + LATEST

    def misled(self, last: float | None, moment: float) -> bool:
        """Return whether the last run was made by a clock that was more than a day ahead, and was set back since."""
        return self.interval is not None and last is not None and moment < last - DAY

    def _kept(self, planned: float) -> float | None:
        return planned if self.until is None or planned <= self.until else None


class TimerTransfer(NamedTuple):
    """The transfer that a timer submits at each run."""

    source: UUID
    destination: UUID
    label: str | None
    options: Options
    items: tuple[Item, ...]

    @classmethod
    def of(cls, task: NewTask) -> "TimerTransfer":
        """Return the transfer of a task. The task must have a destination."""
        assert task.destination is not None
        return cls(task.source, task.destination, task.label, task.options, task.items)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "TimerTransfer":
        """Return the transfer in a stored document."""
        items = tuple(Item.model_validate(each) for each in document["items"])
        options = Options.model_validate(document["options"])
        return cls(UUID(document["source"]), UUID(document["destination"]), document["label"], options, items)

    def document(self) -> dict[str, Any]:
        """Return the document to store."""
        return {
            "source": str(self.source),
            "destination": str(self.destination),
            "label": self.label,
            "options": self.options.model_dump(exclude_defaults=True),
            "items": [each.model_dump(exclude_defaults=True) for each in self.items],
        }


class NewTimer(NamedTuple):
    """A timer to create; a `start` of None is the current time."""

    name: str | None
    transfer: TimerTransfer
    start: float | None = None
    interval: int | None = None
    until: float | None = None
    most: int | None = None


class Timer(NamedTuple):
    """A timer, with the credential that its runs depend on.

    :param token_id: number of the token or login that created it; None if it is not of this broker
    :param client_id: client to which that token was granted; None if it was granted to none
    :param limit_at: time at which this credential ends at the latest; None if it has no such time
    :param next_run: next planned time; None after the last run
    :param runs: number of runs, including those that failed
    """

    id: UUID
    owner: str
    role: Role
    token_id: int | None
    limit_at: float | None
    name: str | None
    transfer: TimerTransfer
    schedule: Schedule
    next_run: float | None
    submitted_at: float
    stopped: Stopped | None = None
    reason: str | None = None
    runs: int = 0
    errors: int = 0
    last_ran_at: float | None = None
    client_id: str | None = None

    @property
    def submission(self) -> UUID:
        """The submission id of the next run, so that a run can create only one task."""
        return uuid5(self.id, f"run {self.runs + 1}")

    def task(self, deadline: float) -> NewTask:
        """Return the task of the next run, without queue."""
        return NewTask(
            owner=self.owner,
            role=self.role,
            token_id=self.token_id,
            kind="TRANSFER",
            submission_id=self.submission,
            deadline=deadline,
            **self.transfer._asdict(),
        )


class TimerRun(NamedTuple):
    """One run of a timer.

    :param planned_at: planned time that it stands for, in seconds since the epoch
    :param task_id: task that it submitted; None if it failed
    :param error_code: code of the error; None if a task was submitted
    """

    number: int
    planned_at: float
    ran_at: float
    task_id: str | None = None
    error_code: str | None = None
    error: str | None = None
