"""A count of the bytes of one file as they arrive, however often progress is reported."""

from broker.worker.recorder import Recorder
from coalloc.model import Snapshot

__all__ = ["ArrivingBytes"]


class ArrivingBytes:
    """One file on its way."""

    def __init__(self, task: str, recorder: Recorder) -> None:
        self._task = task
        self._recorder = recorder
        self._counted = 0

    def watch(self, snapshot: Snapshot) -> None:
        """Count the bytes that a progress report adds."""
        self._count(snapshot.done_bytes)

    def whole(self, size: int) -> None:
        """Count all bytes that were not counted before."""
        self._count(size)

    def _count(self, done: int) -> None:
        if done > self._counted:
            self._recorder.moved(self._task, done - self._counted)
            self._counted = done
