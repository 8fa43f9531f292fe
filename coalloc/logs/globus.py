"""A user's own tasks at Globus, as its Transfer API tells them: a document a task, and its events.

A task takes as long as it waits for its turn, stands paused, tries again and compares what is there. Read are those of
which the network took the time, from when they began: until then they may have waited for hours. Globus forgets after
30 days when a task began, and from then on it tells nothing of a rate.

Collections are called `globus://ID` as sources, and by their ids as sinks: a broker that has them knows where they are.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from coalloc.logs.log import others_under_way
from predictors.errors import PredictorError
from predictors.observation import Observation

__all__ = ["read"]

Document = Mapping[str, Any]
T = TypeVar("T")

SHORTEST = 5.0
"""Seconds: of less, Globus's whole seconds say too little."""
TELLING = 8 << 20
"""Mean bytes of a file from which on it is the network that took the time, and not the files."""
MOST_FAULTS = 3
"""Each costs a pause before the next try."""
MOST_STREAMS = 1000
STRANGE = (KeyError, ValueError, TypeError, AttributeError, PredictorError)
"""What comes of reading a document that is not as it should be."""


def read(tasks: Iterable[Document], events: Callable[[str], Iterable[Document]]) -> dict[str, Observation]:
    """The tasks that tell a rate, by their ids, in the order of their starts.

    :param tasks: transfers that succeeded
    :param events: those of the task of an id; asked for only where they can make a difference
    """
    asked = ((str(task["task_id"]), task) for task in tasks if _readable(_telling, task))
    read = ((number, _readable(_transfer, task, list(events(number)))) for number, task in asked)
    found = sorted(((number, one) for number, one in read if one), key=lambda each: each[1].start)
    counted = others_under_way([observation for _, observation in found])
    return dict(zip([number for number, _ in found], counted, strict=True))


def _readable(reader: Callable[..., T], *documents: object) -> T | None:
    try:
        return reader(*documents)
    except STRANGE:
        return None


def _telling(task: Document) -> bool:
    """Whether it can tell a rate, if it is known when it began."""
    return (
        task["task_id"] is not None
        and not task["history_deleted"]
        and int(task["files_skipped"]) == 0
        and int(task["faults"]) <= MOST_FAULTS
        and int(task["bytes_transferred"]) >= TELLING * max(1, int(task["files_transferred"]))
        and _time(task["completion_time"]) - _time(task["request_time"]) >= SHORTEST
    )


def _transfer(task: Document, events: list[Document]) -> Observation | None:
    """None when it was paused, took too little time, or nobody knows any more when it began."""
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
    """How many connections at once, as far as it is told.

    >>> _streams('{"type": "GridFTP Transfer", "concurrency": 2, "parallelism": 4, "pipelining": 20}'), _streams("")
    (8, 1)
    """
    try:
        said = json.loads(details)
        return min(MOST_STREAMS, max(1, int(said["concurrency"]) * int(said["parallelism"])))
    except STRANGE:
        return 1


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
