"""Pipelined ranges on one HTTP connection: each range gets exactly its bytes."""

from concurrent.futures import Future
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.engine.http.messages import LONGEST
from coalloc.engine.http.pipeline import Pipeline, Question, UnexpectedResponse
from coalloc.engine.range_request import RangeRequest
from coalloc.engine.span import Span
from coalloc.errors import ServerBusy
from coalloc.model.replicas import Stat

CONTENT = bytes(range(256)) * 4
SIZE = len(CONTENT)
QUESTION = Question(b"/file", ((b"Host", b"here"),), Stat(SIZE, '"1"'), "http://here/file")


class Asked:
    """A requested range and its result."""

    def __init__(self, pipeline, start, end):
        self.span = Span(start, end)
        self.here = bytearray()
        self.over = Future()
        self.request = pipeline.ask(RangeRequest(self.span, self.deliver, self.over))

    def deliver(self, start, end, data):
        assert start == self.span.start + len(self.here)
        self.here += data

    @property
    def right(self):
        return self.over.done() and self.here == CONTENT[self.span.start : self.span.end]


def answer(start, end, **changes):
    """Return a server's answer for a range; headers are replaced, or left out if None."""
    headers = {
        "Content-Length": end - start,
        "Content-Range": f"bytes {start}-{end - 1}/{SIZE}",
        "ETag": '"1"',
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }
    lines = [f"{name}: {value}\r\n" for name, value in headers.items() if value is not None]
    return "".join(["HTTP/1.1 206 Partial Content\r\n", *lines, "\r\n"]).encode() + CONTENT[start:end]


def feed(pipeline, data, cuts=()):
    """Pass on `data`, split at these places."""
    for begin, end in pairwise([0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]):
        pipeline.feed(memoryview(data)[begin:end])


def test_each_request_is_signed_anew():
    times = iter("12")
    pipeline = Pipeline(QUESTION._replace(signed=lambda: {"Authorization": f"signed {next(times)}"}))
    requests = [Asked(pipeline, start, start + 10).request for start in (0, 10)]
    assert [b"Authorization: signed 1\r\n" in each for each in requests] == [True, False]
    assert b"Authorization: signed 2\r\n" in requests[1]


RANGES = st.tuples(st.integers(0, SIZE - 1), st.integers(1, 300)).map(lambda pair: (pair[0], min(SIZE, sum(pair))))


@given(st.lists(RANGES, min_size=1, max_size=5), st.sets(st.integers(1, 2500)), st.booleans())
def test_each_range_gets_its_bytes_however_they_arrive(ranges, cuts, hints):
    pipeline = Pipeline(QUESTION)
    asked = [Asked(pipeline, start, end) for start, end in ranges]
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" if hints else b""
    feed(pipeline, b"".join(hint + answer(start, end) for start, end in ranges), cuts)
    assert all(each.right for each in asked)
    assert pipeline.left == 0
    assert pipeline.serves_ahead is (True if len(ranges) > 1 else None)


def test_the_request_is_for_the_part_of_one_version():
    request = Asked(Pipeline(QUESTION), 10, 20).request
    assert request == b'GET /file HTTP/1.1\r\nHost: here\r\nRange: bytes=10-19\r\nIf-Range: "1"\r\n\r\n'


def test_bytes_no_longer_wanted_are_counted_but_not_delivered():
    pipeline = Pipeline(QUESTION)
    first, second = Asked(pipeline, 0, 100), Asked(pipeline, 100, 200)
    first.span.end = 30
    feed(pipeline, answer(0, 100)[:-50])
    assert first.right
    assert (pipeline.left, pipeline.coming, pipeline.wanted) == (150, 50, True)
    feed(pipeline, answer(0, 100)[-50:] + answer(100, 200))
    assert second.right
    assert len(first.here) == 30


@pytest.mark.parametrize(
    "begun",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-other\r\n\r\n",
        b"x" * LONGEST,
        answer(1, 101),
        answer(0, 100, Content_Range=f"bytes 0-99/{SIZE + 1}"),
        answer(0, 100, Content_Range=None),
        answer(0, 100, Content_Length=101),
        answer(0, 100, Content_Length=None, Transfer_Encoding="chunked"),
        answer(0, 100, Content_Encoding="gzip"),
        answer(0, 100, ETag='"2"'),
    ],
)
def test_any_other_answer_is_not_taken(begun):
    pipeline = Pipeline(QUESTION)
    asked = Asked(pipeline, 0, 100)
    with pytest.raises(UnexpectedResponse):
        feed(pipeline, begun)
    assert not asked.here
    assert not pipeline.moved


def test_the_file_is_elsewhere():
    pipeline = Pipeline(QUESTION)
    Asked(pipeline, 0, 100)
    with pytest.raises(UnexpectedResponse):
        feed(pipeline, b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n")
    assert pipeline.moved


def test_busy_answer_carries_the_retry_after_time():
    pipeline = Pipeline(QUESTION)
    Asked(pipeline, 0, 100)
    with pytest.raises(ServerBusy) as caught:
        feed(pipeline, b"HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n")
    assert caught.value.retry_after == 7


def test_bytes_after_the_last_answer_are_ignored():
    pipeline = Pipeline(QUESTION)
    first, second = Asked(pipeline, 0, 100), Asked(pipeline, 100, 200)
    feed(pipeline, answer(0, 100, Connection="close") + answer(100, 200))
    assert pipeline.over
    assert first.right
    assert pipeline.serves_ahead is False
    pipeline.end()
    assert second.over.done()
    assert not second.here


def test_unrequested_answer_is_an_error():
    with pytest.raises(UnexpectedResponse):
        feed(Pipeline(QUESTION), answer(0, 100))
