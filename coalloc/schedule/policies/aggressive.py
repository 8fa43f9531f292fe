"""`aggressive`: aggressive load balancing (paper, section 3.2.3): faster servers get more blocks at a time.

The rate of each delivery is compared with the highest rate so far over all servers:

- higher: the server gets twice as many blocks next time, and its rate is the new maximum;
- not higher: the server gets one block at a time;
- much lower: the server is no longer used.
"""

from coalloc.schedule.policies.base import Choice, Role
from coalloc.schedule.policies.conservative import Conservative
from coalloc.schedule.sources import RunningCopy, ScheduledSource
from coalloc.schedule.state import State

__all__ = ["DROP_BELOW", "Aggressive"]

DROP_BELOW = 0.1
"""Fraction of the highest rate below which a server is no longer used. The paper gives no number; a tenth drops only
servers whose last block would delay the end.
"""


class Aggressive(Conservative):
    """The conservative strategy, but with a number of blocks per request that follows the server's rate."""

    name = "aggressive"

    def __init__(self, blocks: int | None = None) -> None:
        super().__init__(blocks)
        self.fastest = 0.0
        self.multiple: dict[int, int] = {}
        self.dropped: set[int] = set()

    def choose(self, state: State, source: ScheduledSource, now: float) -> Choice | None:
        if self._is_dropped(state, source):
            return None
        return self.next_blocks(state, self.multiple.get(source.index, 1))

    def role(self, state: State, source: ScheduledSource, now: float) -> Role:
        return "spare" if self._is_dropped(state, source) else super().role(state, source, now)

    def delivered(self, copy: RunningCopy, now: float) -> None:
        rate = (copy.end - copy.start) / max(now - copy.requested_at, 1e-9)
        if rate > self.fastest:
            self.fastest = rate
            self.multiple[copy.source] = 2 * self.multiple.get(copy.source, 1)
            self.dropped.discard(copy.source)
            return
        self.multiple[copy.source] = 1
        if rate < DROP_BELOW * self.fastest:
            self.dropped.add(copy.source)

    def _is_dropped(self, state: State, source: ScheduledSource) -> bool:
        """Return whether a source is too slow, and another source is usable and fast enough.

        Sources that wait for a free connection do not count as usable, as they may wait for ever.
        """
        others = [other for other in state.sources if other is not source and other.status != "waiting"]
        return source.index in self.dropped and any(o.usable and o.index not in self.dropped for o in others)
