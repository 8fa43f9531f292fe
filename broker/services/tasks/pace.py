"""Current rates of tasks, from their progress since they were looked at before."""

import time
from collections import deque
from collections.abc import Iterable, Mapping

from broker.models.tasks import Task

__all__ = ["Pace"]

WINDOW = 8.0
"""Seconds over which the current rate is averaged; workers report their progress about once a second."""
SHORTEST = 1.5
"""Least seconds between two looks from which a rate is computed."""
FORGOTTEN = 60.0


class Pace:
    """The recent progress of tasks, as seen in this process."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def rates(self, tasks: Iterable[Task]) -> Mapping[str, float]:
        """Return the rates of these tasks by id, bytes per second; those looked at for the first time are left out."""
        now = time.monotonic()
        self._seen = {number: moved for number, moved in self._seen.items() if moved[-1][0] > now - FORGOTTEN}
        found = {}
        for task in tasks:
            moved = self._seen.setdefault(task.id, deque())
            moved.append((now, task.bytes_transferred))
            while len(moved) > 2 and moved[1][0] <= now - WINDOW:
                moved.popleft()
            since, before = moved[0]
            if now - since >= SHORTEST:
                found[task.id] = max(0, task.bytes_transferred - before) / (now - since)
        return found
