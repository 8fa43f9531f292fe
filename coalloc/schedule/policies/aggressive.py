"""`aggressive`: aggressive load balancing (paper, section 3.2.3): faster servers are given more blocks at a time.

For each block delivered, its rate is compared with the running maximum over all servers:

- greater: the server's block size doubles and the maximum is reset to this rate;
- less: the server gets one block at a time;
- significantly less: the server is no longer used.
"""

from coalloc.schedule.policies.base import Choice, Role
from coalloc.schedule.policies.conservative import Conservative
from coalloc.schedule.state import RunningCopy, ScheduledSource, State

__all__ = ["DROP_BELOW", "Aggressive"]

DROP_BELOW = 0.1
"""A server slower than this part of the running maximum is no longer used. The paper gives no number; a tenth
keeps every source whose share is worth its last block, and drops those that would delay the end.
"""


class Aggressive(Conservative):
    """A conservative scheme with block sizes that follow the rates."""

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
        """Return whether a source is too slow and another one is usable that is not: the last one is never dropped.

        Sources that wait for a free connection do not count, as they may wait for ever.
        """
        others = [other for other in state.sources if other is not source and other.status != "waiting"]
        return source.index in self.dropped and any(o.usable and o.index not in self.dropped for o in others)
