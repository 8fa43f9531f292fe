"""One session for a file at an HTTP server: its size and version, then its ranges, one request each.

Ranges come over a `channel`, a persistent connection; from a distant server, they are requested ahead. An `exchange`
sends other requests, one at a time: to find the file, to follow redirects, and to find the cause of a failure. A server
that ignores ranges is recognised by its response, not by its headers.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from coalloc.engine.base import EngineOptions, Source
from coalloc.engine.http.answers import (
    BUSY,
    DENIED,
    PARTIAL,
    closes,
    completed,
    condition,
    content_range,
    validator,
)
from coalloc.engine.http.channel import HTTPChannel, HTTPConnection, RangeEnded
from coalloc.engine.http.dav_urls import is_webdav, web_url
from coalloc.engine.http.digests import WANTED_DIGESTS, stated_digests
from coalloc.engine.http.exchange import HTTPExchange
from coalloc.engine.http.pipeline import Question
from coalloc.engine.http.plain import PlainAnswer, SentRequest
from coalloc.engine.http.responses import Answer, connection_of, is_direct, sent_request
from coalloc.engine.span import Deliver, RangePart, Span
from coalloc.errors import ConnectionLost, ReplicaChanged, SourceError, Stalled, Unsupported, UsageError
from coalloc.model.replicas import Stat
from coalloc.model.routes import PathState
from coalloc.model.validators import is_strong, same_version
from coalloc.util.counts import count

if TYPE_CHECKING:
    from coalloc.engine.http.multistatus import Properties

__all__ = ["FAR", "HTTPFindings", "HTTPSource"]

FAR = 0.01
"""Round-trip time in seconds above which ranges are requested ahead."""
VARYING = frozenset(name.lower().encode() for name in (*WANTED_DIGESTS, "Range", "If-Range"))
"""Headers that differ between requests."""
NOTHING_THERE = 416
BRIEF, BRIEF_TRIPS = 1.0, 20
"""Seconds, or round trips, in which a file is assumed not to be overwritten in place, which saves a query."""


class HTTPFindings:
    """Findings that the sessions with one replica share.

    `rtt`: round-trip time in seconds, once the server was reached. `ahead`: the server answers requests sent ahead;
    None if not tried yet. `longest`: longest time of a range in seconds. `vague`: a response did not identify the
    version of the file. `described`: whether the server of a dav(s) URL was asked for the file's `properties`.
    """

    rtt: float | None = None
    ahead: bool | None = None
    longest: float = 0.0
    vague: bool = False
    described: bool = False
    properties: "Properties | None" = None


class HTTPSource(Source):
    """One session for a file at an HTTP server.

    :param known: findings shared with other sessions for the same file
    :param number: number of this session, from 0; sessions other than 0 try whether ranges can be requested ahead
    :raises UsageError: when the URL names no host
    """

    def __init__(self, url: str, options: EngineOptions, known: HTTPFindings | None = None, number: int = 0) -> None:
        super().__init__(url, options)
        self._known = known or HTTPFindings()
        self._number = number
        self._server = HTTPExchange(web_url(url), options, self._reached)
        self._shown = self._server.shown
        if not urlsplit(url).hostname:
            raise UsageError(f"{self._shown} names no host", "write http://HOST/PATH")
        self._agreed: Stat | None = None
        self._idle: tuple[HTTPConnection, SentRequest] | None = None
        self._channel: HTTPChannel | None = None
        self._next = asyncio.Lock()
        self._unchanged_at = -inf

    async def open(self) -> Stat:
        await self.close()
        # The time is doubled: for the connection, which reports its own time-out, and for the response.
        seconds = 2 * self.options.connect_seconds
        try:
            async with asyncio.timeout(seconds):
                stat = await (self._ask_webdav() if is_webdav(self.url) else self._ask())
        except TimeoutError:
            raise Stalled(f"{self._shown} did not answer within {seconds:g} s", "try again later") from None
        listed = self.options.stated
        self._agreed = completed(stat, listed.size, listed.validator, listed.checksums) if listed else stat
        return self._agreed

    async def _ask_webdav(self) -> Stat:
        """Ask for the file's properties, too, once for all sessions: their checksums may not be in the headers."""
        from coalloc.engine.http.webdav import stated_properties  # imported here because few servers need it

        if not self._known.described:
            self._known.properties = await stated_properties(self._server)
            self._known.described = True
        stat, known = await self._ask(), self._known.properties
        return completed(stat, known.entry.size, known.etag, known.checksums) if known else stat

    async def _ask(self) -> Stat:
        """Ask by HEAD, which suffices if it is allowed and the server announces ranges; else by a GET of one byte."""
        first = self.options.first.take(self.url, self.options.dialer) if self.options.first else None
        begun = first if isinstance(first, PlainAnswer) else None
        async with self._server.answer("HEAD", WANTED_DIGESTS, begun) as head:
            await self._ended(head, 0)
            if head.status_code in BUSY:
                raise self._server.refusal(head)
            refused = self._server.refusal(head) if head.status_code in DENIED else None
            size = count(head.headers.get("content-length", ""))
            if head.status_code == 200 and size is not None and head.headers.get("accept-ranges") == "bytes":
                if not head.history:  # after a redirect, a GET may be redirected to another server
                    self._keep(head)
                return self._stat(size, head, ranged=True)
        async with self._server.answer("GET", {**WANTED_DIGESTS, "Range": "bytes=0-0"}) as part:
            if refused and part.status_code >= 500:  # XRootD gives the reason only in its answer to HEAD
                raise refused
            if part.headers.get("content-length") == "1" and await self._ended(part, 1):
                self._keep(part)
            return await self._understand(part)

    async def _ended(self, answer: Answer, size: int) -> bool:
        """Read a response of `size` bytes, so that its connection is kept; return False if it is longer."""
        read = 0
        with self._server.border():
            async for chunk in answer.aiter_raw():
                read += len(chunk)
                if read > size:
                    return False
        return True

    async def _understand(self, part: Answer) -> Stat:
        """Evaluate the response to a request for the first byte."""
        where = content_range(part.headers)
        if part.status_code == PARTIAL and where and where[:2] == (0, 1):
            size = where[2]
        elif part.status_code == NOTHING_THERE and part.headers.get("content-range") == "bytes */0":
            size = 0
        elif part.status_code == 200:
            size = count(part.headers.get("content-length", ""))
            if size is None and self._known.properties:  # the end of the answer will show whether it is right
                size = self._known.properties.entry.size or None  # an empty file would need no answer
        else:
            raise await self._refusal(part)
        if size is None:
            directory = sent_request(part).target.partition(b"?")[0].endswith(b"/")  # perhaps after a redirect
            remedy = "if it is a directory, fetch it by coget get -r" if directory else "use another replica"
            raise Unsupported(f"{self._shown}: the server does not state the size", remedy)
        return self._stat(size, part, ranged=part.status_code != 200 or size == 0)

    async def _refusal(self, answer: Answer) -> SourceError:
        """Return the error for a response; subclasses may read its body."""
        return self._server.refusal(answer)

    def _stat(self, size: int, answer: Answer, ranged: bool) -> Stat:
        headers = answer.headers
        self._refuse_encoding(headers)
        rtt = connection_of(answer).get_extra_info("rtt")
        stated = stated_digests(
            headers, whole=answer.status_code == 200, bodiless=sent_request(answer).method == "HEAD"
        )
        unused = tuple(map(self._server.hidden, stated.unused))
        return Stat(size, validator(headers), stated.usable, ranged, rtt, unused)

    def _keep(self, answer: Answer) -> None:
        """Keep the connection of a fully read response, if the next range can be requested on it."""
        counted = answer.http_version == "HTTP/1.1" and "content-length" in answer.headers
        if counted and not closes(answer.headers) and is_direct(answer):
            self._idle = connection_of(answer), sent_request(answer)
        elif self._known.ahead is None:
            self._known.ahead = False

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            await self._fetch(span, deliver)
        finally:
            self._known.longest = max(self._known.longest, clock() - began)

    async def _fetch(self, span: Span, deliver: Deliver) -> None:
        while span.start < span.end:
            async with self._next:
                channel = await self._usable_channel()
                if channel is None:
                    await self._fetch_alone(span, deliver)
                    return
            try:
                await channel.fetch(span, deliver)
            except RangeEnded as ended:
                self._learn(channel)
                span = RangePart(span, ended.at, span.end)
            else:
                if channel.pipeline.serves_ahead:
                    self._known.ahead = True
                return
            finally:
                self._known.vague |= channel.pipeline.vague
                self._unchanged_at = max(self._unchanged_at, channel.unchanged_at)

    async def _usable_channel(self) -> HTTPChannel | None:
        """Return the persistent connection, or None if there is none."""
        if self._channel and self._channel.usable:
            return self._channel
        idle, self._idle, self._channel = self._idle, None, None
        if idle and self._agreed and self._agreed.ranged and not idle[0].get_extra_info("is_readable"):
            connection, request = idle
            signer = self._server.signer
            varying = VARYING.union(name.encode() for name in signer.names) if signer else VARYING
            headers = tuple((name, value) for name, value in request.headers if name.lower() not in varying)
            signed = partial(signer.sign, "GET") if signer else dict
            question = Question(request.target, headers, self._agreed, self._shown, self._server.hidden, signed)
            self._channel = await HTTPChannel.take_over(question, connection)
        return self._channel

    def _learn(self, channel: HTTPChannel) -> None:
        """Learn from a failed channel whether the server answers requests sent ahead."""
        if self._known.ahead is None and not channel.pipeline.moved:
            self._known.ahead = channel.pipeline.serves_ahead

    async def _fetch_alone(self, span: Span, deliver: Deliver) -> None:
        """Request a range alone; the next request waits until all of it has come."""
        admitted = await span.admitted(span.start)
        requested_end, requested_at = span.end, asyncio.get_running_loop().time()
        async with self._part(span.start, requested_end) as answer:
            if validator(answer.headers):
                self._unchanged_at = max(self._unchanged_at, requested_at)
            at = span.start
            unranged = self._agreed is not None and not self._agreed.ranged
            chunks, rest = answer.aiter_raw(), memoryview(b"")
            whole = self._agreed is not None and unranged and requested_end == self._agreed.size
            while at < span.end:
                if at >= admitted:
                    admitted = await span.admitted(at)
                    if admitted <= at:  # the end was lowered meanwhile
                        break
                if not rest:
                    with self._server.border():
                        rest = memoryview(await anext(chunks, b""))
                chunk, rest = rest[: admitted - at], rest[admitted - at :]
                if not chunk:
                    raise ConnectionLost(
                        f"{self._shown}: the data ended at byte {at} of {span.start}-{requested_end}", "try again"
                    )
                start, at = at, min(at + len(chunk), max(at, span.end))
                if whole and at == requested_end:  # before the delivery, which may complete the file
                    await self._refuse_more(rest, chunks)
                if start < at:
                    deliver(start, at, chunk[: at - start])
                await asyncio.sleep(0)  # reading buffered data never pauses: give other tasks and cancellation a turn
            if at == requested_end and "content-length" in answer.headers:
                with self._server.border():
                    await anext(chunks, b"")  # reads the end of the body, so that the connection is kept
        if at == requested_end:
            self._keep(answer)

    async def _refuse_more(self, rest: memoryview, chunks: AsyncIterator[bytes]) -> None:
        """Check that the whole file, of which `rest` has come beyond its size, ends where the server stated."""
        with self._server.border():
            more = len(rest) or len(await anext(chunks, b""))
        if more:
            what = f"{self._shown}: the server sends more than the size that it stated"
            raise ReplicaChanged(what, "start again, or use another replica")

    @property
    def path_state(self) -> PathState | None:
        if self._channel:
            return self._channel.path_state
        return PathState(self._known.rtt) if self._known.rtt and not self._next.locked() else None

    @property
    def unchanged_at(self) -> float:
        if self._agreed is None or not condition(self._agreed.validator):
            return -inf  # the requests name no version, so their answers show none
        return max(self._unchanged_at, self._channel.unchanged_at) if self._channel else self._unchanged_at

    @property
    def queues(self) -> bool:
        persistent = self._idle or (self._channel and self._channel.usable)
        return bool(persistent) and self._may_queue and (self._known.ahead is True or self._number > 0)

    @property
    def will_queue(self) -> bool:
        return self._may_queue and not self.queues

    @property
    def _may_queue(self) -> bool:
        """Return whether requesting ahead is worthwhile, and may be possible."""
        far = self._agreed is not None and self._agreed.ranged and (self._agreed.rtt or 0.0) >= FAR
        return far and self._known.ahead is not False

    def _reached(self, rtt: float | None) -> None:
        self._known.rtt = rtt

    @asynccontextmanager
    async def _part(self, start: int, end: int) -> AsyncIterator[Answer]:
        """Request [start, end) and yield the response, after a check that it has this range of the file's version."""
        stat = self._agreed
        if stat and not stat.ranged:
            if start:
                raise Unsupported(f"{self._shown}: the server cannot send a part of a file", "use another replica")
            headers = {}
        else:
            headers = {"Range": f"bytes={start}-{end - 1}", **condition(stat.validator if stat else None)}
        async with self._server.answer("GET", headers) as answer:
            self._check_version(answer)
            if headers and answer.status_code == 200:
                raise Unsupported(f"{self._shown}: the server ignored a request for a part", "use another replica")
            if headers and answer.status_code == NOTHING_THERE:
                raise self._contradiction(answer, start, end)
            if answer.status_code != (PARTIAL if headers else 200):
                raise await self._refusal(answer)
            if headers:
                self._check_place(answer, start, end)
            yield answer

    def _contradiction(self, answer: Answer, start: int, end: int) -> SourceError:
        """Return the error for the answer that the file, whose size the server stated, has no such range."""
        size = count(answer.headers.get("content-range", "").removeprefix("bytes */"))
        if self._agreed and size not in (None, self._agreed.size):
            return ReplicaChanged(f"{self._shown} has {size} bytes now, not {self._agreed.size}", "start again")
        what = f"{self._shown}: the server says 416 to a request for bytes {start}-{end - 1}"
        return Unsupported(f"{what}, although it states a larger size", "use another replica")

    def _check_version(self, answer: Answer) -> None:
        self._refuse_encoding(answer.headers)
        if self._agreed is None or answer.status_code not in (200, PARTIAL):
            return
        seen = validator(answer.headers)
        self._known.vague |= not seen
        if seen and self._agreed.validator and not same_version(self._agreed.validator, seen):
            raise ReplicaChanged(f"{self._shown} changed while it was fetched", "start again")

    def _check_place(self, answer: Answer, start: int, end: int) -> None:
        where = content_range(answer.headers)
        if where is None or where[:2] != (start, end):
            sent = self._server.hidden(answer.headers.get("content-range", "no Content-Range"))
            raise Unsupported(
                f"{self._shown}: the server sent {sent} instead of bytes {start}-{end - 1}",
                "use another replica",
            )
        if self._agreed and where[2] not in (None, self._agreed.size):
            raise ReplicaChanged(f"{self._shown} has {where[2]} bytes now, not {self._agreed.size}", "start again")

    def _refuse_encoding(self, headers: Mapping[str, str]) -> None:
        encoding = headers.get("content-encoding", "identity")
        if encoding != "identity":
            shown = self._server.hidden(encoding)
            raise Unsupported(f"{self._shown}: the server sends the file encoded as {shown}", "use another replica")

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        """Return the digest of the whole file that `open` received; None for ranges, as HTTP has no query for them."""
        if self._agreed is None or (start, end) != (0, self._agreed.size):
            return None
        return next((checksum.value for checksum in self._agreed.checksums if checksum.algorithm == algorithm), None)

    async def recheck(self) -> Stat | None:
        stat, known = self._agreed, self._known
        if stat is None or known.vague or not stat.ranged or not stat.size:
            return await self.open()
        if is_strong(stat.validator) and known.longest < max(BRIEF, BRIEF_TRIPS * (known.rtt or 0.0)):
            return None
        await self.fetch(Span(0, 1), lambda *_: None)  # fails if the version is not the one that `open` saw
        return await self.open() if known.vague else stat

    async def close(self) -> None:
        self._idle = None
        if self._channel:
            self._channel.close()
            self._channel = None
        await self._server.close()
