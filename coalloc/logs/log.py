"""What a log of transfers is once read: observations, and what could not be read."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from predictors.errors import PredictorError
from predictors.observation import Observation

__all__ = ["Changed", "Log", "Refused", "gather", "named", "others_under_way"]

LONGEST = 300
"""Characters of a reason: a line may have many more."""


class Refused(NamedTuple):
    """A line, or row, that is no transfer, and why."""

    line: int
    why: str


class Changed(NamedTuple):
    """A value that is kept in another form than its line has it."""

    line: int
    field: str
    was: str
    now: str


class Log(NamedTuple):
    """`kind` says what it is, for people. The observations are in the order of their starts.

    `lines` are where the observations are, in the same order: lines from 1, rows of a database. `left_out` counts lines
    that hold no transfer of which a rate can be told, as listings: those are no error. Each line that is not blank is
    an observation, refused or left out.
    """

    kind: str
    observations: list[Observation]
    refused: list[Refused]
    lines: list[int]
    changed: Sequence[Changed] = ()
    left_out: int = 0


def gather(kind: str, rows: Iterable[tuple[int, Any]], read: Callable[[Any], Observation | None]) -> Log:
    """Read row after row.

    :param rows: each with its number
    :param read: makes an observation of a row; None for one that is left out on purpose. What it raises as ValueError,
        TypeError (of a value that is missing), OverflowError, KeyError or PredictorError is why the row is refused
    """
    found: list[tuple[Observation, int]] = []
    refused, left_out = [], 0
    for number, row in rows:
        try:
            if observation := read(row):
                found.append((observation, number))
            else:
                left_out += 1
        except KeyError as error:
            refused.append(Refused(number, f"it has no {error.args[0]}"))
        except (ValueError, TypeError, OverflowError, PredictorError) as error:
            refused.append(Refused(number, str(error)[:LONGEST]))
    found.sort(key=lambda each: each[0].start)
    observations, lines = [each for each, _ in found], [line for _, line in found]
    return Log(kind, observations, refused, lines, left_out=left_out)


def named(header: Sequence[str], values: Sequence[str]) -> Mapping[str, str]:
    """The values of a row by the names of its columns.

    :raises ValueError: when there are more or fewer: a value with a comma in it moves those behind it
    """
    if len(values) != len(header):
        raise ValueError(f"it has {len(values)} fields, and the table has {len(header)} columns")
    return dict(zip(header, values, strict=True))


def others_under_way(observations: list[Observation]) -> list[Observation]:
    """The same transfers with their concurrency: how many others of the source or the sink had begun and not ended.

    :param observations: in the order of their starts
    """
    from dataclasses import replace
    from heapq import heappop, heappush

    at: dict[str, list[float]] = {}
    both: dict[tuple[str, str], list[float]] = {}
    found = []
    for observation in observations:
        source, sink, pair = observation.source, observation.sink, (observation.source, observation.sink)
        queues = [at.setdefault(f"from {source}", []), at.setdefault(f"to {sink}", []), both.setdefault(pair, [])]
        for queue in queues:
            while queue and queue[0] <= observation.start:
                heappop(queue)
        count = len(queues[0]) + len(queues[1]) - len(queues[2])
        found.append(replace(observation, concurrency=count))
        for queue in queues:
            heappush(queue, observation.end)
    return found
