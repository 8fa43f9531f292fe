"""The asyncio shell of a method of collecting: it passes events to the method, and executes the actions returned.

`carrier` transports the hops; `finishing` gets each file whose bytes have all arrived.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping

from coalloc.collect.methods import Method
from coalloc.collect.methods.actions import (
    Action,
    Cancel,
    CollectDone,
    CollectGiveUp,
    CollectRefuse,
    CollectWake,
    Drop,
    Send,
)
from coalloc.collect.methods.events import (
    Arrived,
    CollectStarted,
    CollectTick,
    Event,
    Gone,
    HopFailed,
    HopFault,
    HopMoved,
    LinkHeld,
    Refused,
)
from coalloc.collect.runtime.carrier import Carrier, Listener
from coalloc.collect.runtime.hop import Hop
from coalloc.collect.runtime.item import CollectItem
from coalloc.collect.values import Collected
from coalloc.errors import NoSpace, RateRefused, SourceError, TransferFailed, TransferRefused
from coalloc.guarantees.admission import CONFIDENCE
from coalloc.util import human
from coalloc.util.intervals import Intervals

__all__ = ["CollectRunner", "Finish"]

Finish = Callable[[CollectItem, list[tuple[int, int]]], Coroutine[None, None, Collected]]
"""`await finish(item, pieces)`: verify a file whose bytes have all arrived, and give it its name."""
DOWN = 0.99
"""Part of a possible rate that is offered, as it is rounded when it is shown."""
MOVED_SECONDS = 0.2
"""Minimum seconds between two `HopMoved` events of a hop."""


class _Coming:
    """The bytes of one file that have arrived."""

    def __init__(self, item: CollectItem) -> None:
        self.item = item
        self.here = Intervals()
        self.pieces: list[tuple[int, int]] = []
        self.whole = self.refused = False
        self.hops: dict[int, Hop] = {}
        """Hops that bring bytes of the file to its destination, by number."""

    def add(self, start: int, end: int) -> bool:
        """Record a piece; return whether it completes the file."""
        before = self.whole
        self.pieces += self.here.gaps(start, end)
        self.here.add(start, end)
        self.whole = self.here.covers(0, self.item.size)
        return self.whole and not before


class CollectRunner:
    """An executor of a method's actions.

    :param items: the files of the method's demand, by name
    :param destination: label of the destination
    :param connect: returns a carrier that notifies this runner
    """

    def __init__(
        self,
        method: Method,
        items: Mapping[str, CollectItem],
        destination: str,
        connect: Callable[[Listener], Carrier],
        finish: Finish,
    ) -> None:
        self._method = method
        self._finish = finish
        self._destination = destination
        self._coming = {name: _Coming(item) for name, item in items.items()}
        self._sends: dict[int, Send] = {}
        self._hops: dict[int, Hop] = {}
        self._reported_at: dict[int, float] = {}
        self._refused: set[tuple[str, str]] = set()
        self._apart: dict[str, SourceError] = {}
        """Why a host can never send to the destination, by host."""
        self._events: deque[Event] = deque()
        self._notifying = False
        self._waker: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._finishing: set[asyncio.Task[None]] = set()
        self.carrier = connect(self)
        self.collected: dict[str, Collected] = {}
        """Finished files, by name."""
        self.errors: dict[str, Exception] = {}
        """Errors of files that could not be finished, by name."""

    async def run(self) -> None:
        """Run the method until every file is finished, or has an error in `errors`.

        :raises CoallocError: when the method ends for another reason; finished files keep their names
        """
        self._notify(CollectStarted(self._loop.time()))
        try:
            try:
                await self._over
            finally:
                if self._waker:
                    self._waker.cancel()
            await asyncio.gather(*self._finishing)
        except TransferFailed:
            await asyncio.gather(*self._finishing)
            raise
        finally:
            for task in self._finishing:
                task.cancel()
            await asyncio.gather(*self._finishing, return_exceptions=True)

    @property
    def done_bytes(self) -> int:
        """Bytes that have arrived, including those of pieces in flight."""
        coming = sum(hop.arrived.total for each in self._coming.values() for hop in each.hops.values() if not hop.over)
        whole = sum(each.here.total for each in self._coming.values())
        return min(whole + coming, sum(each.item.size for each in self._coming.values()))

    # Events

    def gone(self, host: str, reason: str) -> None:
        """Drop the hops of a lost host, and tell the method that it is gone."""
        for number in [number for number, send in self._sends.items() if host in (send.source, send.sink)]:
            self._forget(number)
        self._notify(Gone(self._loop.time(), host, reason))

    def held(self, source: str, sink: str, over: bool) -> None:
        """Tell the method that a link waits for this machine, or no longer."""
        self._notify(LinkHeld(self._loop.time(), source, sink, over))

    def failed(self, error: Exception) -> None:
        """End the collect job with this error."""
        self._end(error)

    def _notify(self, event: Event) -> None:
        """Send an event to the method, and execute its actions; events that occur meanwhile are queued."""
        self._events.append(event)
        if self._notifying:
            return
        self._notifying = True
        try:
            while self._events and not self._over.done():
                event = self._events.popleft()
                if not (isinstance(event, HopMoved | Arrived | HopFailed) and self._is_stale(event)):
                    for action in self._method.handle(event):
                        self._do(action)
        except Exception as error:
            self.failed(error)
        finally:
            self._notifying = False

    def _is_stale(self, event: HopMoved | Arrived | HopFailed) -> bool:
        """Return whether the event's hop was cancelled, or lost with a host, before the event could be sent."""
        if event.hop not in self._sends:
            return True
        if not isinstance(event, HopMoved):
            self._forget(event.hop)
        return False

    def _forget(self, number: int) -> None:
        if send := self._sends.pop(number, None):
            self._coming[send.piece.file].hops.pop(number, None)
        self._hops.pop(number, None)
        self._reported_at.pop(number, None)

    def _hop_changed(self, number: int, hop: Hop) -> None:
        """Handle progress or the end of a hop."""
        now = self._loop.time()
        send = self._sends.get(number)
        if send is None:
            return
        if not hop.over:
            if now - self._reported_at.get(number, 0.0) >= MOVED_SECONDS:
                self._reported_at[number] = now
                self._notify(HopMoved(now, number, hop.arrived.total))
        elif hop.error is None:
            if send.sink == self._destination:
                self._delivered(send)
            self._notify(Arrived(now, number))
        else:
            self._hop_failed(number, send, hop)

    def _hop_failed(self, number: int, send: Send, hop: Hop) -> None:
        error, fault = hop.error, _fault(hop)
        if isinstance(error, SourceError) and fault is HopFault.FILE:
            self._refused.add((send.source, send.piece.file))
            if all((host, send.piece.file) in self._refused for host in self._coming[send.piece.file].item.paths):
                self._give_up(send.piece.file, error)
        elif isinstance(error, SourceError) and fault is HopFault.SINK and send.sink == self._destination:
            if isinstance(error, NoSpace):
                self.failed(error)
            else:
                self._give_up(send.piece.file, error)
        elif isinstance(error, SourceError) and fault is HopFault.NO_LINK and send.sink == self._destination:
            self._apart[send.source] = error
        self._notify(HopFailed(self._loop.time(), number, str(error), fault))

    def _give_up(self, name: str, error: SourceError) -> None:
        """Go on without a file that all its holders, or the destination, permanently refuse."""
        if not self._coming[name].refused:
            self._coming[name].refused = True
            self.errors[name] = TransferRefused(f"cannot fetch {name}: {error.message}", error.remedy)
            self._notify(Refused(self._loop.time(), name))

    def _delivered(self, send: Send) -> None:
        """Record a piece at the destination; finish its file if it was the last piece, unless the job is over."""
        coming = self._coming[send.piece.file]
        if coming.add(send.piece.start, send.piece.end) and not (coming.refused or self._over.done()):
            task = self._loop.create_task(self._finished(coming))
            self._finishing.add(task)

    async def _finished(self, coming: _Coming) -> None:
        """Stop duplicate pieces in flight, so that nothing writes to the file any more; then finish it."""
        item = coming.item
        late = {number: hop for number, hop in coming.hops.items() if not hop.over}
        for number, hop in late.items():
            self.carrier.stop(hop)
            self._notify(Arrived(self._loop.time(), number))
        try:
            await asyncio.gather(*(hop.landed.wait() for hop in late.values()))
            self.collected[item.name] = await self._finish(item, coming.pieces)
        except Exception as error:
            self.errors[item.name] = error

    # Actions

    def _do(self, action: Action) -> None:
        match action:
            case Send():
                self._send(action)
            case Cancel():
                if hop := self._hops.get(action.hop):
                    self.carrier.stop(hop)
                self._forget(action.hop)
            case Drop():
                self.carrier.drop(action)
            case CollectWake():
                if self._waker:
                    self._waker.cancel()
                self._waker = self._loop.call_at(action.at, self._tick)
            case CollectDone():
                self._end(None)
            case CollectGiveUp():
                self._end(self._gave_up(f"cannot collect all files: {action.reason}"))
            case CollectRefuse():
                self._end(_refused(action))

    def _gave_up(self, message: str) -> TransferFailed:
        """Return the error of a method that gave up; it lasts if no holder of a missing file can ever send it."""
        missing = [each.item for each in self._coming.values() if not (each.whole or each.refused)]
        lasting = [host in self._apart or (host, item.name) in self._refused for item in missing for host in item.paths]
        if self._apart and all(lasting):
            return TransferRefused(message, next(iter(self._apart.values())).remedy)
        return TransferFailed(message, "run the same command again")

    def _tick(self) -> None:
        self._notify(CollectTick(self._loop.time()))

    def _end(self, error: Exception | None) -> None:
        if self._over.done():
            return
        if error:
            self._over.set_exception(error)
            self._over.exception()  # mark as retrieved: it may be set before run() waits for it
        else:
            self._over.set_result(None)

    def _send(self, send: Send) -> None:
        coming, number = self._coming[send.piece.file], send.hop
        self._sends[number] = send
        if (coming.whole or coming.refused) and send.sink == self._destination:  # it needs no more bytes
            self._notify(Arrived(self._loop.time(), number))
        else:
            hop = self.carrier.begin(send, coming.item, lambda hop: self._hop_changed(number, hop))
            self._hops[number] = hop
            if send.sink == self._destination:
                coming.hops[number] = hop


def _fault(hop: Hop) -> HopFault:
    """Return the cause of a hop's failure, by the facts that its error states."""
    error = hop.error
    if isinstance(error, NoSpace):
        return HopFault.SINK
    if not (isinstance(error, SourceError) and error.permanent):
        return HopFault.LINK
    if not hop.at_fault:
        return HopFault.NO_LINK
    return HopFault.SINK if error.at_destination else HopFault.FILE


def _refused(refusal: CollectRefuse) -> RateRefused:
    """Return the error for a class of files whose rate cannot be promised, with the rate that can."""
    view, pattern = refusal.view, refusal.pattern
    percent = f"{100 * view.wanted.share:g}"
    offers = [f"use --guarantee '{pattern}={human.rate(DOWN * view.possible)}@{percent}'"] if view.possible else []
    return RateRefused(
        f"{pattern}: {human.rate(view.wanted.rate)} in {percent} % of the seconds would be kept with a probability of "
        f"{human.probability(view.chance or 0.0)}, not {100 * CONFIDENCE:g} %",
        ", or ".join([*offers, "name more replicas of these files, or leave the guarantee out"]),
    )
