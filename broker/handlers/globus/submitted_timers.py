"""Timers in the form of Globus clients, and their translation to the broker's form, without I/O."""

import math
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

from pydantic import AfterValidator, Field

from broker.errors import Invalid
from broker.handlers.globus.filters import moment
from broker.handlers.globus.submitted_documents import ClientDocument, TransferDocument
from broker.models.base import Count
from broker.models.callers import Caller
from broker.models.timers import NewTimer, TimerTransfer

__all__ = ["NewTimerDocument", "TimerChange", "TimerResumption"]

SHORTEST, LONGEST = 60, 365 * 86_400
"""Limits of the seconds between two runs, as at Globus."""


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("has a character that cannot be printed")
    return name


Name = Annotated[str, Field(max_length=256), AfterValidator(_printable)]
Time = Annotated[str, Field(max_length=50)]


class TimerEnd(ClientDocument):
    """The end of a timer: a number of runs, which the CLI calls `count` and the SDK's documentation `iterations`."""

    condition: Literal["iterations", "time"]
    count: Annotated[Count, Field(ge=1)] | None = None
    iterations: Annotated[Count, Field(ge=1)] | None = None
    datetime: Time | None = None


class TimerSchedule(ClientDocument):
    """The times of a timer: one time for `once`; `recurring` needs an interval."""

    type: Literal["once", "recurring"]
    datetime: Time | None = None
    start: Time | None = None
    interval_seconds: Annotated[float, Field(ge=SHORTEST, le=LONGEST)] | None = None
    end: TimerEnd | None = None

    def times(self) -> dict[str, Any]:
        """Return the times as values of `NewTimer`. :raises Invalid: when one is missing or not valid"""
        if self.type == "once":
            return {"start": self.datetime and moment(self.datetime)}
        if self.interval_seconds is None:
            raise Invalid("a recurring timer needs interval_seconds", f"give {SHORTEST} to {LONGEST} seconds")
        start = self.start and moment(self.start)
        return {"start": start, "interval": math.floor(self.interval_seconds), **self._end()}

    def _end(self) -> dict[str, Any]:
        if self.end is None:
            return {}
        if self.end.condition == "time":
            if self.end.datetime is None:
                raise Invalid("the end of the timer has no datetime", "give the time of the end")
            return {"until": moment(self.end.datetime)}
        most = self.end.count or self.end.iterations
        if most is None:
            raise Invalid("the end of the timer has no count", "give the number of runs")
        return {"most": most}


class TimerBody(TransferDocument):
    """The transfer of a timer. Each run has its own submission id, and a deadline of a day."""

    submission_id: UUID = Field(default_factory=uuid4)


class TimerDocument(ClientDocument):
    """A timer that submits transfers."""

    timer_type: Literal["transfer"]
    name: Name | None = None
    schedule: TimerSchedule
    body: TimerBody


class FlowTimerDocument(ClientDocument):
    """A timer that runs a flow, which no broker can do; its other fields are ignored."""

    timer_type: Literal["flow"]


class NewTimerDocument(ClientDocument):
    """A timer to create, as clients send it: in an object."""

    timer: Annotated[TimerDocument | FlowTimerDocument, Field(discriminator="timer_type")]

    def new(self, caller: Caller, now: float) -> NewTimer:
        """Return the timer in the broker's form.

        :raises Invalid: when the timer runs a flow, or the times are not valid
        :raises NoItems: :raises Forbidden: when the transfer is not valid
        """
        timer = self.timer
        if isinstance(timer, FlowTimerDocument):
            raise Invalid("flow timers are not offered by this broker", "create a TransferTimer")
        if timer.body.deadline is not None:
            raise Invalid("the transfers of a timer have no common deadline", "leave out the deadline: each has a day")
        transfer = TimerTransfer.of(timer.body.task(caller, now))
        return NewTimer(timer.name, transfer, **timer.schedule.times())


class TimerChange(ClientDocument):
    """The changeable part of a timer, as at Globus."""

    name: Name


class TimerResumption(ClientDocument):
    """A request to resume a timer, and whether the timer depends on the request's credentials from now on."""

    update_credentials: bool | None = None
