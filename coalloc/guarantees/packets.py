"""The choice of the packet that goes next on a path, by the precedence of IQ-Paths, table I. Pure; time is an argument.

1. Packets that are scheduled on this path in this window, in the order of its scheduling vector (`vectors`); before
   them those of a path that is blocked or behind its vector, if they have the higher precedence or earlier deadlines
2. Packets that are scheduled on other paths: earliest deadline first, then the highest window constraint x / y
3. Packets that no path has scheduled: those of earlier windows, then those beyond x up to y, then best effort, which
   shares equally, then what is ahead of its time

So a guaranteed stream has its x packets at the beginning of each window, and best effort has the rest. Streams with a
higher probability come first (`Placement.level`). Windows of the same length begin together.

A path that is blocked gets nothing until its pause ends; pauses double until something arrives. Its packets are given
back, and other paths send them.

    scheduler = PacketScheduler(["a", "b"])
    scheduler.place(map_streams(streams, rates), now)   # streams that came or went, or paths that have changed
    scheduler.arrived("video", 20)                      # packets that may be sent
    packet = scheduler.next("a", now)                   # None: nothing is there for this path now
    scheduler.sent("a", packet)                         # or blocked("a", now)
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from operator import mul
from typing import NamedTuple

from coalloc.guarantees.flows import Flow, Urgency
from coalloc.guarantees.mapping import Placement
from coalloc.guarantees.vectors import Turn, order_turns

__all__ = ["Packet", "PacketScheduler"]

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds that a blocked path gets nothing, the first time and at most."""
GRACE = 0.1
"""Share of a window by which a path may be behind its vector until others put its packets before later ones of theirs.

Without that rule, which table I does not have, the streams of a path that fails would get nothing as long as the other
paths have no more than they need themselves, even if those streams are the most important ones.
"""
DOUBLINGS = 10
"""Times that a pause is doubled, enough for the longest one."""


class Packet(NamedTuple):
    """A packet that a path is to send.

    :param stream: name of its stream
    :param number: its place in the stream, from 0
    """

    stream: str
    number: int


class _PathQueue:
    """The packets of one path.

    :ivar turns: turns in the present windows that are left, a heap; their deadlines are times
    :ivar sending: packets that were handed out, each with its stream, and its turn if it had one
    :ivar resumes: time at which the pause of a blocked path ends
    :ivar failures: number of times that the path was blocked since something arrived
    """

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.sending: dict[Packet, tuple[Flow, _Scheduled | None]] = {}
        self.resumes = -inf
        self.failures = 0


class _Scheduled(NamedTuple):
    path: _PathQueue
    turn: Turn


