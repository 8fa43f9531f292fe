"""A simulation of servers that share a file: an idle server takes over a part of the slowest server's share."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from broker.models.decisions import Range
from coalloc.model.reports import Ending

__all__ = ["DemoServer", "shared"]

PATIENCE = 10.0
"""Seconds without a byte after which a server counts as stalled."""
WORTH = 2.0
"""Remaining seconds of a server's share above which another server may take over a part of it."""


class DemoServer(NamedTuple):
    """A server's performance, and its first share.

    :param setup: seconds from a request for a range to its first byte
    :param rate: bytes per second
    :param planned: bytes of its first share
    :param stops: seconds after which it delivers no more bytes
    :param fails: whether it then reports an error; otherwise it stalls
    """

    setup: float
    rate: float
    planned: int
    stops: float = inf
    fails: bool = False


@dataclass
class _Job:
    """Bytes [start, end) requested from a server; a part of them may move to another server later."""

    start: int
    end: int
    requested: float
    shortened: bool = False


def _done(server: DemoServer, job: _Job) -> float:
    """Return when a server that does not stop has delivered all of a job, in seconds from the start."""
    return job.requested + server.setup + (job.end - job.start) / server.rate


class _Sharing:
    """The simulation of one file, from its first request to its last byte."""

    def __init__(self, servers: Sequence[DemoServer]) -> None:
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
        """Run until all bytes have arrived, or no server is left."""
        while self._jobs:
            i = min(self._jobs, key=self._over)
            now, job = self._over(i), self._jobs.pop(i)
            self._note(i, job, now)
            for idle in [j for j in range(len(self._servers)) if j not in self._jobs and self._servers[j].stops > now]:
                self._take(idle, now)

    def _over(self, i: int) -> float:
        """Return when a server finishes its job, fails, or counts as stalled, in seconds from the start."""
        server, job = self._servers[i], self._jobs[i]
        done = _done(server, job)
        return done if done <= server.stops else max(job.requested, server.stops) + (0.0 if server.fails else PATIENCE)

    def _came(self, i: int, job: _Job, now: float) -> int:
        """Return how many bytes of a job have arrived."""
        server, size = self._servers[i], job.end - job.start
        until = min(now, server.stops)
        if _done(server, job) <= until:
            return size
        return min(size, max(0, int((until - job.requested - server.setup) * server.rate)))

    def _note(self, i: int, job: _Job, now: float) -> None:
        server, came = self._servers[i], self._came(i, job, now)
        ending: Ending = "shortened" if job.shortened else "whole"
        if came < job.end - job.start:
            ending = "failed" if server.fails else "stalled"
            self._left.append((job.start + came, job.end))
        first = job.requested + server.setup if came else None
        last = first + came / server.rate if first is not None else None
        self.ranges.append(
            Range(
                source=i,
                start=job.start,
                end=job.start + came,
                bytes=came,
                asked=job.requested,
                first=first,
                last=last,
                over=now,
                ending=ending,
            )
        )

    def _take(self, i: int, now: float) -> None:
        """Give a server the bytes of a failed server, otherwise the end of the share that would finish last."""
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
        self._jobs[late] = replace(job, end=cut, shortened=True)

    def _seconds_left(self, i: int, now: float) -> float:
        """Return the seconds until a server's job is done if the server does not stop."""
        server, job = self._servers[i], self._jobs[i]
        left = job.end - job.start - self._came(i, job, now)
        return left / server.rate + max(0.0, job.requested + server.setup - now) if left else 0.0


def shared(servers: Sequence[DemoServer]) -> list[Range]:
    """Return the ranges of each server with their times, in the order in which they ended."""
    sharing = _Sharing(servers)
    sharing.run()
    return sharing.ranges
