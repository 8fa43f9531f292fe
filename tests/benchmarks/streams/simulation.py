"""One run of an experiment, packet by packet, in virtual time; and what its tables show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from coalloc.guarantees.packets import Packet
from tests.benchmarks.streams.experiments import FRAMES, Feed
from tests.benchmarks.streams.rivals import Policy
from tests.benchmarks.streams.traces import CrossedPath

__all__ = ["Deliveries", "simulate"]

TIMEOUT = 0.25
"""Seconds after which a path counts as blocked if a packet has not been sent; then its bytes are lost."""
ALL = 1 << 40


@dataclass
class Deliveries:
    """The packets of one stream.

    :ivar begins: second at which each packet was handed to a path, by number
    :ivar ends: second at which each arrived
    """

    feed: Feed
    frames: Sequence[int]
    begins: dict[int, float] = field(default_factory=dict)
    ends: dict[int, float] = field(default_factory=dict)

    def rates(self, seconds: int, shift: float = 0.0) -> NDArray[np.float64]:
        """Return the Mbit/s in each second; seconds begin `shift` later than windows."""
        edges = np.arange(seconds + (shift == 0)) + shift
        counts, _ = np.histogram(list(self.ends.values()), edges)
        return counts * self.feed.packet * 8e-6

    def jitter(self) -> float:
        """Return the mean deviation of the intervals between frames from their period, in milliseconds."""
        edges = np.concatenate([[0], np.cumsum(self.frames)])
        complete = [
            max(self.ends[number] for number in range(first, last))
            for first, last in pairwise(edges)
            if first < last and all(number in self.ends for number in range(first, last))
        ]
        return float(1000 * np.abs(np.diff(complete) - 1 / FRAMES).mean())


def simulate(
    policy: Policy, feeds: Sequence[Feed], paths: Mapping[str, CrossedPath], seconds: int, seed: int
) -> dict[str, Deliveries]:
    """Return the deliveries of each stream."""
    found = {feed.name: Deliveries(feed, feed.frames(seconds, seed)) for feed in feeds}
    network = _Network(policy, paths, found)
    past = {path: list(crossed.past) for path, crossed in paths.items()}
    for tick in range(seconds * FRAMES):
        if tick % FRAMES == 0:
            if tick:
                for path, crossed in paths.items():
                    past[path].append(crossed.of_window(tick // FRAMES - 1))
            policy.learn(past, tick / FRAMES)
        for feed in feeds:
            if feed.paced or not tick:
                policy.arrived(feed.name, found[feed.name].frames[tick] if feed.paced else ALL)
        network.run(tick / FRAMES, (tick + 1) / FRAMES)
    return found


class _Network:
    """The paths, each with the packet that it sends."""

    def __init__(self, policy: Policy, paths: Mapping[str, CrossedPath], found: Mapping[str, Deliveries]) -> None:
        self._policy, self._paths, self._found = policy, paths, found
        self._sending: dict[str, tuple[Packet, float, float]] = {}
        self._events: list[tuple[float, str]] = []
        self._idle = set(paths)

    def run(self, begin: float, end: float) -> None:
        """Go on from one time to another; packets have arrived for all paths that are idle."""
        for path in sorted(self._idle):
            heappush(self._events, (begin, path))
        self._idle.clear()
        while self._events and self._events[0][0] < end:
            now, path = heappop(self._events)
            if path in self._sending and not self._end(path, now):
                continue
            self._begin(path, now)

    def _begin(self, path: str, now: float) -> None:
        packet = self._policy.next(path, now)
        if packet is None:
            self._idle.add(path)
            return
        end = self._paths[path].end(now, self._found[packet.stream].feed.packet)
        self._sending[path] = packet, now, end
        heappush(self._events, (min(end, now + TIMEOUT), path))

    def _end(self, path: str, now: float) -> bool:
        """End a packet, or find that it has not arrived; return whether the path is free."""
        packet, begin, end = self._sending[path]
        if now < end:
            resumes = self._policy.blocked(path, now)
            if resumes is not None:
                del self._sending[path]
            heappush(self._events, (end if resumes is None else resumes, path))
            return False
        del self._sending[path]
        self._policy.sent(path, packet)
        stream = self._found[packet.stream]
        stream.begins[packet.number], stream.ends[packet.number] = begin, end
        return True