class PacketScheduler:
    """The packets of several streams over several paths. The time must not go back.

    :param paths: names of the paths
    :ivar visits: VP, the order in which an engine asks paths that are ready at the same time, each as often as it has
        packets in a window
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.visits = list(paths)
        self._paths = {path: _PathQueue() for path in paths}
        self._flows: list[Flow] = []
        self._index: dict[str, int] = {}
        self._vectors: list[list[Turn]] = []
        self._starts: dict[float, float] = {}
        self._next_start = inf
        self._idle: dict[int, list[_Scheduled]] = {}
        self._unscheduled: list[Urgency] = []
        self._listed: set[int] = set()

    def place(self, placements: Sequence[Placement], now: float) -> None:
        """Use these placements from now on; streams that have none are removed, and their names are not used again.

        Turns that a stream has taken in the present window count. A new one has its share of what is left of it.
        """
        self._begin_windows(now)
        before = {flow.stream.name: flow for flow in self._flows}
        ordered = sorted(placements, key=_by_constraint)
        windows = {each.stream.window for each in ordered if each.packets}
        self._starts = {window: self._starts.get(window, now) for window in windows}
        least = min((flow.served for flow in self._flows if flow.ready and not flow.required), default=0.0)
        self._flows = [before.get(each.stream.name) or self._new(each, now, least) for each in ordered]
        for flow, placement in zip(self._flows, ordered, strict=True):
            flow.follow(placement)
        for flow in before.values():
            flow.gone = flow not in self._flows
        self._index = {each.stream.name: index for index, each in enumerate(ordered)}
        self._make_vectors()
        for path in self._paths.values():
            path.turns = []
            path.sending = {packet: (flow, None) for packet, (flow, _) in path.sending.items()}
        self._idle = {}
        self._fill(windows)
        self._drop_used_turns()
        self._list_unscheduled()

    def _new(self, placement: Placement, now: float, least: float) -> Flow:
        flow = Flow(placement)
        if flow.required:
            window = placement.stream.window
            gone = (now - self._starts[window]) / window
            flow.used, flow.extra = int(gone * flow.required), int((1 - gone) * (flow.offered - flow.required))
        else:
            flow.served = least
        return flow

    def _make_vectors(self) -> None:
        levels = [flow.placement.level for flow in self._flows]
        counts = [[flow.placement.packets.get(path, 0) for flow in self._flows] for path in self._paths]
        self._vectors = [order_turns(each, levels) for each in counts]
        longest = max(self._starts, default=1.0)
        times = [longest / flow.stream.window for flow in self._flows]
        totals = [round(sum(map(mul, each, times))) for each in counts]
        names = list(self._paths)
        self.visits = [names[turn.owner] for turn in order_turns(totals)] or names

    def _begin_windows(self, now: float) -> None:
        """Begin the windows that follow those that have ended."""
        ended = {window: int((now - start) / window) for window, start in self._starts.items()}
        ended = {window: number for window, number in ended.items() if number > 0}
        for window, number in ended.items():
            self._starts[window] += number * window
        for flow in self._flows:
            if flow.required and flow.stream.window in ended:
                flow.begin(self._starts[flow.stream.window], ended[flow.stream.window] - 1)
        if ended:
            self._fill(set(ended))
            self._list_unscheduled()

    def _fill(self, windows: set[float]) -> None:
        """Give the streams with such windows all their turns."""
        of = [flow.stream.window for flow in self._flows]
        starts = [self._starts.get(window, 0.0) for window in of]
        for path, vector in zip(self._paths.values(), self._vectors, strict=True):
            turns = [turn for turn in path.turns if of[turn.owner] not in windows]
            for level, deadline, index in vector:
                if of[index] in windows:
                    turns.append(Turn(level, starts[index] + deadline * of[index], index))
            path.turns = sorted(turns)
        self._idle = {index: idle for index, idle in self._idle.items() if of[index] not in windows}
        self._next_start = min((start + window for window, start in self._starts.items()), default=inf)

    def _drop_used_turns(self) -> None:
        """Drop the first turns of each stream, as many as it has taken in this window."""
        used = [flow.used for flow in self._flows]
        if not any(used):
            return
        paths = list(self._paths.values())
        every = sorted((turn.deadline, number, turn) for number, path in enumerate(paths) for turn in path.turns)
        for path in paths:
            path.turns = []
        for _, number, turn in every:
            if used[turn.owner]:
                used[turn.owner] -= 1
            else:
                heappush(paths[number].turns, turn)

    def _list_unscheduled(self) -> None:
        self._listed = {index for index, flow in enumerate(self._flows) if flow.ready}
        self._unscheduled = [self._urgency(index) for index in self._listed]
        heapify(self._unscheduled)

    def _urgency(self, index: int) -> Urgency:
        flow = self._flows[index]
        return flow.urgency(index, self._starts.get(flow.stream.window, 0.0) + flow.stream.window)

    def arrived(self, stream: str, packets: int) -> None:
        """Add packets of a stream that may be sent from now on."""
        index = self._index[stream]
        self._flows[index].ready += packets
        if idle := self._idle.get(index):
            for path, turn in idle[:packets]:
                heappush(path.turns, turn)
            del idle[:packets]
        if packets and index not in self._listed:
            self._listed.add(index)
            heappush(self._unscheduled, self._urgency(index))

    def next(self, path: str, now: float) -> Packet | None:
        """Return the packet that this path is to send now.

        None if the path is in a pause, or if no packet is there: ask again when some have arrived. A path that was
        blocked gets one packet, if possible one that no path has scheduled, and no other until that has arrived.
        """
        if now >= self._next_start:
            self._begin_windows(now)
        queue = self._paths[path]
        if now < queue.resumes or (queue.failures and queue.sending):
            return None
        scheduled = None if queue.failures else self._next_scheduled(queue, now)
        flow = None if scheduled else self._next_unscheduled()
        if not scheduled and not flow:
            scheduled = self._next_scheduled(queue, now)
        if scheduled:
            heappop(scheduled.path.turns)
            flow = self._flows[scheduled.turn.owner]
            flow.used += 1
        elif flow:
            flow.use_unscheduled()
        else:
            return None
        packet = Packet(flow.stream.name, flow.take())
        queue.sending[packet] = flow, scheduled
        return packet

    def _next_scheduled(self, queue: _PathQueue, now: float) -> _Scheduled | None:
        """Return the next turn for a path: its own, unless a more urgent one waits in vain on another path."""
        own = self._next_turn(queue)
        found = _Scheduled(queue, own) if own else None
        for other in self._paths.values():
            if other is queue or not (turn := self._next_turn(other)):
                continue
            if found and turn >= found.turn:
                continue
            if own and (turn[:2] >= own[:2] or not (other.failures or now > self._overdue(turn))):
                continue
            found = _Scheduled(other, turn)
        return found

    def _overdue(self, turn: Turn) -> float:
        return turn.deadline + GRACE * self._flows[turn.owner].stream.window

    def _next_turn(self, queue: _PathQueue) -> Turn | None:
        """Return the next turn of a path whose stream has a packet; the others are put aside."""
        turns = queue.turns
        while turns:
            turn = turns[0]
            if self._flows[turn.owner].ready:
                return turn
            self._idle.setdefault(turn.owner, []).append(_Scheduled(queue, heappop(turns)))
        return None

    def _next_unscheduled(self) -> Flow | None:
        heap = self._unscheduled
        while heap:
            index = heap[0][-1]
            if not self._flows[index].ready:
                heappop(heap)
                self._listed.remove(index)
            elif (urgency := self._urgency(index)) != heap[0]:
                heapreplace(heap, urgency)
            else:
                return self._flows[index]
        return None

    def sent(self, path: str, packet: Packet) -> None:
        """Note that a packet has arrived over this path."""
        queue = self._paths[path]
        del queue.sending[packet]
        queue.failures, queue.resumes = 0, -inf

    def blocked(self, path: str, now: float) -> float:
        """Take back all packets that this path was to send; return the time at which it may be asked again."""
        self._begin_windows(now)
        queue = self._paths[path]
        queue.resumes = now + min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(queue.failures, DOUBLINGS))
        queue.failures += 1
        for packet, (flow, scheduled) in queue.sending.items():
            flow.give_back(packet.number)
            if not flow.gone and flow.required:
                self._owe(flow, scheduled)
        queue.sending = {}
        self._list_unscheduled()
        return queue.resumes

    def _owe(self, flow: Flow, scheduled: _Scheduled | None) -> None:
        """Give a stream the turn again of a packet that was given back; it is late if its window has ended."""
        start = self._starts[flow.stream.window]
        if scheduled and scheduled.turn.deadline >= start:
            heappush(scheduled.path.turns, scheduled.turn)
            flow.used -= 1
        else:
            flow.late_since = min(flow.late_since, start) if flow.late else start
            flow.late += 1


def _by_constraint(placement: Placement) -> float:
    return -placement.stream.required / max(1, placement.stream.offered)
