"""Transport of pieces between hosts: a queue for each link, and the paths of staged pieces.

A method decides which pieces to send where; `finishing` verifies delivered files.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from itertools import count
from random import Random
from typing import Protocol

from coalloc.collect.methods.actions import Drop, Piece, Send
from coalloc.collect.runtime.channels import Channel, ServerPair
from coalloc.collect.runtime.destination import Destination
from coalloc.collect.runtime.gridftp_inward import GridFTPInward
from coalloc.collect.runtime.holder import Holder
from coalloc.collect.runtime.hop import Hop
from coalloc.collect.runtime.hop_queue import HopQueue
from coalloc.collect.runtime.item import CollectItem
from coalloc.collect.runtime.link_waits import LinkWaits
from coalloc.collect.runtime.local_destination import LocalDestination
from coalloc.collect.runtime.meter import ByteMeter
from coalloc.collect.runtime.read_only_server import ReadOnlyInward, ReadOnlyServer
from coalloc.collect.runtime.server import CollectServer
from coalloc.collect.runtime.staging import StagingArea
from coalloc.collect.values import LeftBehind, PairReport, PairView, Stretch
from coalloc.errors import NoSpace, ServerBusy, SourceError, TransferFailed, Unreachable

__all__ = ["Carrier", "Listener"]

Key = tuple[str, str]
STRETCHES = 100
"""Maximum number of stretches kept per pair; beyond it, the two with the shortest pause between them are merged."""


class Listener(Protocol):
    """A receiver of events that concern more than one hop."""

    def gone(self, host: str, reason: str) -> None:
        """Handle the loss of a host and of its hops, which are not reported individually."""

    def held(self, source: str, sink: str, over: bool) -> None:
        """Handle the beginning of a link's wait for this machine, or its end."""

    def failed(self, error: Exception) -> None:
        """Handle an error that ends the whole collect job."""


class _Traffic:
    """The bytes transferred from one host to another."""

    def __init__(self, queue: HopQueue) -> None:
        self.queue = queue
        self.meter = ByteMeter()
        self.pieces = 0
        self.under_way = 0
        self.seconds = 0.0
        self.since = 0.0
        self.stretches: list[Stretch] = []
        self.routes: list[str] = []
        """Routes between two servers, in the order of their first use."""

    def rest(self, now: float) -> None:
        """Record that the pair has no hops under way any more."""
        if self.under_way:
            self.seconds += now - self.since
            self.stretches = _bounded([*self.stretches, self.stretch(now)])
        self.under_way = 0

    def stretch(self, now: float) -> Stretch:
        """Return the current stretch: the bytes and pieces since `since`."""
        bytes_, pieces = sum(each.bytes for each in self.stretches), sum(each.pieces for each in self.stretches)
        return Stretch(self.since, now, self.meter.bytes - bytes_, self.pieces - pieces)


