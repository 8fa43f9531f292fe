"""Channels that copy bytes from one host to another, and stay open between pieces.

Between two servers, a channel is a pair of sessions (`ServerPair`); from a server to this machine, it is one or more
sessions (`Inward`): of GridFTP in `gridftp_inward`, of other protocols in `read_only_server`. `hop_queue` opens
channels, decides what to copy next, and closes channels that are idle when others wait for their connections.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack, suppress
from typing import ClassVar

from coalloc.collect.runtime.holder import Holder
from coalloc.collect.runtime.link_waits import LinkWaits
from coalloc.collect.runtime.local_destination import LocalDestination
from coalloc.collect.runtime.server import CollectServer
from coalloc.engine.gridftp.thirdparty import ThirdParty, open_third_party
from coalloc.engine.gridftp.transfer import StoredCallback
from coalloc.engine.span import Deliver, Span, pieces
from coalloc.errors import ConnectionLost, ReplicaChanged, SourceError, Stalled
from coalloc.safe_text import without_query

__all__ = ["Channel", "Inward", "ServerPair"]

STALL_SECONDS = 30.0
"""Seconds after which a server that sends nothing is reconnected."""
LOOKS = 4
"""Number of checks within `STALL_SECONDS`."""


class Channel(ABC):
    """A channel from one host to another. Several pieces may be in flight at once."""

    sliced: ClassVar[bool]
    """Whether to copy long pieces in slices: True if a copy can be ended only by closing the whole channel."""

    @property
    @abstractmethod
    def usable(self) -> bool:
        """Return whether the channel can copy more."""

    @property
    @abstractmethod
    def queues(self) -> bool:
        """Return whether pieces follow each other on one connection, so that many can be requested ahead."""

    @property
    def wanted(self) -> bool:
        """Return whether others of this machine wait for one of its connections."""
        return False

    def spare(self) -> None:
        """Give back idle connections that others of this machine wait for."""

    def held(self, sink: str, start: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges of [start, end) that earlier runs stored at the sink, and that `copy` leaves out."""
        return []

    @abstractmethod
    async def copy(self, source: str, sink: str, start: int, end: int, received: StoredCallback) -> None:
        """Copy bytes [start, end) to the same offset of another file; an empty range copies an empty file.

        :param source: path at the source
        :param sink: path at the sink, or the file's name for `LocalDestination`
        :param received: callback for bytes that are stored permanently
        :raises SourceError: or a SinkError, if this machine is the sink
        """

    @abstractmethod
    def close(self) -> None:
        """Close all connections; may be called twice."""


class ServerPair(Channel):
    """A channel between two servers.

    :param ends: the servers whose connections it has
    :param leases: gives these connections back
    """

    sliced = True

    def __init__(self, sessions: ThirdParty, ends: Sequence[CollectServer], leases: ExitStack) -> None:
        self._sessions = sessions
        self._ends = ends
        self._leases = leases

    @classmethod
    async def open(cls, source: CollectServer, sink: CollectServer, waits: LinkWaits) -> "ServerPair":
        """Open a channel, as soon as both servers have a free connection.

        Connections are taken in the order of the servers' names, so that two channels never wait for each other.

        :raises SourceError: when a login is refused, or the servers cannot connect to each other
        """
        by_name = {server.name: server for server in (source, sink)}
        ends = [by_name[name] for name in sorted(by_name)]
        with ExitStack() as leases:
            for end in ends:
                with waits.waiting():
                    leases.callback((await end.lease()).release)
            sessions = await open_third_party(source.url, sink.url, source.options, sink_options=sink.options)
            return cls(sessions, ends, leases.pop_all())

    @property
    def wanted(self) -> bool:
        return any(end.wanted for end in self._ends)

    @property
    def usable(self) -> bool:
        return self._sessions.usable

    @property
    def route(self) -> str:
        """The route between the servers: a depot, or "none"."""
        return self._sessions.route

    @property
    def queues(self) -> bool:
        return True

    async def copy(self, source: str, sink: str, start: int, end: int, received: StoredCallback) -> None:
        ranges = [(start, end)] if start < end else None
        await self._sessions.copy(source, sink, end, ranges, received)

    def close(self) -> None:
        self._sessions.close()
        self._leases.close()


class Inward(Channel):
    """A channel from a server to this machine. Each piece waits for its turn if the rate is limited."""

    sliced = False

    def __init__(self, source: Holder, here: LocalDestination, waits: LinkWaits) -> None:
        self._holder = source
        self._here = here
        self._waits = waits
        self._time = asyncio.get_running_loop().time
        self._moved = 0.0

    @property
    def usable(self) -> bool:
        return True

    def held(self, sink: str, start: int, end: int) -> list[tuple[int, int]]:
        return self._here.held(sink, start, end)

    async def copy(self, source: str, sink: str, start: int, end: int, received: StoredCallback) -> None:
        missing = self._here.missing(sink, start, end)

        def deliver(start: int, end: int, data: memoryview | None) -> None:
            assert data is not None, "these channels end at this machine"
            self._note_progress()
            self._here.write(sink, self._holder.label, start, data)
            received(start, end)

        admission = self._holder.options.admission
        for gap in missing:
            for part in pieces(Span(*gap), admission.piece) if admission else [Span(*gap)]:
                await self._admit(part.end - part.start)
                await self._fetch_part(source, Span(part.start, part.end), deliver)

    async def _admit(self, nbytes: int) -> None:
        """Wait until so many bytes may be requested."""
        if admission := self._holder.options.admission:
            with self._waits.waiting():
                await admission.wait(nbytes)

    async def _fetch_part(self, path: str, span: Span, deliver: Deliver) -> None:
        try:
            await self._fetch(path, span, deliver)
        except ConnectionLost:
            await self._see_size(path, span.end)
            raise

    def _note_progress(self) -> None:
        """Record that the channel has not stalled."""
        self._moved = self._time()

    @abstractmethod
    async def _fetch(self, path: str, span: Span, deliver: Deliver) -> None:
        """Fetch a range of a file, and watch the transfer.

        :raises SourceError: when that fails
        """

    async def _see_size(self, path: str, end: int) -> None:
        """Check the size of a file whose transfer ended early; a retry cannot complete a file that became shorter.

        :raises ReplicaChanged: when the file has become too short
        """
        now = None
        with suppress(SourceError):
            now = await self._holder.stat_now(path)
        if now is not None and now.size < end:
            changed = f"{self._holder.label}{without_query(path)} shrank to {now.size} bytes during the collect job"
            raise ReplicaChanged(changed, "run the same command again")

    async def _watched(self, fetch: Coroutine[None, None, object], span: Span) -> None:
        """Wait for a fetch. :raises Stalled: when the server has sent nothing over this channel for too long"""
        fetching = asyncio.ensure_future(fetch)
        self._note_progress()
        try:
            while not fetching.done():
                await asyncio.wait({fetching}, timeout=STALL_SECONDS / LOOKS)
                if span.held:
                    self._note_progress()
                if not fetching.done() and self._time() - self._moved > STALL_SECONDS:
                    self._drop()
                    raise Stalled(f"no data came from {self._holder.label} for {STALL_SECONDS:g} s", "try again later")
            fetching.result()
        finally:
            fetching.cancel()
            await asyncio.wait({fetching})

    def _drop(self) -> None:
        """Close the connection that all pieces share, if there is one, as its server has stalled."""
