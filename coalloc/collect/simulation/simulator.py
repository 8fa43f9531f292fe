"""A simulator that runs a method over a fluid network, in virtual time. Times are exact, without fixed time steps."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, NamedTuple

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
from coalloc.collect.methods.base import Method
from coalloc.collect.methods.events import (
    Arrived,
    CollectStarted,
    CollectTick,
    Event,
    Gone,
    HopFailed,
    HopFault,
    HopMoved,
)
from coalloc.collect.methods.ledger import IllegalActionError
from coalloc.collect.simulation.carrier import Pair, SimulatedCarrier
from coalloc.collect.simulation.fluid import Fluid
from coalloc.collect.simulation.lent_storage import LentStorage
from coalloc.collect.simulation.underlay import Break, Capacity, Happening, Kill, Rate, RateShare, Underlay

__all__ = ["Outcome", "SimulatedHop", "SimulationRecord", "simulate"]

Outcome = Literal["arrived", "failed", "cancelled"]


class SimulatedHop(NamedTuple):
    """A finished hop: its bytes moved from second `began` to `ended`, after waiting in the queue of its pair."""

    send: Send
    began: float
    ended: float
    outcome: Outcome


@dataclass(frozen=True)
class SimulationRecord:
    """A simulated collect job that is over.

    :param outcome: "done", the reason why the method gave up, or "out of time"
    :param seconds: the makespan
    :param staged: by host, the bytes that it staged, or that were in flight to it, as (second, bytes from then on)
    :param background: by stream, the bytes that it moved
    """

    outcome: str
    seconds: float
    hops: Sequence[SimulatedHop]
    staged: Mapping[str, Sequence[tuple[float, int]]]
    background: Mapping[str, float]

    def peak(self, host: str) -> int:
        """Return the largest number of bytes that a host staged."""
        return max((size for _, size in self.staged.get(host, ())), default=0)


REPORT_SECONDS = 1.0
LIMIT = 1e6


def simulate(
    method: Method,
    underlay: Underlay,
    happenings: Iterable[Happening] = (),
    *,
    report_every: float = REPORT_SECONDS,
    limit: float = LIMIT,
    fast: bool = False,
    carrier: SimulatedCarrier | None = None,
) -> SimulationRecord:
    """Simulate a collect job in virtual time.

    :param happenings: changes of the network, in order of time; may be endless
    :param report_every: seconds between reports of all hops' progress to the method; inf for none
    :param limit: seconds after which the simulation ends in any case
    :param fast: whether to compile frequently called functions, which needs numba and pays for thousands of hops
    :param carrier: carrier of the bytes; by default a fluid over the underlay
    :raises IllegalActionError: when the method requests an impossible action, or waits although no event can follow
    """
    return _Simulation(method, underlay, iter(happenings), report_every, limit, carrier or Fluid(underlay, fast)).run()


class _Simulation:
    def __init__(
        self,
        method: Method,
        underlay: Underlay,
        happenings: Iterator[Happening],
        report_every: float,
        limit: float,
        carrier: SimulatedCarrier,
    ) -> None:
        self._method = method
        self._happenings = happenings
        self._next = next(happenings, None)
        self._report_every, self._reports_at, self._wakes_at, self._limit = report_every, report_every, inf, limit
        self._streams = [stream.name for stream in underlay.streams if stream.rate is None]
        self._carrier = carrier
        self._lent = LentStorage(underlay.storage)
        self._wanted = {(file.name, to) for file in method.demand.files for to in file.destinations}
        self._now = 0.0
        self._outcome = ""
        self._events: deque[Event] = deque([CollectStarted(0.0)])
        self._queues: dict[Pair, deque[Send]] = {}
        """By pair: the current hop, and the hops waiting behind it."""
        self._began: dict[int, float] = {}
        self._pairs: dict[int, Pair] = {}
        self._hops: list[SimulatedHop] = []
        self._dead: set[str] = set()

    def run(self) -> SimulationRecord:
        """Run until the method ends, gives up, or the time limit is reached."""
        while not self._outcome:
            if self._events:
                self._notify(self._events.popleft())
            else:
                self._go_on()
        background = {name: self._carrier.moved(name) for name in self._streams}
        return SimulationRecord(self._outcome, self._now, self._hops, self._lent.times, background)

    def _go_on(self) -> None:
        """Advance to the next time at which anything happens."""
        if not self._queues and self._wakes_at == inf:
            raise IllegalActionError(f"{self._method.name} waits, but no piece is in flight")
        happens_at = self._next.at if self._next else inf
        moment = min(self._now + self._carrier.soonest, happens_at, self._wakes_at, self._reports_at, self._limit)
        through = self._carrier.advance(moment - self._now)
        self._now = moment
        for pair in through:
            self._events.append(self._arrive(pair))
        while self._next and self._next.at <= moment:
            self._happen(self._next)
            self._next = next(self._happenings, None)
        if self._wakes_at <= moment:
            self._wakes_at = inf
            self._events.append(CollectTick(moment))
        if self._reports_at <= moment:
            self._reports_at += self._report_every
            for pair, queue in self._queues.items():
                self._events.append(HopMoved(moment, queue[0].hop, int(self._carrier.moved(pair))))
        if moment >= self._limit:
            self._outcome = "out of time"

    def _notify(self, event: Event) -> None:
        if isinstance(event, HopMoved) and event.hop not in self._pairs:
            return  # its hop was just cancelled
        for action in self._method.handle(event):
            self._act(action)

    def _act(self, action: Action) -> None:
        match action:
            case Send():
                self._send(action)
            case Cancel():
                self._cancel(action.hop)
            case Drop():
                self._lent.drop(self._now, action.host, action.piece)
            case CollectWake():
                self._wakes_at = max(action.at, self._now)
            case CollectDone():
                self._outcome = "done"
            case CollectGiveUp():
                self._outcome = action.reason
            case CollectRefuse():
                self._outcome = "refused"

    def _happen(self, happening: Happening) -> None:
        match happening:
            case Capacity() | Rate() | RateShare():
                self._carrier.change(happening)
            case Break():
                self._break(happening.source, happening.sink)
            case Kill():
                self._kill(happening.host)

    def _send(self, send: Send) -> None:
        if self._dead & {send.source, send.sink}:
            return  # the event Gone is already queued, and will end this hop too
        pair = send.source, send.sink
        self._pairs[send.hop] = pair
        if not self._carrier.has(pair):
            self._fail(send, f"there is no path from {send.source} to {send.sink}")
            return
        queue = self._queues.setdefault(pair, deque())
        queue.append(send)
        if len(queue) == 1:
            self._begin(pair)

    def _begin(self, pair: Pair) -> None:
        """Begin the next hop in a pair's queue that finds room; remove the queue if there is none."""
        queue = self._queues[pair]
        while queue:
            send = queue[0]
            relayed = self._is_relayed(send)
            if not relayed or self._lent.has_room(send.sink, send.piece):
                if relayed:
                    self._lent.expect(self._now, send.sink, send.piece)
                self._began[send.hop] = self._now
                self._carrier.begin(pair, send.piece.size)
                return
            self._fail(queue.popleft(), f"{send.sink} is full", HopFault.SINK)
        del self._queues[pair]
        self._carrier.end(pair)

    def _is_relayed(self, send: Send) -> bool:
        return (send.piece.file, send.sink) not in self._wanted

    def _over(self, pair: Pair, outcome: Outcome) -> Send:
        """End the current hop of a pair; begin the next one."""
        send = self._queues[pair].popleft()
        del self._pairs[send.hop]
        self._hops.append(SimulatedHop(send, self._began.pop(send.hop), self._now, outcome))
        if self._is_relayed(send):
            note = self._lent.put if outcome == "arrived" else self._lent.forget
            note(self._now, send.sink, send.piece)
        self._begin(pair)
        return send

    def _arrive(self, pair: Pair) -> Arrived:
        return Arrived(self._now, self._over(pair, "arrived").hop)

    def _cancel(self, hop: int) -> None:
        pair = self._pairs.get(hop)
        if pair is None:
            self._unmake(hop)
        elif self._queues[pair][0].hop == hop:
            self._over(pair, "cancelled")
        else:
            del self._pairs[hop]
            self._queues[pair] = deque(send for send in self._queues[pair] if send.hop != hop)

    def _unmake(self, hop: int) -> None:
        """Undo a hop that has ended, but whose event the method has not received: drop the piece that it staged."""
        if any(isinstance(event, Arrived) and event.hop == hop for event in self._events):
            send = next(done.send for done in reversed(self._hops) if done.send.hop == hop)
            if self._is_relayed(send):
                self._lent.drop(self._now, send.sink, send.piece)
        self._events = deque(event for event in self._events if getattr(event, "hop", None) != hop)

    def _break(self, source: str, sink: str) -> None:
        if (source, sink) in self._queues:
            self._fail(self._over((source, sink), "failed"), "the connection broke")

    def _fail(self, send: Send, reason: str, fault: HopFault = HopFault.LINK) -> None:
        self._pairs.pop(send.hop, None)
        self._events.append(HopFailed(self._now, send.hop, reason, fault))

    def _kill(self, host: str) -> None:
        for pair in [pair for pair in self._queues if host in pair]:
            first, *behind = self._queues[pair]
            self._queues[pair] = deque([first])
            self._over(pair, "failed")
            for send in behind:
                del self._pairs[send.hop]
        self._dead.add(host)
        self._lent.lose(self._now, host)
        self._events.append(Gone(self._now, host, "it died"))
