"""Copies of files between two servers, whose bytes do not pass this machine.

The servers connect to each other in MODE E. The sink listens, the source connects, and the connections are kept between
files. They are direct, or go over a depot that opens a port for the source. Commands for many files are under way at
once. Each file is requested from the source first, and from the sink only once the source has opened it. So the sink
creates no file that the source refuses, and the bytes of one file are never written to another.

`transfer` handles one file.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from coalloc.depot.protocol.addresses import HostPort
from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.address import Address, parse_server
from coalloc.engine.gridftp.login import GridFTPLogin, security_for
from coalloc.engine.gridftp.replies import Reply, port_command
from coalloc.engine.gridftp.security import DataMode
from coalloc.engine.gridftp.transfer import RangeTransfer, StoredCallback
from coalloc.errors import ConnectionLost, SourceError, Stalled, Unsupported
from coalloc.model.routes import DIRECTLY
from coalloc.util.concurrency import gather
from coalloc.util.counts import count

if TYPE_CHECKING:
    from coalloc.depot.data_routes import DepotPort

__all__ = ["ThirdParty", "open_third_party"]

End = TypeVar("End", bound=GridFTPLogin)
Both = tuple[EngineOptions, EngineOptions]
"""Options for the source and for the sink."""
UNPROTECTED: Sequence[DataMode] = ("N",)
"""Data channel authentication: none, since the two servers may trust different authorities."""
DELEGATED: Sequence[DataMode] = ("A",)
"""Each server shows the other a delegated proxy: used if a server requires it, and both hosts may get one."""
WINDOW = 64
"""Maximum number of files under way at once. If a file fails in the middle, all later ones have to start again."""
LOOKS = 4
"""Number of checks for progress within the stall time."""


class _Source(GridFTPLogin):
    """The sending server, with as many streams as the options name."""

    def _questions(self) -> Sequence[str]:
        streams = self.options.streams
        return "MODE E", f"OPTS RETR Parallelism={streams},{streams},{streams};"

    async def _answered(self, answers: Sequence[Reply]) -> None:
        _need(self, answers[0])
        if self.options.streams > 1:
            _need(self, answers[1])


class _Sink(GridFTPLogin):
    """The receiving server."""

    listens: Reply

    def _questions(self) -> Sequence[str]:
        return "MODE E", self.data.command

    async def _answered(self, answers: Sequence[Reply]) -> None:
        mode, self.listens = answers
        _need(self, mode)


def _need(end: GridFTPLogin, reply: Reply) -> None:
    if not reply.positive:
        where = end.control.where
        raise Unsupported(
            f"{where} cannot copy to or from another server: it says {reply.code} {reply.text}", "download from it"
        )


class ThirdParty:
    """Copies from one server to another, made by `coalloc.api.third_party`; may be used by several tasks at once.

    :param stall_seconds: time without progress after which copies fail; servers report progress every 5 s
    :param port: the port at a depot to which the source connects; None if it connects to the sink
    """

    def __init__(
        self, source: GridFTPLogin, sink: GridFTPLogin, stall_seconds: float, port: "DepotPort | None" = None
    ) -> None:
        self.source = source
        self.sink = sink
        self._port = port
        self._stall_seconds = stall_seconds
        self._window = asyncio.Semaphore(WINDOW)
        self._under_way: set[RangeTransfer] = set()
        self._error: SourceError | None = None
        self.doubtful = False
        """Whether a transfer has failed and its reason is not known yet; until then, no transfer begins or ends."""
        self._loop = asyncio.get_running_loop()
        self._moved = 0.0
        self._look: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()
        await asyncio.sleep(0)  # the loop closes the sockets in its next iteration

    @property
    def usable(self) -> bool:
        """Return whether more can be copied."""
        relayed = self._port is None or self._port.is_open
        return self._error is None and not self.doubtful and relayed and self.source.usable and self.sink.usable

    @property
    def route(self) -> str:
        """The route of the data connections: a depot, or "none"."""
        return str(self._port.route) if self._port else DIRECTLY

    @property
    def notice(self) -> str:
        """Return why the data connections do not take the wanted route; empty if they do."""
        routes = self.sink.options.data_routes
        return routes.why_direct(self.sink.address.host) if routes and not self._port else ""

    async def copy(
        self,
        source_path: str,
        sink_path: str,
        size: int,
        ranges: Sequence[tuple[int, int]] | None = None,
        received: StoredCallback | None = None,
    ) -> None:
        """Copy a file of `size` bytes, or `ranges` [start, end) of it to the same offsets of a file that may exist.

        A whole file replaces an existing one. Returns when all bytes are counted: by the sink's markers, or, if it
        sends none, by the size of the file at the sink. `received` is called meanwhile for ranges that are permanently
        on disk; an exception that it raises ends the copy.

        If a file fails after it has begun, or is cancelled, this pair is no longer `usable`, and all other files under
        way fail, too: until they are copied again, their content at the sink is undefined.

        :raises NoSuchFile: (or another refusal) by the source or the sink; its message names the server
        :raises ReplicaChanged: when the source has more or fewer than `size` bytes
        :raises ConnectionLost: when a server cannot be reached any more, or another file's failure has ended this pair
        :raises Stalled: when nothing has moved for too long
        """
        source, sink = await self.source.locate(source_path), await self.sink.locate(sink_path)
        transfers: list[RangeTransfer] = []
        try:
            for start, end in ((0, size),) if ranges is None else ranges:
                whole = ranges is None
                retrieve = f"RETR {source.path}" if whole else f"ERET P {start} {end - start} {source.path}"
                store = f"STOR {sink.path}" if whole else f"ESTO A {start} {sink.path}"
                await self._window.acquire()
                transfers.append(RangeTransfer(self, start, end, (retrieve, source), (store, sink), received))
                self._begin(transfers[-1])
            errors = [await transfer.over for transfer in transfers]
        except asyncio.CancelledError:
            if not all(transfer.ended for transfer in transfers):
                self.fail(ConnectionLost(f"{sink.shown}: a copy that had begun was cancelled", "connect again"))
            raise
        for error in filter(None, errors):
            raise error
        if not all(transfer.progress.reported for transfer in transfers):
            await self._check_size(sink, size, least=max((end for _, end in ranges), default=0) if ranges else size)

    def _begin(self, transfer: RangeTransfer) -> None:
        if not self._under_way:
            self.moved()
            self._look = self._look or self._loop.call_later(self._stall_seconds / LOOKS, self._look_now)
        self._under_way.add(transfer)
        if self._error:
            transfer.end(self._error)
        elif not self.doubtful:
            transfer.begin()

    def ended(self, transfer: RangeTransfer) -> None:
        """Remove a transfer, so that another one can begin."""
        self._under_way.discard(transfer)
        self._window.release()

    def moved(self) -> None:
        """Record that data moved: the time until the copies count as stalled begins again."""
        self._moved = self._loop.time()

    def _look_now(self) -> None:
        self._look = None
        if not self._under_way:
            return
        if self._loop.time() - self._moved > self._stall_seconds:
            ends = f"{self.source.control.where} to {self.sink.control.where}"
            self.fail(Stalled(f"no data moved from {ends} for {self._stall_seconds:g} s", "try again later"), True)
        else:
            self._look = self._loop.call_later(self._stall_seconds / LOOKS, self._look_now)

    async def _check_size(self, sink: Address, size: int, least: int) -> None:
        """Check the size of the file at a sink that sent no markers."""
        reply = await self.sink.control.submit(f"SIZE {sink.path}", self.sink.options.connect_seconds)
        if reply.code == 213 and (has := count(reply.lines[0].strip())) is not None and least <= has <= size:
            return
        raise ConnectionLost(f"{sink.shown} has {reply.text[:40]} of {size} bytes", "copy it again")

    def fail(self, error: SourceError, broken: bool = False) -> None:
        """Close both sessions and fail all transfers under way; may be called twice.

        :param broken: whether the connection between the servers may be at fault: then the next pairs connect directly
        """
        if self._port and broken and not self._error:
            self._avoid_route(self._port, error)
        self._error = self._error or error
        if self._look:
            self._look.cancel()
            self._look = None
        for transfer in list(self._under_way):  # before the sessions report that they are closed
            transfer.end(self._error)
        self.source.close()
        self.sink.close()
        if self._port:
            self._port.close()

    def _avoid_route(self, port: "DepotPort", error: SourceError) -> None:
        if routes := self.sink.options.data_routes:
            routes.avoid(self.sink.address.host, port.trouble() or f"depot {port.route}: {error}")

    def close(self) -> None:
        """Close both sessions, and end all transfers under way; may be called twice."""
        self.fail(ConnectionLost("the copy was stopped", "connect again"))


async def open_third_party(
    source: str,
    sink: str,
    options: EngineOptions,
    proxies: tuple[Path | None, Path | None] = (None, None),
    stall_seconds: float = 30.0,
    sink_options: EngineOptions | None = None,
) -> ThirdParty:
    """Log in to the servers of two URLs, and connect them to each other.

    :param options: options for the source, and for the sink unless `sink_options` are given
    :param proxies: the files of the proxies to show to source and sink; None for the user's usual one
    :raises DelegationNeeded: when a server requires a proxy, and not both hosts may get one
    """
    each = options, sink_options or options
    try:
        return await _open_both(source, sink, each, proxies, stall_seconds, UNPROTECTED)
    except Unsupported as error:
        if not (_insists(error) and _may_both(source, sink, each)):
            raise
    return await _open_both(source, sink, each, proxies, stall_seconds, DELEGATED)


def _insists(error: Unsupported) -> bool:
    from coalloc.engine.gridftp.gsi import DelegationNeeded  # a slow import, which plain FTP does not need

    return isinstance(error, DelegationNeeded)


def _may_both(source: str, sink: str, options: Both) -> bool:
    ends = zip((parse_server(source), parse_server(sink)), options, strict=True)
    return all(end.scheme == "gsiftp" and own.delegates_to(end.host) for end, own in ends)


async def _open_both(
    source: str,
    sink: str,
    options: Both,
    proxies: tuple[Path | None, Path | None],
    stall_seconds: float,
    modes: Sequence[DataMode],
) -> ThirdParty:
    sending = asyncio.create_task(_open(_Source, source, options[0], proxies[0], modes))
    receiving = asyncio.create_task(_open(_Sink, sink, options[1], proxies[1], modes))
    try:
        await gather(sending, receiving)
        port = await _introduce(sending.result(), receiving.result())
    except BaseException:
        for end in (sending, receiving):
            end.cancel()
        for opened in await asyncio.gather(sending, receiving, return_exceptions=True):
            if isinstance(opened, GridFTPLogin):
                opened.close()
        raise
    return ThirdParty(sending.result(), receiving.result(), stall_seconds, port)


async def _open(
    kind: type[End], url: str, options: EngineOptions, proxy: Path | None, modes: Sequence[DataMode]
) -> End:
    address = parse_server(url)
    address.refuse_tls()
    security = security_for(address, options, proxy, modes)
    try:
        return await kind.open(address, options, security, lambda _: None, pipelined=True)
    except SourceError as error:
        if kind is _Source:
            error.blame_source()
        else:
            error.blame_destination()
        raise


async def _introduce(source: _Source, sink: _Sink) -> "DepotPort | None":
    """Send the source the address at which the sink listens, or that of a depot's port that leads there.

    :returns: the port; None if the servers connect directly
    """
    to = HostPort(*await sink.data.address(sink.listens))
    if port := await _introduce_depot(source, sink, to):
        return port
    _need(source, await source.control.ask(port_command(*to)))
    return None


async def _introduce_depot(source: _Source, sink: _Sink, to: HostPort) -> "DepotPort | None":
    """Send the source the address of a depot's port; return None if there is no depot, or it cannot be used."""
    routes, host = sink.options.data_routes, sink.address.host
    connections = 2 * source.options.streams  # a source may open new ones before the old ones have ended
    if routes is None or (port := await routes.port(host, to, source.control.peer, connections)) is None:
        return None
    try:
        reply = await source.control.ask(port_command(port.host, port.port))
    except BaseException:
        port.close()
        raise
    if reply.positive:
        return port
    port.close()
    routes.avoid(host, f"{source.control.where} cannot use depot {port.route}: it says {reply.code} {reply.text}")
    return None