class Carrier:
    """A manager of all hops.

    :param servers: all servers that take part, by label
    :param areas: the staging areas of servers, by label
    :param landing: the destination
    :param chance: random numbers for the length of pauses
    """

    def __init__(
        self,
        servers: Mapping[str, Holder],
        areas: Mapping[str, StagingArea],
        landing: Destination,
        listener: Listener,
        chance: Random,
    ) -> None:
        self._servers = servers
        self._areas = areas
        self._landing = landing
        self._listener = listener
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._traffic: dict[Key, _Traffic] = {}
        self._staged: defaultdict[tuple[str, Piece], list[str]] = defaultdict(list)
        self._numbers = count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self.lost: dict[str, str] = {}
        """Hosts that are lost, with the reason."""
        self.staged_bytes = 0

    # Hops

    def begin(self, send: Send, item: CollectItem, on_change: Callable[[Hop], None]) -> Hop:
        """Begin a hop."""
        if self._staged.get((send.source, send.piece)):
            self._landing.relayed.add(item.name)
        return self._begin((send.source, send.sink), item, send.piece, self._source(send, item), on_change)

    def _source(self, send: Send, item: CollectItem) -> str:
        staged = self._staged.get((send.source, send.piece))
        return staged[-1] if staged else item.paths[send.source]

    def _begin(self, key: Key, item: CollectItem, piece: Piece, source: str, on_change: Callable[[Hop], None]) -> Hop:
        lands = key[1] == self._landing.label
        if lands:
            where: Callable[[], str] = partial(self._landing.sink, item)
            prepare = partial(self._landing.begin, item)
        else:
            where, prepare = partial(self._areas[key[1]].piece, next(self._numbers)), partial(self._make, key[1])
        hop = Hop(piece, key, (source, where), prepare, lambda hop: self._update(traffic, hop, on_change))
        traffic = self._traffic.get(key) or self._open(key)
        if not traffic.under_way:
            traffic.since = self._loop.time()
        traffic.under_way += 1
        traffic.queue.begin(hop)
        return hop

    async def _make(self, host: str) -> None:
        """Make the staging area of a host. :raises NoSpace: if it cannot be made"""
        try:
            await self._areas[host].make()
        except SourceError as error:
            if not error.permanent:
                raise
            raise NoSpace(
                f"cannot make a staging directory at {host}: {error.message}", "choose another host with --via"
            ) from None

    def _update(self, traffic: _Traffic, hop: Hop, on_change: Callable[[Hop], None]) -> None:
        now, came = self._loop.time(), hop.arrived.total - hop.counted
        hop.counted += came
        traffic.meter.add(now, came)
        if hop.route[1] != self._landing.label:
            self.staged_bytes += came
        if hop.over:
            self._ended(traffic, hop)
        on_change(hop)

    def _ended(self, traffic: _Traffic, hop: Hop) -> None:
        """Update the counters at the end of a hop; delete the partial data of a hop that failed."""
        traffic.pieces += hop.error is None
        if traffic.under_way == 1:
            traffic.rest(self._loop.time())
        else:
            traffic.under_way -= 1
        host = hop.route[1]
        if hop.error is None:
            if host != self._landing.label:
                self._staged[host, hop.piece].append(hop.sink_path)
        elif host != self._landing.label:
            self._spawn(self._clear(hop))

    async def _clear(self, hop: Hop) -> None:
        await hop.landed.wait()
        if hop.route[1] not in self.lost:
            await self._areas[hop.route[1]].delete(hop.sink_path)

    def stop(self, hop: Hop) -> None:
        """End a hop without a report; its partial data are deleted."""
        if hop.over:
            return
        traffic = self._traffic[hop.route]
        traffic.queue.stop(hop)
        self._ended(traffic, hop)

    def drop(self, drop: Drop) -> None:
        """Delete a staged piece."""
        for path in self._staged.pop((drop.host, drop.piece), ()):
            self._spawn(self._areas[drop.host].delete(path))

    async def fetch(self, host: str, item: CollectItem, piece: Piece) -> None:
        """Fetch a piece directly from a server that holds the file.

        :raises SourceError: when that fails
        """
        hop = self._begin((host, self._landing.label), item, piece, item.paths[host], lambda _: None)
        try:
            await hop.ended.wait()
        finally:
            self.stop(hop)
        await hop.landed.wait()
        for end in hop.route:
            if hop.error and end in self.lost:
                raise Unreachable(self.lost[end], "try again when it is back")
        if hop.error:
            raise hop.error

    # Queues

    def _open(self, key: Key) -> _Traffic:
        queue = HopQueue(partial(self._connect, key), partial(self._broken, key), self._listener.failed, self._chance)
        self._traffic[key] = _Traffic(queue)
        return self._traffic[key]

    async def _connect(self, key: Key) -> Channel:
        source, sink = self._servers[key[0]], self._servers.get(key[1])
        waits = LinkWaits(lambda held: self._listener.held(*key, not held))
        if isinstance(source, CollectServer) and isinstance(sink, CollectServer):
            pair, routes = await ServerPair.open(source, sink, waits), self._traffic[key].routes
            routes += [pair.route] if pair.route not in routes else []
            return pair
        assert isinstance(self._landing, LocalDestination)
        if isinstance(source, CollectServer):
            return GridFTPInward(source, self._landing, waits)
        assert isinstance(source, ReadOnlyServer)
        return ReadOnlyInward(source, self._landing, waits)

    def _broken(self, key: Key, error: SourceError) -> None:
        self._spawn(self._judge(key, error))

    async def _judge(self, key: Key, error: SourceError) -> None:
        """Check the hosts of a broken pair: report lost ones; if none is lost, fail the queue."""
        ends = [self._servers[label] for label in dict.fromkeys(key) if label in self._servers]
        troubles = await asyncio.gather(*(server.trouble() for server in ends))
        gone = False
        for server, trouble in zip(ends, troubles, strict=True):
            if trouble and not isinstance(trouble, ServerBusy):
                gone = True
                await self._lose(server.label, trouble.message)
        if not gone:
            self._traffic[key].queue.fail(error)

    async def _lose(self, host: str, reason: str) -> None:
        if host in self.lost:
            return
        self.lost[host] = reason
        for traffic in [traffic for key, traffic in self._traffic.items() if host in key]:
            await traffic.queue.close()
            traffic.rest(self._loop.time())
        for staged in [staged for staged in self._staged if staged[0] == host]:
            del self._staged[staged]
        if host == self._landing.label:
            self._listener.failed(TransferFailed(f"the destination was lost: {reason}", "try again when it is back"))
        else:
            self._listener.gone(host, reason)

    # Ends

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._noted)

    def _noted(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._listener.failed(error if isinstance(error, Exception) else RuntimeError(str(error)))

    async def close(self) -> list[LeftBehind]:
        """End everything, and remove the staging areas; return those that could not be removed."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(traffic.queue.close() for traffic in self._traffic.values()))
        left = await asyncio.gather(*(self._remove(host, area) for host, area in self._areas.items()))
        return [each for each in left if each]

    async def _remove(self, host: str, area: StagingArea) -> LeftBehind | None:
        try:
            await area.remove()
        except SourceError as error:
            return LeftBehind(f"{host}{area.path}", error.message)
        return None

    # Display

    @property
    def landed_bytes(self) -> int:
        """Bytes that have come to the destination in this job, including those that came twice."""
        return sum(each.meter.bytes for (_, sink), each in self._traffic.items() if sink == self._landing.label)

    def views(self) -> tuple[PairView, ...]:
        """Return the current state of the pairs."""
        now = self._loop.time()
        return tuple(
            PairView(
                *key,
                rate=each.meter.rate(now),
                bytes=each.meter.bytes,
                waiting=len(each.queue.hops),
                error=self._trouble(key, each),
            )
            for key, each in self._traffic.items()
        )

    def _trouble(self, key: Key, traffic: _Traffic) -> str | None:
        """Return why the hops of a pair wait, or failed last."""
        if not traffic.queue.hops:
            return None
        waits = (self._servers[label].wait for label in key if label in self._servers)
        error = traffic.queue.error
        return next(filter(None, waits), None) or (error.message if error else None)

    def reports(self, began: float) -> tuple[PairReport, ...]:
        """Return the results of the pairs, with times relative to `began`."""
        now = self._loop.time()
        found = []
        for key, each in self._traffic.items():
            seconds = each.seconds + (now - each.since if each.under_way else 0.0)
            rate = each.meter.bytes / seconds if seconds else 0.0
            error = each.queue.error.message if each.queue.error else None
            stretches = [*each.stretches, *([each.stretch(now)] if each.under_way else [])]
            since = tuple(part._replace(begin=part.begin - began, end=part.end - began) for part in stretches)
            best, routes = each.meter.best, tuple(each.routes)
            found.append(PairReport(*key, each.meter.bytes, each.pieces, seconds, rate, best, error, since, routes))
        return tuple(found)


def _bounded(stretches: list[Stretch]) -> list[Stretch]:
    """Return the stretches; if there are too many, merge the two with the shortest pause between them."""
    if len(stretches) <= STRETCHES:
        return stretches
    i = min(range(1, len(stretches)), key=lambda i: stretches[i].begin - stretches[i - 1].end)
    a, b = stretches[i - 1 : i + 1]
    return [*stretches[: i - 1], Stretch(a.begin, b.end, a.bytes + b.bytes, a.pieces + b.pieces), *stretches[i + 1 :]]
