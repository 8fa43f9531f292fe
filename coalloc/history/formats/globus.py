"""A user's own tasks at Globus, from its Transfer API: one document per task, and the task's events.

The duration that Globus states includes the time in the queue, which may be hours. So it is counted from the task's
STARTED event instead. Tasks are left out if they were paused, had more than 3 faults, lasted less than 5 s, skipped
files, or have small files (a mean below 8 MiB). Globus deletes the events after 30 days; the rate of a task is then
unknown.

A source collection is named `globus://ID`, a sink collection by its id, so that a broker that knows the collections
can find them.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from coalloc.history.formats.log import others_under_way
from predictors.errors import PredictorError
from predictors.observation import Observation

__all__ = ["read"]

Document = Mapping[str, Any]
T = TypeVar("T")

SHORTEST = 5.0
"""Minimum seconds of a task; Globus reports whole seconds, too coarse for shorter tasks."""
LEAST_MEAN_SIZE = 8 << 20
"""Minimum mean file size in bytes; below it, the overhead per file dominates the duration."""
MOST_FAULTS = 3
"""Maximum number of faults of a task; each fault causes a pause before the retry."""
MOST_STREAMS = 1000
STRANGE = (KeyError, ValueError, TypeError, AttributeError, PredictorError)
"""The exceptions raised when a malformed document is read."""


def read(tasks: Iterable[Document], events: Callable[[str], Iterable[Document]]) -> dict[str, Observation]:
    """Return the observations of tasks whose rate is known, by task id, in the order of their starts.

    :param tasks: transfers that succeeded
    :param events: function from a task's id to its events; called only for tasks that may yield a rate
    """
    candidates = ((str(task["task_id"]), task) for task in tasks if _readable(_yields_rate, task))
    read = ((number, _readable(_transfer, task, list(events(number)))) for number, task in candidates)
    found = sorted(((number, one) for number, one in read if one), key=lambda each: each[1].start)
    counted = others_under_way([observation for _, observation in found])
    return dict(zip([number for number, _ in found], counted, strict=True))


def _readable(reader: Callable[..., T], *documents: object) -> T | None:
    try:
        return reader(*documents)
    except STRANGE:
        return None


def _yields_rate(task: Document) -> bool:
    """Return whether the task yields a rate if its start is known."""
    return (
        task["task_id"] is not None
        and not task["history_deleted"]
        and int(task["files_skipped"]) == 0
        and int(task["faults"]) <= MOST_FAULTS
        and int(task["bytes_transferred"]) >= LEAST_MEAN_SIZE * max(1, int(task["files_transferred"]))
        and _time(task["completion_time"]) - _time(task["request_time"]) >= SHORTEST
    )


def _transfer(task: Document, events: list[Document]) -> Observation | None:
    """Return the observation; None if the task was paused, was too short, or has no known start."""
    starts = [event for event in events if event["code"] == "STARTED"]
    if not starts or any(event["code"] == "PAUSED" for event in events):
        return None
    first = min(starts, key=lambda event: _time(event["time"]))
    began, ended = _time(first["time"]), _time(task["completion_time"])
    if ended - began < SHORTEST:
        return None
    return Observation(
        source=f"globus://{task['source_endpoint_id']}",
        sink=str(task["destination_endpoint_id"]),
        start=began,
        end=ended,
        bytes=int(task["bytes_transferred"]),
        ranges=max(1, int(task["files_transferred"])),
        streams=_streams(str(first["details"])),
    )


def _streams(details: str) -> int:
    """Return the number of simultaneous connections, 1 if unknown.

    >>> _streams('{"type": "GridFTP Transfer", "concurrency": 2, "parallelism": 4, "pipelining": 20}'), _streams("")
    (8, 1)
    """
    try:
        fields = json.loads(details)
        return min(MOST_STREAMS, max(1, int(fields["concurrency"]) * int(fields["parallelism"])))
    except STRANGE:
        return 1


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
