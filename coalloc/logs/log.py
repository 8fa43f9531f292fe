"""What a log of transfers is once read: observations, and what could not be read."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from predictors.errors import PredictorError
from predictors.observation import Observation

__all__ = ["Log", "Refused", "gather", "others_under_way"]


class Refused(NamedTuple):
    """A line, or row, that is no transfer, and why."""

    line: int
    why: str


class Log(NamedTuple):
    """`kind` says what it is, for people. The observations are in the order of their starts."""

    kind: str
    observations: list[Observation]
    refused: list[Refused]


def gather(kind: str, rows: Iterable[tuple[int, Any]], read: Callable[[Any], Observation | None]) -> Log:
    """Read row after row.

    :param rows: each with its number
    :param read: makes an observation of a row; None for one that is left out on purpose. What it raises as ValueError,
        TypeError (of a value that is missing), OverflowError, KeyError or PredictorError is why the row is refused
    """
    observations, refused = [], []
    for number, row in rows:
        try:
            if observation := read(row):
                observations.append(observation)
        except KeyError as error:
            refused.append(Refused(number, f"it has no {error.args[0]}"))
        except (ValueError, TypeError, OverflowError, PredictorError) as error:
            refused.append(Refused(number, str(error)))
    observations.sort(key=lambda observation: observation.start)
    return Log(kind, observations, refused)


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
