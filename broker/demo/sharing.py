"""How servers share a file in the demonstration: each has a part, and who is done takes over from who would be late."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from broker.models.decisions import Range
from coalloc.model import Ending

__all__ = ["Server", "shared"]

PATIENCE = 10.0
"""Seconds without a byte after which a server is taken to have stalled."""
WORTH = 2.0
"""Seconds that a server has to have left for another to take over some of it."""


class Server(NamedTuple):
    """What one is able to, and what it is to deliver first.

    :param setup: seconds from asking for a range to its first byte
    :param rate: bytes per second
    :param planned: bytes
    :param stops: seconds after which no more bytes come from it
    :param fails: whether it says so, or stalls
    """

    setup: float
    rate: float
    planned: int
    stops: float = inf
    fails: bool = False


@dataclass
class _Job:
    """Bytes [start, end) that a server was asked for; some of them may be given to others later."""

    start: int
    end: int
    asked: float
    relieved: bool = False


def _done(server: Server, job: _Job) -> float:
    """When it has all of it, unless it stops."""
    return job.asked + server.setup + (job.end - job.start) / server.rate


class _Sharing:
    """One file, from its first request to its last byte."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = servers
        self._jobs: dict[int, _Job] = {}
        self._left: list[tuple[int, int]] = []
        self.ranges: list[Range] = []
        begin = 0
        for i, server in enumerate(servers):
            if server.planned:
                self._jobs[i] = _Job(begin, begin + server.planned, 0.0)
                begin += server.planned

    def run(self) -> None:
        """Until all is there, or nobody is left."""
        while self._jobs:
            i = min(self._jobs, key=self._over)
            now, job = self._over(i), self._jobs.pop(i)
            self._note(i, job, now)
            for idle in [j for j in range(len(self._servers)) if j not in self._jobs and self._servers[j].stops > now]:
                self._take(idle, now)

    def _over(self, i: int) -> float:
        """When it is done with its job, or given up."""
        server, job = self._servers[i], self._jobs[i]
        done = _done(server, job)
        return done if done <= server.stops else max(job.asked, server.stops) + (0.0 if server.fails else PATIENCE)

    def _came(self, i: int, job: _Job, now: float) -> int:
        """Bytes of a job that are there."""
        server, size = self._servers[i], job.end - job.start
        until = min(now, server.stops)
        if _done(server, job) <= until:
            return size
        return min(size, max(0, int((until - job.asked - server.setup) * server.rate)))

    def _note(self, i: int, job: _Job, now: float) -> None:
        server, came = self._servers[i], self._came(i, job, now)
        ending: Ending = "relieved" if job.relieved else "whole"
        if came < job.end - job.start:
            ending = "failed" if server.fails else "stalled"
            self._left.append((job.start + came, job.end))
        first = job.asked + server.setup if came else None
        last = first + came / server.rate if first is not None else None
        self.ranges.append(
            Range(
                source=i,
                start=job.start,
                end=job.start + came,
                bytes=came,
                asked=job.asked,
                first=first,
                last=last,
                over=now,
                ending=ending,
            )
        )

    def _take(self, i: int, now: float) -> None:
        """What nobody is at, or the end of what would be there last."""
        if self._left:
            self._jobs[i] = _Job(*self._left.pop(), now)
            return
        late = max(self._jobs, key=lambda j: self._seconds_left(j, now), default=None)
        if late is None or self._seconds_left(late, now) < WORTH + self._servers[i].setup:
            return
        mine, other, job = self._servers[i], self._servers[late], self._jobs[late]
        both = (self._seconds_left(late, now) - mine.setup) / (1 / mine.rate + 1 / other.rate)
        cut = job.end - min(int(both), job.end - job.start - self._came(late, job, now))
        self._jobs[i] = _Job(cut, job.end, now)
        self._jobs[late] = replace(job, end=cut, relieved=True)

    def _seconds_left(self, i: int, now: float) -> float:
        """As far as anybody can know: that it has stopped, nobody does."""
        server, job = self._servers[i], self._jobs[i]
        left = job.end - job.start - self._came(i, job, now)
        return left / server.rate + max(0.0, job.asked + server.setup - now) if left else 0.0


def shared(servers: Sequence[Server]) -> list[Range]:
    """Which ranges came when from whom, in the order in which they ended."""
    sharing = _Sharing(servers)
    sharing.run()
    return sharing.ranges
