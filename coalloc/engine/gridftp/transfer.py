"""The transfer of one range between two servers: the replies of both, and their consequences for later ranges.

`markers` parses the sink's markers, `thirdparty` manages all ranges under way.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from coalloc.engine.gridftp.address import Address
from coalloc.engine.gridftp.login import GridFTPLogin
from coalloc.engine.gridftp.markers import Progress
from coalloc.engine.gridftp.refusals import refusal
from coalloc.engine.gridftp.replies import Reply
from coalloc.errors import ConnectionLost, ReplicaChanged, ServerSays, SourceError
from coalloc.model.routes import DIRECTLY

__all__ = ["RangeTransfer", "StoredCallback"]

OTHER_END_SECONDS = 5.0
"""Seconds to wait for the other server's answer, after the first server reports only a failed data connection."""
UNCONNECTED = (425, 426, 500)
"""Codes of replies that a data connection failed; Globus servers send 500."""
StoredCallback = Callable[[int, int], None]
"""`received(start, end)`: these bytes of the file are on the sink's disk."""


class SessionPair(Protocol):
    """The two sessions between which ranges are copied; the interface that a range uses.

    `doubtful`: a range has failed and its reason is not known yet; until then, no range begins or ends.
    """

    doubtful: bool

    @property
    def source(self) -> GridFTPLogin:
        """The session with the sending server."""
        ...

    @property
    def sink(self) -> GridFTPLogin:
        """The session with the receiving server."""
        ...

    @property
    def route(self) -> str:
        """The route of the data connections: a depot, or "none"."""
        ...

    def moved(self) -> None:
        """Record progress: bytes have arrived, or a range has begun."""
        ...

    def fail(self, error: SourceError, broken: bool = False) -> None:
        """End all ranges with an error, and the sessions.

        :param broken: whether the connection between the servers may be at fault
        """
        ...

    def ended(self, transfer: "RangeTransfer") -> None:
        """Remove a range that is over."""
        ...


class RangeTransfer:
    """The transfer of one range, requested from the source, then from the sink.

    :param retrieve: the command for the source, and the file's address there, for messages
    :param store: the command for the sink, and the file's address there
    """

    def __init__(
        self,
        pair: SessionPair,
        start: int,
        end: int,
        retrieve: tuple[str, Address],
        store: tuple[str, Address],
        received: StoredCallback | None,
    ) -> None:
        self._pair = pair
        self._start = start
        self._length = end - start
        self._retrieve = retrieve
        self._store = store
        self._received = received
        self._sent = self._sink_requested = self._sink_done = False
        self._begun = False
        self._answers = 0
        self._vague: ServerSays | None = None
        self._patience: asyncio.TimerHandle | None = None
        self.progress = Progress()
        self.ended = False
        self.over: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        """The error, or None on success."""

    def begin(self) -> None:
        """Send the source's command, after the commands under way."""
        self._pair.source.control.send(self._retrieve[0], self._retrieved, on_preliminary=self._opened)
        if self._pair.sink.protects_data:
            self._opened(None)  # both servers are silent until they have authenticated each other

    def _opened(self, _: Reply | None) -> None:
        """Send the sink's command, as the source has opened the file."""
        if not self._sink_requested and not self._pair.doubtful:
            self._sink_requested = True
            self._pair.moved()
            self._pair.sink.control.send(self._store[0], self._stored, on_preliminary=self._on_marker)

    def _on_marker(self, reply: Reply) -> None:
        """Process a marker of the sink."""
        self._begun = True
        for start, end in self.progress.hear(reply):
            if start < self._length:
                self._report(start, min(end, self._length))
        if self.progress.moved:
            self._pair.moved()

    def _report(self, start: int, end: int) -> None:
        if self._received is None:
            return
        try:
            self._received(self._start + start, self._start + end)
        except Exception as error:
            self._broken(error)

    def _retrieved(self, answer: Reply | SourceError) -> None:
        self._answers += 1
        error = _trouble(answer, self._retrieve[1])
        if error and error is not answer:
            error.blame_source()
        if error and not self._sink_requested and self._pair.source.usable:
            self.end(error)  # the sink has not been asked
            if self._pair.route != DIRECTLY and isinstance(answer, Reply) and answer.code in UNCONNECTED:
                self._fail_pair(error)  # the source may not have reached the depot
        elif error:
            self._broken(error)
        else:
            self._opened(None)  # if the server sent no preliminary reply
            self._sent = True
            self._finish()

    def _stored(self, answer: Reply | SourceError) -> None:
        self._answers += 1
        if error := _trouble(answer, self._store[1]):
            if error is not answer and error.permanent:  # a lost data connection may be the source's fault
                error.blame_destination()
            self._broken(error)
        else:
            self._sink_done = True
            self._finish()

    def _broken(self, error: Exception) -> None:
        """Fail both sessions: unread bytes of this range are still on the data connection.

        If the error may only be a consequence of the other server's failure, wait for that server's reply first.
        """
        if isinstance(error, ServerSays):
            # When a server dies, the other one may report first, and only that its data connection has ended.
            if self._vague is None and self._begun and self._answers < 2:
                self._wait_for_other_end(error)
                return
            error = self._vague or error
        self._vague = None
        self.end(error)
        self._fail_pair(error)

    def _fail_pair(self, error: Exception) -> None:
        ends = f"{self._pair.source.control.where} to {self._pair.sink.control.where}"
        lost = ConnectionLost(f"another file's copy from {ends} has failed: {error}", "connect again")
        self._pair.fail(lost, broken=isinstance(error, ServerSays | ConnectionLost))

    def _wait_for_other_end(self, error: ServerSays) -> None:
        self._vague = error
        self._pair.doubtful = True
        self._patience = asyncio.get_running_loop().call_later(OTHER_END_SECONDS, self._broken, error)

    def _finish(self) -> None:
        """Check the number of bytes, once both servers report completion."""
        if self._vague:  # one server has failed, and the other reports success: there is no better reason
            self._broken(self._vague)
            return
        if self._pair.doubtful:
            return
        self._pair.moved()
        if not (self._sent and self._sink_done):
            return
        if self.progress.reported and self.progress.bytes != self._length:
            had = f"{self.progress.bytes} of {self._length} bytes"
            self.end(ReplicaChanged(f"{self._retrieve[1].shown}: the server has sent {had}", "check its size again"))
            return
        for start, end in self.progress.stored.gaps(0, self._length):
            self._report(start, end)
        self.end()

    def end(self, error: Exception | None = None) -> None:
        """Set the outcome; may be called twice."""
        if self.ended:
            return
        self.ended = True
        if self._patience:
            self._patience.cancel()
        self._pair.ended(self)
        if not self.over.done():  # the awaiting task may have been cancelled
            self.over.set_result(self._vague or error)


def _trouble(answer: Reply | SourceError, thing: Address) -> SourceError | None:
    """Return the error of an answer; None for a positive reply."""
    if isinstance(answer, SourceError):
        return answer
    return None if answer.positive else refusal(answer, thing.shown)
