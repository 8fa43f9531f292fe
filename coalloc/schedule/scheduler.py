"""The scheduler: a pure state machine. `handle(event)` returns actions; time arrives in the events.

It keeps the books (which source has which bytes, how often each failed, which are silent) and asks the policy for two
decisions only: the shares at the start, and the next step of an idle lane.
"""

from collections.abc import Iterable, Sequence
from random import Random

from coalloc.model import Estimate
from coalloc.schedule.actions import Abandon, Action, Close, Connect, Done, GiveUp, Wake
from coalloc.schedule.events import Event, Failed, Finished, Held, Ready, Received, Rejected, Started, Tick, Waiting
from coalloc.schedule.partial_copies import PartialCopies
from coalloc.schedule.pauses import TRIES, pause_seconds
from coalloc.schedule.policies.base import Choice, Policy, Race, Steal, Take
from coalloc.schedule.stalls import SUSPICIOUS, stalled
from coalloc.schedule.state import RunningCopy, SourceLane, State

__all__ = ["IllegalEventError", "Scheduler"]

TICK = 0.2
"""Seconds between checks for silent sources and of the paths of data."""
SOON = 0.04
"""Seconds between checks for the round-trip time of a connecting source, which decides its further streams."""
IDLE_TICK = 0.1
"""Seconds after which an idle lane looks again, where the policy wants that."""
LINGER = 2.0
"""Seconds for which an unneeded source stays connected without work, unless another source needs its place, or another
transfer its connection.
"""
USEFUL = 1 << 20
"""Bytes delivered in one partial copy that cancel earlier failures."""


class IllegalEventError(Exception):
    """An event that cannot happen in this state: a defect, with the history that led to it."""


