"""The packets of one stream: those that are there, those due in this window, and those that are late. Pure."""

from heapq import heappop, heappush
from math import inf

from coalloc.guarantees.mapping import Placement

__all__ = ["Flow", "Urgency"]

Urgency = tuple[float, float, float, int]
"""Order of packets that no path has scheduled: deadline, window constraint, bytes sent, index of the stream."""


class Flow:
    """The state of one stream. Packets have consecutive numbers; those given back are sent again first.

    :ivar ready: packets that may be sent
    :ivar used: turns of this window that were taken
    :ivar late: packets of earlier windows that should have been sent there
    :ivar extra: packets beyond the required ones that precede best effort in this window
    :ivar served: bytes sent, with which streams of best effort are compared
    :ivar gone: whether the stream was removed
    """

    def __init__(self, placement: Placement) -> None:
        self.ready = self.used = self.late = self.extra = 0
        self.follow(placement)
        self.served = 0.0
        self.late_since = inf
        self.gone = False
        self._following = 0
        self._returned: list[int] = []

    def follow(self, placement: Placement) -> None:
        """Use another placement of the same stream from now on."""
        self.placement, self.stream = placement, placement.stream
        self.required = sum(placement.packets.values())
        self.offered = max(self.required, self.stream.offered) if self.required else 0
        self.ratio = self.required / self.offered if self.offered else 0.0
        if not self.required:
            self.late = self.extra = 0

    def take(self) -> int:
        """Return the number of the next packet, which is being sent from now on."""
        self.ready -= 1
        self.served += self.stream.packet
        if self._returned:
            return heappop(self._returned)
        self._following += 1
        return self._following - 1

    def give_back(self, number: int) -> None:
        """Take back a packet that was not sent."""
        self.ready += 1
        self.served -= self.stream.packet
        heappush(self._returned, number)

    def begin(self, start: float, missed: int) -> None:
        """Begin a window; `missed` more windows have passed in which nothing could be sent."""
        late = min(self.ready, self.late + max(0, self.required - self.used) + missed * self.required)
        if late and not self.late:
            self.late_since = start - (missed + 1) * self.stream.window
        self.late, self.used, self.extra = late, 0, self.offered - self.required

    def urgency(self, index: int, end: float) -> Urgency:
        """Return the place of the next packet among those that no path has scheduled; the window ends at `end`.

        Late packets come first, then those of this window, then best effort. What is ahead of its time comes last.
        """
        if self.late:
            return self.late_since, -self.ratio, 0.0, index
        if self.extra:
            return end, -self.ratio, 0.0, index
        return inf, float(bool(self.required)), self.served, index

    def use_unscheduled(self) -> None:
        """Count a packet that was sent though no path had scheduled it."""
        if self.late:
            self.late -= 1
        elif self.extra:
            self.extra -= 1
