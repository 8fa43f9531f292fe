"""How fast tasks are now: from how far they were when somebody looked at them before."""

import time
from collections import deque
from collections.abc import Iterable, Mapping

from broker.models.tasks import Task

__all__ = ["Pace"]

WINDOW = 8.0
"""Seconds over which a rate is what it is now; workers tell what was moved about once a second."""
SHORTEST = 1.5
"""Seconds between two looks that tell something."""
FORGOTTEN = 60.0


class Pace:
    """What was seen of tasks in this process, for a moment."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def rates(self, tasks: Iterable[Task]) -> Mapping[str, float]:
        """Bytes per second by the ids of these tasks; of those that are looked at for the first time nobody knows."""
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