class Scheduler:
    """Decides which source fetches which bytes, from the start of a transfer to its last byte.

    :param size: bytes in the file
    :param estimates: forecast of each source, in the order of the replicas
    :param policy: the co-allocation scheme
    :param missing: ranges that earlier runs left to do; None means everything
    :param most: number of sources to use at once; the others replace those that fail
    :param seed: seed of the random pauses, so that they differ from transfer to transfer
    """

    def __init__(
        self,
        size: int,
        estimates: Sequence[Estimate],
        policy: Policy,
        *,
        missing: Iterable[tuple[int, int]] | None = None,
        most: int | None = None,
        seed: int = 0,
    ) -> None:
        self.state = State(size, estimates, missing)
        self.policy = policy
        self.rationale = ""
        self._most = most or len(estimates)
        self._chance = Random(seed)
        self._begun = False
        self._ended = False
        self._first_ready: float | None = None
        self._looked_at = 0.0
        self._actions: list[Action] = []
        self._copies = PartialCopies(self.state, policy.widens, self._act)

    def handle(self, event: Event) -> list[Action]:
        """Process one event and return the actions to take now, in this order."""
        self._actions = []
        match event:
            case Received():
                self._received(event)
            case Tick():
                self._tick(event)
            case Held():
                self._copies.hold(self._copy(event.copy), event.at, event.over)
            case Finished():
                self._finished(event)
            case Ready():
                self._ready(event)
            case Failed():
                self._failed(event)
            case Waiting():
                self._waiting(event)
            case Rejected():
                self._rejected(event)
            case Started():
                for source in event.connected:
                    self.state.lanes[source].connected = True
        if not self._ended:
            self._settle(event)
        return self._actions

    # Events

    def _received(self, event: Received) -> None:
        copy = self._copy(event.copy)
        lane = self.state.lanes[copy.source]
        if copy.last_byte_at is None:
            copy.first_byte_at = event.at
            lane.learn_setup(copy.silence(event.at))
            lane.meter.begin(event.at)
        else:
            lane.meter.add(event.end - event.start, event.at)
            lane.longest_gap = max(0.99 * lane.longest_gap, copy.silence(event.at))
        copy.last_byte_at = event.at
        copy.received += event.end - event.start
        before = self.state.final.total
        self.state.final.add(event.start, event.end)
        copy.bytes += self.state.final.total - before
        lane.bytes += self.state.final.total - before

    def _finished(self, event: Finished) -> None:
        copy = self._copy(event.copy)
        lane = self.state.lanes[copy.source]
        if self.state.lacking(copy):
            self._fail(lane, "it ended before its range was delivered", permanent=False, now=event.at)
            return
        self.policy.delivered(copy, event.at)
        lane.failures = 0
        self._copies.release(copy, "relieved" if copy.relieved else "whole", event.at)

    def _ready(self, event: Ready) -> None:
        lane = self.state.lanes[event.source]
        if lane.status not in ("connecting", "waiting"):
            raise self._illegal(f"source {lane.source} is ready but was {lane.status}")
        if lane.status == "waiting":
            lane.reason = None
            if self._working() >= self._most:  # a spare source replaced it
                self._put_aside(lane)
                return
        lane.ranged = event.ranged
        lane.widening.rtt = event.rtt
        lane.status, lane.idle_at, lane.wanted = "idle", event.at, False
        lane.ready_at = event.at if lane.ready_at is None else lane.ready_at
        self._first_ready = event.at if self._first_ready is None else self._first_ready
        if not self._can_take_part(lane):
            self._copies.hand_back(lane, event.at)
            self._put_aside(lane)

    def _waiting(self, event: Waiting) -> None:
        """Continue without this source until it is ready: waiting may take long and is no failure."""
        lane = self.state.lanes[event.source]
        if lane.status == "connecting":
            self._copies.hand_back(lane, event.at)
            lane.status, lane.reason = "waiting", event.reason

    def _failed(self, event: Failed) -> None:
        lane = self.state.lanes[event.source]
        if lane.status == "left" or (event.copy is not None and event.copy not in self.state.copies):
            return  # it was rejected, or the copy abandoned, while the event was on its way
        lane.connected = False
        self._fail(lane, event.reason, permanent=event.permanent, now=event.at, asked=event.retry_after)

    def _rejected(self, event: Rejected) -> None:
        self._ended = False
        for start, end in event.ranges:
            self.state.final.remove(start, end)
            self.state.unassigned.add(start, end)
        for source in event.sources:
            self._leave(self.state.lanes[source], event.reason, event.at)
        for lane in (self.state.lanes[source] for source in event.restored):
            if lane.status == "left":
                lane.status, lane.reason, lane.failures = "spare", None, 0

    def _tick(self, event: Tick) -> None:
        self._looked_at = now = event.at
        for lane in self.state.lanes:
            if lane.connected:
                lane.wanted = lane.source in event.wanted
        for copy in list(self.state.copies.values()):
            lane = self.state.lanes[copy.source]
            if stalled(copy, self.state.setup(lane), lane.longest_gap, now):
                self._actions.append(Abandon(copy.id))
                self._fail_silent(lane, copy, now)
            elif self.policy.widens and event.ways and not copy.throttled(now):
                backlog, way = self.state.backlog(lane), event.ways[lane.source]
                self._copies.widen(lane, lane.widening.look(now, lane.bytes, backlog, way), now)
        for lane in self.state.lanes:
            if lane.status == "pausing" and lane.resume_at <= now:
                lane.status = "spare"
            if lane.status == "connecting" and event.ways and (way := event.ways[lane.source]):
                lane.widening.rtt = way.rtt
                self._copies.begin_widening(lane, now)  # further streams connect beside the first

    # Consequences

    def _settle(self, event: Event) -> None:
        """Finish, give up, or find work for idle lanes, after any event."""
        now, state = event.at, self.state
        if state.complete and self._first_ready is not None:  # an answer is needed to ask for checksums, too
            self._end(Done(), now)
            return
        if isinstance(event, Received):
            losers = self._copies.abandon_losers()
            for copy in losers:
                self._retire(copy, now)
            if not losers:  # such events are many; idle lanes look again at the next tick
                return
        if self._begun:
            self._employ(now)  # before connecting others for the same bytes
        self._admit(now)
        if not any(lane.usable for lane in state.lanes):
            self._end(GiveUp("; ".join(sorted({lane.reason for lane in state.lanes if lane.reason}))), now)
            return
        if not self._begun and self._begin(now):
            self._employ(now)
        if self._first_ready is not None:
            self._spare(now)
        self._wake(now)

    def _begin(self, now: float) -> bool:
        """Assign the shares once all sources have answered, or the policy's patience is over."""
        waiting = any(lane.status == "connecting" for lane in self.state.lanes)
        if self._first_ready is None or (waiting and now < self._first_ready + self.policy.patience):
            return False
        self._begun = True
        self.rationale = self.policy.explain(self.state, now)
        shares = self.policy.shares(self.state, now)
        for source, ranges in shares.items():
            for start, end in ranges:
                self.state.unassigned.remove(start, end)
                self.state.lanes[source].share.add(start, end)
        if shares:
            for lane in self.state.lanes:
                lane.planned = lane.share.total
        return True

    def _employ(self, now: float) -> None:
        idle = [lane for lane in self.state.lanes if lane.status == "idle" and self._can_take_part(lane)]
        for lane in sorted(idle, key=lambda lane: not lane.share):
            choice = self._choose(lane, now)
            match choice:
                case Take() if not lane.ranged:
                    self._copies.take_from_zero(lane, now)
                case Take(start, end):
                    self._copies.take(lane, start, end, now)
                case Steal(victim, nbytes):
                    if spent := self._copies.steal(self.state.lanes[victim], lane, nbytes, now):
                        self._retire(spent, now)
                case Race(copy):
                    self._copies.race(self.state.copies[copy], lane, now)

    def _choose(self, lane: SourceLane, now: float) -> Choice | None:
        own = next(iter(lane.share), None)
        return Take(*own) if own else self.policy.choose(self.state, lane, now)

    def _retire(self, copy: RunningCopy, now: float) -> None:
        """End a copy whose bytes other sources deliver; a silent source has to reconnect before it gets more."""
        if copy.silence(now) > SUSPICIOUS:
            self._fail_silent(self.state.lanes[copy.source], copy, now)
        else:
            self._copies.release(copy, "relieved", now)

    def _fail_silent(self, lane: SourceLane, copy: RunningCopy, now: float) -> None:
        copy.ending = "stalled"
        self._fail(lane, f"nothing came for {copy.silence(now):.0f} s", permanent=False, now=now)

    def _fail(self, lane: SourceLane, reason: str, *, permanent: bool, now: float, asked: float | None = None) -> None:
        """Unassign the lane's bytes, then pause it (at least `asked` seconds, if its server said so) or stop
        using it.
        """
        lane.failures += 1
        lane.reason = reason
        copy = self.state.running(lane)
        if copy is not None and copy.bytes >= USEFUL:
            lane.failures = 1
        self._copies.hand_back(lane, now)
        if permanent or lane.failures >= TRIES:
            self._leave(lane, reason, now)
            return
        lane.status = "pausing"
        self._close(lane)
        lane.resume_at = now + pause_seconds(lane.failures, asked, self._chance)

    def _leave(self, lane: SourceLane, reason: str, now: float) -> None:
        self._copies.hand_back(lane, now)
        lane.status, lane.reason = "left", reason
        self._close(lane)
        self.state.note(f"{now:.3f} source {lane.source}: left, {reason}")

    def _admit(self, now: float) -> None:
        """Connect as many sources as may be used at once; spares replace sources that pause, wait or have failed."""
        for lane in sorted(self.state.lanes, key=lambda lane: (not lane.ranged, lane.failures)):
            if self._working() < self._most and self._is_wanted(lane, now):
                lane.status, lane.connected = "connecting", True
                self._actions.append(Connect(lane.source))

    def _is_wanted(self, lane: SourceLane, now: float) -> bool:
        """Return whether an unused source should be used."""
        if lane.status != "spare" or not lane.ranged:
            return lane.status == "spare" and self.state.is_last(lane)
        role = self.policy.role(self.state, lane, now) if self._begun else "needed"
        return role == "needed" or (role == "reserve" and not lane.wanted)

    def _spare(self, now: float) -> None:
        """Disconnect sources that have no work and are not needed, including those connected before that was known."""
        for lane in self.state.lanes:
            unused = lane.status == "spare" and lane.connected
            if unused or (self._begun and lane.status == "idle" and self._is_spare(lane, now)):
                self._put_aside(lane)
        self._admit(now)  # in their places

    def _can_take_part(self, lane: SourceLane) -> bool:
        """Return whether a source can send ranges, or is the only one and can send everything."""
        return lane.ranged or self.state.is_last(lane)

    def _put_aside(self, lane: SourceLane) -> None:
        lane.status = "spare"
        if not lane.ranged:
            lane.reason = "it ignores ranges, so it is used only when it is the last"
        self._close(lane, well=True)

    def _close(self, lane: SourceLane, *, well: bool = False) -> None:
        if lane.connected:
            lane.connected = False
            self._actions.append(Close(lane.source, well))

    def _is_spare(self, lane: SourceLane, now: float) -> bool:
        if not self._can_take_part(lane):
            return True
        role = self.policy.role(self.state, lane, now)
        if role == "needed":
            return False
        limited = lane.wanted or any(self._would_be_needed(other, now) for other in self.state.lanes)
        return limited or (role == "spare" and now >= lane.idle_at + LINGER)

    def _would_be_needed(self, lane: SourceLane, now: float) -> bool:
        """Return whether a source is unused only because too many others are in use."""
        return lane.status == "spare" and lane.ranged and self.policy.role(self.state, lane, now) == "needed"

    def _working(self) -> int:
        return sum(1 for lane in self.state.lanes if lane.usable and lane.status not in ("pausing", "waiting"))

    def _end(self, action: Done | GiveUp, now: float) -> None:
        for copy in list(self.state.copies.values()):
            self._actions.append(Abandon(copy.id))
            self._retire(copy, now)
        self._ended = True
        self._actions.append(action)

    def _wake(self, now: float) -> None:
        times = [lane.resume_at for lane in self.state.lanes if lane.status == "pausing"]
        if self.state.copies:
            times.append(max(now, self._looked_at + (SOON if self._some_will_widen() else TICK)))
        idle = [lane for lane in self.state.lanes if lane.status == "idle"]
        if idle:
            if not self._begun and self._first_ready is not None:
                times.append(self._first_ready + self.policy.patience)
            elif self.policy.watches_idle:
                times.append(now + IDLE_TICK)
        if times:
            self._actions.append(Wake(min(times)))

    # Helpers

    def _act(self, action: Action) -> None:
        self._actions.append(action)

    def _some_will_widen(self) -> bool:
        """Return whether a source with unknown round-trip time is connecting."""
        unknown = any(lane.status == "connecting" and lane.widening.rtt is None for lane in self.state.lanes)
        return self.policy.widens and unknown

    def _copy(self, copy: int) -> RunningCopy:
        if copy not in self.state.copies:
            raise self._illegal(f"copy {copy} is not running")
        return self.state.copies[copy]

    def _illegal(self, what: str) -> IllegalEventError:
        return IllegalEventError("\n".join([what, *self.state.history]))
