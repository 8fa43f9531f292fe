"""The content of a log of transfers: observations, and the lines that could not be read."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from predictors.errors import PredictorError
from predictors.observation import Observation

__all__ = ["ChangedValue", "RefusedLine", "TransferLog", "gather", "named", "others_under_way"]

LONGEST = 300
"""Maximum characters of a reason, which may quote a longer line."""


class RefusedLine(NamedTuple):
    """A line or row that is not a transfer, and the reason."""

    line: int
    why: str


class ChangedValue(NamedTuple):
    """A value that was changed when it was read."""

    line: int
    field: str
    was: str
    now: str


class TransferLog(NamedTuple):
    """The content of a log. `kind` describes it to users. The observations are in the order of their starts.

    `lines` has the position of each observation, in the same order: its line number from 1, or its row in a database.
    `left_out` counts lines without a transfer of known rate, such as listings; they are not errors. Each line that is
    not blank is an observation, refused or left out.
    """

    kind: str
    observations: list[Observation]
    refused: list[RefusedLine]
    lines: list[int]
    changed: Sequence[ChangedValue] = ()
    left_out: int = 0


def gather(kind: str, rows: Iterable[tuple[int, Any]], read: Callable[[Any], Observation | None]) -> TransferLog:
    """Read all rows.

    :param rows: rows, each with its number
    :param read: function from a row to an observation, or to None for a row to be left out. If it raises ValueError,
        TypeError (for a missing value), OverflowError, KeyError or PredictorError, the row is refused for that reason
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
            refused.append(RefusedLine(number, f"it has no {error.args[0]}"))
        except (ValueError, TypeError, OverflowError, PredictorError) as error:
            refused.append(RefusedLine(number, str(error)[:LONGEST]))
    found.sort(key=lambda each: each[0].start)
    observations, lines = [each for each, _ in found], [line for _, line in found]
    return TransferLog(kind, observations, refused, lines, left_out=left_out)


def named(header: Sequence[str], values: Sequence[str]) -> Mapping[str, str]:
    """Return the values of a row by the names of its columns.

    :raises ValueError: when the numbers of values and columns differ, as a comma inside a value shifts all later ones
    """
    if len(values) != len(header):
        raise ValueError(f"it has {len(values)} fields, and the table has {len(header)} columns")
    return dict(zip(header, values, strict=True))


def others_under_way(observations: list[Observation]) -> list[Observation]:
    """Return the transfers with their concurrency: the number of others of the same source or sink at their start.

    :param observations: transfers in the order of their starts
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
