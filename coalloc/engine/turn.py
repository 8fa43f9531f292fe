"""A range that was asked for on a connection that several share, and which of its bytes are here. No I/O."""

from typing import Protocol

from coalloc.engine.base import Deliver, Span
from coalloc.errors import LimitExceeded, SourceError
from coalloc.intervals import Intervals

__all__ = ["Turn"]

MOST_GAPS = 256
"""Parts of a range that may have arrived apart: each takes memory in many books. Servers read a few ahead."""


class Over(Protocol):
    """What tells that a range is over: a future, which whoever waits for it may also cancel."""

    def done(self) -> bool: ...

    def set_result(self, result: None) -> None: ...

    def set_exception(self, exception: BaseException) -> None: ...


class Turn:
    """A range that was asked for: which of its bytes are here.

    :param over: is set when all that is wanted is delivered, or no more will come; once it is, nothing is delivered
    """

    def __init__(self, span: Span, deliver: Deliver, over: Over) -> None:
        self.span = span
        self.start = span.start
        self.left = self._asked = span.end - span.start
        self.received = Intervals()
        self.refusal: SourceError | None = None
        self._deliver = deliver
        self._over = over

    @property
    def wanted(self) -> bool:
        return not self._over.done()

    @property
    def complete(self) -> bool:
        length = self.span.end - self.start
        return self.received.total >= length and self.received.covers(self.start, self.span.end)

    def take(self, offset: int, view: memoryview) -> None:
        """Deliver what is wanted of these bytes, which lie `offset` behind the range's start.

        :raises LimitExceeded: when they are not of the range, or more than it has, or scattered over it
        """
        self.left -= len(view)
        if self.left < 0 or offset + len(view) > self._asked:
            raise _too_much("bytes that were not asked for")
        if len(self.received) > MOST_GAPS:
            raise _too_much(f"a range in more than {MOST_GAPS} scattered parts")
        if not self.wanted:
            return
        start = self.start + offset
        end = min(start + len(view), self.span.end)
        if start < end:
            self.received.add(start, end)
            try:
                self._deliver(start, view[: end - start])
            except Exception as error:
                self.end(error)
        if self.complete:
            self.end()

    def end(self, error: BaseException | None = None) -> None:
        """Deliver nothing more; may be called twice."""
        if not self.wanted:
            return
        if error:
            self._over.set_exception(error)
        else:
            self._over.set_result(None)


def _too_much(what: str) -> LimitExceeded:
    return LimitExceeded(f"the server sends {what}", "use another replica, or tell the server's owner")
