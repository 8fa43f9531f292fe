"""Ranges that are asked for ahead on one HTTP/1.1 connection, and which of its bytes belong to which. No I/O.

A server answers in the order of asking (RFC 9112, 9.3.2). How an answer begins is left to h11; its body is counted, and
goes where it belongs without being copied. Only a plain answer to what was asked is taken: with any other the
connection ends, and what is wrong is for `source` to find out, which then asks for one at a time.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import h11

from coalloc.engine.http.answers import BUSY, PARTIAL, closes, condition, content_range, refusal, validator
from coalloc.engine.turn import Turn
from coalloc.model import Stat
from coalloc.urls import redacted_text

__all__ = ["Pipeline", "Question", "Unanswered"]

END = b"\r\n\r\n"
LONGEST = 64 * 1024
"""Bytes at the beginning of an answer, before its body."""


class Unanswered(Exception):
    """What came is not what was asked for. Internal: the connection is of no use."""


@dataclass(frozen=True)
class Question:
    """What every request says.

    :param target: of the file, as the server of this connection calls it
    :param headers: but for those about ranges
    :param stat: of the file that parts are wanted of
    :param shown: the URL as it is shown
    :param hidden: what hides the secrets of URLs in what the server says
    """

    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    stat: Stat
    shown: str
    hidden: Callable[[str], str] = redacted_text


class Pipeline:
    """The ranges that are to come over one connection, in their order."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._turns: deque[tuple[Turn, h11.Connection]] = deque()
        self._begun = bytearray()
        self._length: int | None = None
        self._asked = 0
        self.answered = 0
        """How many answers have begun."""
        self._ahead: int | None = None
        self._last = False
        self.vague = False
        """Whether an answer did not say of which version of the file it is."""
        self.moved = False
        """Whether the server has said that the file is elsewhere."""

    def ask(self, turn: Turn) -> bytes:
        """What to send for one more range."""
        parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=LONGEST)
        part = {"Range": f"bytes={turn.start}-{turn.start + turn.left - 1}", **condition(self._question.stat.validator)}
        headers = [*self._question.headers, *((name.encode(), value.encode()) for name, value in part.items())]
        request = h11.Request(method="GET", target=self._question.target, headers=headers)
        if self._turns and self._ahead is None:
            self._ahead = self._asked
        self._turns.append((turn, parser))
        self._asked += 1
        return (parser.send(request) or b"") + (parser.send(h11.EndOfMessage()) or b"")

    @property
    def left(self) -> int:
        """Bytes that are to come, wanted or not."""
        return sum(turn.left for turn, _ in self._turns)

    @property
    def coming(self) -> int:
        """Bytes that are certain to come next: what may be an answer of another kind is not."""
        return 0 if self._length is None else self._turns[0][0].left

    @property
    def wanted(self) -> bool:
        return any(turn.wanted for turn, _ in self._turns)

    @property
    def over(self) -> bool:
        """Whether the last answer has come."""
        return self._last and self._length is None

    @property
    def serves_ahead(self) -> bool | None:
        """Whether what was asked for before its turn was answered; None if nothing was."""
        return None if self._ahead is None else self.answered > self._ahead

    def feed(self, data: memoryview) -> None:
        """Bytes have arrived.

        :raises Unanswered: when they are not what was asked for
        :raises ServerBusy: when they say that too much is asked
        """
        while data and not self.over:
            if not self._turns:
                raise Unanswered
            turn, parser = self._turns[0]
            if self._length is None:
                data = self._begin(turn, parser, data)
            else:
                part = data[: turn.left]
                turn.take(self._length - turn.left, part)
                data = data[len(part) :]
            if self._length is not None and not turn.left:
                self._turns.popleft()[0].end()
                self._length = None

    def _begin(self, turn: Turn, parser: h11.Connection, data: memoryview) -> memoryview:
        """Read how an answer begins; what lies behind that."""
        known = len(self._begun)
        self._begun += data[:LONGEST]
        end = self._begun.find(END, max(0, known - len(END) + 1))
        if end < 0:
            if len(self._begun) >= LONGEST:
                raise Unanswered
            return data[len(data) :]
        end += len(END)
        self._understand(turn, parser, bytes(self._begun[:end]))
        self._begun.clear()
        return data[end - known :]

    def _understand(self, turn: Turn, parser: h11.Connection, begun: bytes) -> None:
        try:
            parser.receive_data(begun)
            answer = parser.next_event()
        except h11.RemoteProtocolError:
            raise Unanswered from None
        if isinstance(answer, h11.InformationalResponse):
            return
        if not isinstance(answer, h11.Response):
            raise Unanswered
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in answer.headers}
        if answer.status_code in BUSY:
            raise refusal(
                answer.status_code,
                answer.reason.decode("latin-1"),
                headers,
                self._question.shown,
                self._question.hidden,
            )
        self.moved = 300 <= answer.status_code < 400
        if answer.status_code != PARTIAL or not self._fits(turn, headers):
            raise Unanswered
        self._last = answer.http_version < b"1.1" or closes(headers)
        self._length = turn.left
        self.vague |= not validator(headers)
        self.answered += 1

    def _fits(self, turn: Turn, headers: Mapping[str, str]) -> bool:
        """Whether an answer carries just the range, of the same version of the file, and says how long it is."""
        stat, where, seen = self._question.stat, content_range(headers), validator(headers)
        return (
            where is not None
            and where[:2] == (turn.start, turn.start + turn.left)
            and where[2] in (None, stat.size)
            and headers.get("content-length") == str(turn.left)
            and "transfer-encoding" not in headers
            and headers.get("content-encoding", "identity") == "identity"
            and (not seen or not stat.validator or seen == stat.validator)
        )

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more comes."""
        while self._turns:
            self._turns.popleft()[0].end(error)
        self._length = None
