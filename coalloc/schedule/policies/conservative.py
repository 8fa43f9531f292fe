"""`conservative`: conservative load balancing (paper, section 3.2.3): k equal blocks, one at a time per server."""

from coalloc.schedule.policies.base import Choice, Policy, Take
from coalloc.schedule.sources import ScheduledSource
from coalloc.schedule.state import State

__all__ = ["Conservative", "block_count"]

MB = 1_000_000


def block_count(size: int) -> int:
    """Return the number of blocks for a file of `size` bytes: the paper's 5, 10 or 15.

    The paper found fewer blocks better for small files and more for large ones (section 4.3.3, figure 10), with files
    of 10 MB, 100 MB, 500 MB and 1 GB.
    """
    if size <= 100 * MB:
        return 5
    return 10 if size <= 500 * MB else 15


class Conservative(Policy):
    """Equal blocks: each source gets the next block when it has delivered one.

    :param blocks: k, or None for the paper's choice by size
    """

    name = "conservative"
    rebalances = True

    def __init__(self, blocks: int | None = None) -> None:
        self.blocks = blocks

    def choose(self, state: State, source: ScheduledSource, now: float) -> Choice | None:
        return self.next_blocks(state, 1)

    def next_blocks(self, state: State, count: int) -> Take | None:
        """Return up to `count` blocks, beginning at the first unassigned byte; the rest of a block counts as one."""
        for start, end in state.unassigned:
            block = self.block_size(state)
            return Take(start, min(end, (start // block + count) * block))
        return None

    def block_size(self, state: State) -> int:
        """Return the bytes per block; the last block may be shorter."""
        return max(1, -(-state.size // (self.blocks or block_count(state.size))))

    def explain(self, state: State, now: float) -> str:
        count = self.blocks or block_count(state.size)
        return f"{self.name}: {count} blocks of {self.block_size(state)} bytes, one by one to the next free source"
