"""The result of a simulated collect job: its end, its hops, staged bytes, and the background streams' bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from coalloc.staging.actions import Send

__all__ = ["Hop", "Outcome", "Record"]

Outcome = Literal["arrived", "failed", "cancelled"]


class Hop(NamedTuple):
    """A finished hop: its bytes moved from second `began` to `ended`; before, it waited in the queue of its pair."""

    send: Send
    began: float
    ended: float
    outcome: Outcome


@dataclass(frozen=True)
class Record:
    """A collect job that is over.

    :param outcome: "done", the reason for which the method gave up, or "out of time"
    :param seconds: time of the end: the makespan
    :param staged: by host: (second, bytes from then on) kept for others, including those in flight to it
    :param background: by stream: the bytes that it moved in these seconds
    """

    outcome: str
    seconds: float
    hops: Sequence[Hop]
    staged: Mapping[str, Sequence[tuple[float, int]]]
    background: Mapping[str, float]

    def peak(self, host: str) -> int:
        """Return the largest number of bytes that a host kept for others."""
        return max((size for _, size in self.staged.get(host, ())), default=0)
