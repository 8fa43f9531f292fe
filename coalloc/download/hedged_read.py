"""One request for bytes, sent to a second replica if the first is late. The first answer counts."""

import asyncio
from collections import Counter

from coalloc.download.read_replicas import ReadReplicas
from coalloc.download.replica_sessions import ReplicaRead, ReplicaSessions
from coalloc.errors import ConnectionLost

__all__ = ["HedgedRead"]

CONNECTING = 1.0
"""Seconds for a session to connect before another replica is asked."""
SOON = 0.05
"""Minimum seconds until it is looked again whether the request of a read was sent."""


class HedgedRead:
    """The read of bytes [start, end).

    :param choice: the replicas
    """

    def __init__(self, choice: ReadReplicas, start: int, end: int) -> None:
        self._choice = choice
        self._start = start
        self._end = end
        self._reads: dict[asyncio.Task[bytes], ReplicaRead] = {}
        self._failures: Counter[ReplicaSessions] = Counter()
        self._periods = 1
        """Number of periods after which the read is looked at again; each ends when a read would be late."""

    async def run(self) -> bytes:
        """Return the bytes.

        :raises CoallocError: if all replicas fail
        """
        self._choice.budget.request(self._end - self._start)
        async with self._choice.places:
            return await self._run()

    async def _run(self) -> bytes:
        nbytes = self._end - self._start
        try:
            while True:
                if not self._reads:
                    self._periods = 1
                    self._ask(await self._choice.first(nbytes, self._failures))
                soon = self._look_after()
                done, _ = await asyncio.wait(self._reads, timeout=soon, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if (data := self._result(task)) is not None:
                        return data
                if not done:
                    self._hedge()
        finally:
            for task in self._reads:
                task.cancel()

    def _ask(self, replica: ReplicaSessions) -> None:
        read = ReplicaRead(replica, self._start, self._end, self._choice.time())
        self._reads[self._choice.begin(self._choice.read(read))] = read

    def _look_after(self) -> float | None:
        """Return the seconds until it has to be decided whether the only read is late; None if there are two."""
        if len(self._reads) > 1:
            return None
        (read,) = self._reads.values()
        late = self._choice.late(read)
        if read.asked_at is None:  # the request may be sent soon
            return max(SOON, min(late, CONNECTING))
        return max(0.0, read.asked_at + self._periods * late - self._choice.time())

    def _hedge(self) -> None:
        """Ask a second replica if the read is late by now, and if there is one; else look again later."""
        (read,) = self._reads.values()
        now, late = self._choice.time(), self._choice.late(read)
        due = read.begun_at + CONNECTING if read.asked_at is None else read.asked_at + self._periods * late
        if due > now:
            return
        if replica := self._choice.second(read):
            read.late = True
            self._ask(replica)
        else:
            self._periods += 1

    def _result(self, task: asyncio.Task[bytes]) -> bytes | None:
        """Return the bytes of a read that has ended; None if it failed."""
        read = self._reads.pop(task)
        if task.cancelled():
            raise ConnectionLost("the file was closed while it was read", "open it again")
        if error := task.exception():
            self._failures[read.replica] += 1
            self._choice.note(read.replica, error)
            return None
        self._learn(read)
        for other in self._reads.values():
            if other.begun_at < read.begun_at:
                self._learn(other, lost=True)
        read.replica.failures = 0
        return task.result()

    def _learn(self, read: ReplicaRead, *, lost: bool = False) -> None:
        if read.asked_at is not None:
            seconds = self._choice.time() - read.asked_at
            self._choice.forecasts.learn(read.replica.server, read.nbytes, seconds, lost=lost)
