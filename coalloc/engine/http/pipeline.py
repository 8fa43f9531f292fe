"""Ranges requested ahead on one HTTP/1.1 connection, and the assignment of its bytes to them. No I/O.

A server answers in the order of the requests (RFC 9112, 9.3.2). The body of a response is counted, and delivered
without being copied. Only a 206 response with exactly the requested range is accepted: after any other response, the
connection ends, and `source` sends one request at a time to find the problem.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from coalloc.engine.http.answers import (
    BUSY,
    PARTIAL,
    closes,
    condition,
    content_range,
    refusal,
    validator,
)
from coalloc.engine.http.messages import LONGEST, head_end, read_head, request_bytes
from coalloc.engine.range_request import RangeRequest
from coalloc.model.replicas import Stat
from coalloc.model.validators import same_version
from coalloc.safe_text import redacted_text

__all__ = ["Pipeline", "Question", "UnexpectedResponse"]


class UnexpectedResponse(Exception):
    """A response that does not fit the request. Internal: do not use the connection any more."""


class Question(NamedTuple):
    """The common part of all requests on a connection.

    :param target: the file's path, as this connection's server names it
    :param headers: all headers except those for ranges
    :param stat: size and version of the file
    :param shown: the URL without secrets
    :param hidden: function that hides the secrets of URLs in the server's text
    :param signed: function that returns headers that authenticate one more request
    """

    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    stat: Stat
    shown: str
    hidden: Callable[[str], str] = redacted_text
    signed: Callable[[], Mapping[str, str]] = dict


class Pipeline:
    """The ranges requested on one connection that have not ended, in order."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._turns: deque[RangeRequest] = deque()
        self._begun = bytearray()
        self._length: int | None = None
        self._requested = 0
        self.answered = 0
        """Number of responses that have begun."""
        self._ahead: int | None = None
        self._last = False
        self.vague = False
        """Whether a response did not identify the version of the file."""
        self.moved = False
        """Whether the server has redirected a request, or wants another credential."""

    def ask(self, turn: RangeRequest) -> bytes:
        """Return the bytes of a request for one more range."""
        part = {"Range": f"bytes={turn.start}-{turn.start + turn.left - 1}", **condition(self._question.stat.validator)}
        part.update(self._question.signed())
        headers = [*self._question.headers, *((name.encode(), value.encode()) for name, value in part.items())]
        if self._turns and self._ahead is None:
            self._ahead = self._requested
        self._turns.append(turn)
        self._requested += 1
        return request_bytes("GET", self._question.target, headers)

    @property
    def left(self) -> int:
        """Number of bytes still to come, wanted or not."""
        return sum(turn.left for turn in self._turns)

    @property
    def coming(self) -> int:
        """Number of bytes that are certain to come: those of the response whose head has arrived."""
        return 0 if self._length is None else self._turns[0].left

    @property
    def wanted(self) -> bool:
        return any(turn.wanted for turn in self._turns)

    @property
    def over(self) -> bool:
        """Return whether the last response has come."""
        return self._last and self._length is None

    @property
    def serves_ahead(self) -> bool | None:
        """Return whether the server answers requests that precede its last response; None if none was sent."""
        return None if self._ahead is None else self.answered > self._ahead

    def feed(self, data: memoryview) -> None:
        """Process received bytes.

        :raises UnexpectedResponse: when the response does not fit the request
        :raises ServerBusy: when the server reports too many requests
        """
        while data and not self.over:
            if not self._turns:
                raise UnexpectedResponse
            turn = self._turns[0]
            if self._length is None:
                data = self._begin(turn, data)
            else:
                part = data[: turn.left]
                turn.take(self._length - turn.left, part)
                data = data[len(part) :]
            if self._length is not None and not turn.left:
                self._turns.popleft().end()
                self._length = None

    def _begin(self, turn: RangeRequest, data: memoryview) -> memoryview:
        """Process the head of a response; return the bytes after it."""
        known = len(self._begun)
        self._begun += data[:LONGEST]
        end = head_end(self._begun, known)
        if end is None:
            if len(self._begun) >= LONGEST:
                raise UnexpectedResponse
            return data[len(data) :]
        self._understand(turn, bytes(self._begun[:end]))
        self._begun.clear()
        return data[end - known :]

    def _understand(self, turn: RangeRequest, begun: bytes) -> None:
        try:
            head = read_head(begun)
        except ValueError:
            raise UnexpectedResponse from None
        if head.status < 200:
            return
        headers = head.headers
        if head.status in BUSY:
            raise refusal(
                head.status,
                head.reason,
                headers,
                self._question.shown,
                self._question.hidden,
            )
        self.moved = 300 <= head.status < 400 or head.status == 401
        if head.status != PARTIAL or not self._fits(turn, headers):
            raise UnexpectedResponse
        self._last = head.version == "1.0" or closes(headers)
        self._length = turn.left
        self.vague |= not validator(headers)
        self.answered += 1

    def _fits(self, turn: RangeRequest, headers: Mapping[str, str]) -> bool:
        """Return whether a response has exactly the requested range, of the same version of the file, unencoded."""
        stat, where, seen = self._question.stat, content_range(headers), validator(headers)
        return (
            where is not None
            and where[:2] == (turn.start, turn.start + turn.left)
            and where[2] in (None, stat.size)
            and headers.get("content-length") == str(turn.left)
            and "transfer-encoding" not in headers
            and headers.get("content-encoding", "identity") == "identity"
            and (not seen or not stat.validator or same_version(stat.validator, seen))
        )

    def end(self, error: BaseException | None = None) -> None:
        """End all ranges, because no more data will come."""
        while self._turns:
            self._turns.popleft().end(error)
        self._length = None
