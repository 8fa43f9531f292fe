"""The scheduler: a pure state machine. `handle(event)` returns actions; time arrives in the events.

It records the ranges and failures of each source, detects stalls, and asks the policy for the shares at the start, for
the next step of an idle source, and for the role of a source without work.
"""

from collections.abc import Iterable, Sequence
from random import Random

from coalloc.model.forecasts import Estimate
from coalloc.schedule.actions import Action, Done, GiveUp, Wake
from coalloc.schedule.connections import Connections
from coalloc.schedule.events import (
    Event,
    Failed,
    Finished,
    Held,
    Opened,
    Ready,
    Received,
    Rejected,
    SourceLimit,
    Started,
    Tick,
    Waiting,
)
from coalloc.schedule.partial_copies import PartialCopies
from coalloc.schedule.pauses import TRIES, USEFUL, pause_seconds
from coalloc.schedule.policies.base import Choice, Policy, Race, Steal, Take
from coalloc.schedule.sources import RunningCopy, ScheduledSource
from coalloc.schedule.stalls import SUSPICIOUS, stalled
from coalloc.schedule.state import State
from coalloc.schedule.steal_size import AHEAD_TRIPS

__all__ = ["IllegalEventError", "Scheduler"]

TICK = 0.2
"""Seconds between checks of the sources for stalls, and of their network paths."""
SOON = 0.04
"""Seconds between checks for the round-trip time of a connecting source, which decides its number of streams."""
IDLE_TICK = 0.1
"""Seconds after which an idle source asks for work again, if the policy `watches_idle`."""
MOST_DRAINING = 4
"""Maximum earlier copies of a source that end beside its newest one: a lost packet may delay one for seconds."""


class IllegalEventError(Exception):
    """An event that cannot happen in this state, because of a defect; the message contains the last decisions."""


class Scheduler:
    """The state machine that decides which source fetches which bytes, from a transfer's start to its last byte.

    :param size: bytes in the file
    :param estimates: forecast of each source, in the order of the replicas
    :param policy: policy of the co-allocation strategy
    :param missing: ranges not delivered by earlier runs; None for the whole file
    :param opened: number of bytes, from the first one on, that may be fetched before an `Opened`; None for all
    :param most: maximum number of sources to use at once; the others replace those that fail
    :param seed: seed of the random lengths of pauses
    :param tries: consecutive failures after which a source is not used again
    """

    def __init__(
        self,
        size: int,
        estimates: Sequence[Estimate],
        policy: Policy,
        *,
        missing: Iterable[tuple[int, int]] | None = None,
        opened: int | None = None,
        most: int | None = None,
        seed: int = 0,
        tries: int = TRIES,
    ) -> None:
        self.state = State(size, estimates, missing, opened)
        self.policy = policy
        self.rationale = ""
        self._chance = Random(seed)
        self._tries = tries
        self._begun = False
        self._ended = False
        self._first_ready: float | None = None
        self._looked_at = 0.0
        self._actions: list[Action] = []
        self._copies = PartialCopies(self.state, policy.widens, self._actions)
        self._connections = Connections(self.state, policy, most or len(estimates), self._actions)

    def handle(self, event: Event) -> list[Action]:
        """Process one event and return the actions to take now, in this order."""
        self._actions.clear()
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
            case SourceLimit():
                self._limit(event)
            case Opened():
                self.state.open(event.end)
            case Started():
                for source in event.connected:
                    self.state.sources[source].connected = True
        if not self._ended:
            self._settle(event)
        return self._actions.copy()

    # Events

    def _received(self, event: Received) -> None:
        copy = self._copy(event.copy)
        source = self.state.sources[copy.source]
        if copy.last_byte_at is None and not copy.queued:
            source.learn_setup(copy.silence(event.at))
            source.meter.begin(event.at)
        else:
            source.meter.add(event.end - event.start, event.at)
        if copy.last_byte_at is None:
            copy.first_byte_at = event.at
        else:
            source.longest_gap = max(0.99 * source.longest_gap, copy.silence(event.at))
        copy.last_byte_at = event.at
        copy.received += event.end - event.start
        before = self.state.final.total
        self.state.final.add(event.start, event.end)
        copy.bytes += self.state.final.total - before
        source.bytes += self.state.final.total - before

    def _finished(self, event: Finished) -> None:
        copy = self._copy(event.copy)
        source = self.state.sources[copy.source]
        if self.state.lacking(copy):
            copy.abandoned = True
            self._fail(source, "it ended before its range was delivered", permanent=False, now=event.at)
            return
        self.policy.delivered(copy, event.at)
        source.failures = 0
        self._copies.release(copy, "shortened" if copy.stolen_from else "whole", event.at)

    def _ready(self, event: Ready) -> None:
        source = self.state.sources[event.source]
        if source.status not in ("connecting", "waiting"):
            raise self._illegal(f"source {source.index} is ready but was {source.status}")
        self._first_ready = event.at if self._first_ready is None else self._first_ready
        source.ready_at = event.at if source.ready_at is None else source.ready_at
        source.ranged = event.ranged
        source.widening.rtt = event.rtt
        if source.status == "waiting":
            source.reason = None
            if self._connections.full:  # a spare source replaced it
                self._connections.set_spare(source)
                return
        source.status, source.idle_at, source.wanted = "idle", event.at, False
        if not self._connections.can_take_part(source):
            self._copies.hand_back(source, event.at)
            self._connections.set_spare(source)

    def _waiting(self, event: Waiting) -> None:
        """Continue without this source until it is ready: waiting may take long and is not a failure."""
        source = self.state.sources[event.source]
        if source.status == "connecting":
            self._copies.hand_back(source, event.at)
            source.status, source.reason = "waiting", event.reason

    def _failed(self, event: Failed) -> None:
        source = self.state.sources[event.source]
        if source.status == "dropped" or (event.copy is not None and event.copy not in self.state.copies):
            return  # the source was rejected, or the copy abandoned, before this event arrived
        source.connected = False
        if event.copy is not None:
            self.state.copies[event.copy].abandoned = True
        self._fail(source, event.reason, permanent=event.permanent, now=event.at, retry_after=event.retry_after)

    def _rejected(self, event: Rejected) -> None:
        self._ended = False
        for source in self.state.sources:
            copies = self.state.all_running(source)
            touched = (copy for copy in copies for start, end in event.ranges if start < copy.end and copy.start < end)
            if source.index in event.sources or any(touched):
                for copy in copies:
                    copy.ending = "shortened"
                    self._copies.abandon(copy)
                self._copies.hand_back(source, event.at)
        for start, end in event.ranges:
            self.state.final.remove(start, end)
            self.state.unassigned.add(start, end)
        for index in event.sources:
            self._drop(self.state.sources[index], event.reason, event.at)
        for source in (self.state.sources[index] for index in event.restored):
            if source.status == "dropped":
                source.status, source.reason, source.failures = "spare", None, 0

    def _tick(self, event: Tick) -> None:
        self._looked_at = now = event.at
        for source in self.state.sources:
            if source.connected:
                source.wanted = source.index in event.wanted
        for copy in list(self.state.copies.values()):
            source = self.state.sources[copy.source]
            if copy.id not in self.state.copies:  # it ended with another copy of its source
                continue
            behind = copy.queued and copy.last_byte_at is None and source.draining
            if not behind and stalled(copy, self.state.setup(source), source.longest_gap, now):
                self._copies.abandon(copy)
                self._fail_silent(source, copy, now)
            elif self.policy.widens and event.paths and not copy.throttled(now):
                backlog, path = self.state.backlog(source), event.paths[source.index]
                self._copies.widen(source, source.widening.look(now, source.bytes, backlog, path), now)
        if self.policy.rebalances:
            for index in event.queueing:
                self._look_ahead(self.state.sources[index], now)
        for source in self.state.sources:
            if source.status == "pausing" and source.resume_at <= now:
                source.status = "spare"
            if source.status == "connecting" and event.paths and (path := event.paths[source.index]):
                source.widening.rtt = path.rtt
                self._copies.begin_widening(source, now)  # further streams connect beside the first

    def _limit(self, event: SourceLimit) -> None:
        """Use up to so many sources; others return their ranges and become spare, first those that fetch nothing."""
        self._connections.allow(event.most)
        in_use = [source for source in self.state.sources if source.status in ("connecting", "idle", "fetching")]
        in_use.sort(key=lambda source: (source.index not in event.preferred, source.status != "fetching"))
        for source in in_use[event.most :]:
            for copy in self.state.all_running(source):
                copy.ending = "shortened"
                self._copies.abandon(copy)
            self._copies.hand_back(source, event.at)
            self._connections.set_spare(source)

    # Consequences

    def _settle(self, event: Event) -> None:
        """Finish, give up, or find work for idle sources; called after every event."""
        now, state = event.at, self.state
        if state.complete and self._first_ready is not None:  # verification needs a source that answered
            self._end(Done(), now)
            return
        if isinstance(event, Received):
            copy = self._copy(event.copy)
            losers = self._copies.abandon_losers(copy if copy.received == event.end - event.start else None)
            for copy in losers:
                if copy.id in self.state.copies:
                    self._retire(copy, now)
            if not losers:  # these events are frequent; idle sources get another chance at the next tick
                return
        if self._begun:
            self._employ(now)  # before other sources are connected for the same bytes
        self._connections.admit(now, begun=self._begun)
        if not any(source.usable for source in state.sources):
            self._end(GiveUp("; ".join(sorted({source.reason for source in state.sources if source.reason}))), now)
            return
        if not self._begun and self._begin(now):
            self._employ(now)
        if self._first_ready is not None:
            self._connections.disconnect_unused(now, begun=self._begun)
        self._wake(now)

    def _begin(self, now: float) -> bool:
        """Assign the shares once all sources have answered, or the policy's patience is over."""
        waiting = any(source.status == "connecting" for source in self.state.sources)
        if self._first_ready is None or (waiting and now < self._first_ready + self.policy.patience):
            return False
        self._begun = True
        self.rationale = self.policy.explain(self.state, now)
        shares = self.policy.shares(self.state, now)
        for index, ranges in shares.items():
            for start, end in ranges:
                self.state.unassigned.remove(start, end)
                self.state.sources[index].share.add(start, end)
        if shares:
            for source in self.state.sources:
                source.planned = source.share.total
        return True

    def _employ(self, now: float) -> None:
        can_take_part = self._connections.can_take_part
        idle = [source for source in self.state.sources if source.status == "idle" and can_take_part(source)]
        for source in sorted(idle, key=lambda source: not source.share):
            self._carry_out(self._choose(source, now), source, now)

    def _carry_out(self, choice: Choice | None, source: ScheduledSource, now: float) -> None:
        match choice:
            case Take() if not source.ranged:
                self._copies.take_from_zero(source, now)
            case Take(start, end):
                self._copies.take(source, start, end, now)
            case Steal(victim, nbytes):
                if spent := self._copies.steal(self.state.sources[victim], source, nbytes, now):
                    self._retire(spent, now)
            case Race(copy):
                self._copies.race(self.state.copies[copy], source, now)

    def _look_ahead(self, source: ScheduledSource, now: float) -> None:
        """Request the next range of a source shortly before its copy ends, so that its connections do not pause."""
        copy, trip = self.state.running(source), source.widening.rtt or 0.0
        if copy is None or len(source.draining) >= MOST_DRAINING or self.state.rivals(copy) or copy.held(now):
            return
        left = self.state.lacking(copy)
        if sum(end - start for start, end in left) > self.state.rate(source, now) * (TICK + AHEAD_TRIPS * trip):
            return
        choice = self._choose(source, now)
        if isinstance(choice, Take | Steal):
            self._copies.drain(source)
            self._carry_out(choice, source, now)

    def _choose(self, source: ScheduledSource, now: float) -> Choice | None:
        own = self.state.first_stretch(source.share)
        return Take(*own) if own else self.policy.choose(self.state, source, now)

    def _retire(self, copy: RunningCopy, now: float) -> None:
        """End a copy whose bytes other sources deliver; a silent source must reconnect before it gets more work."""
        source = self.state.sources[copy.source]
        if copy.unanswered:
            source.learn_wait(copy.silence(now))
            source.failures = min(source.failures, self._tries - 2)  # only slower than others, so it is not dropped
        if copy.silence(now) > SUSPICIOUS:
            self._fail_silent(source, copy, now)
        else:
            self._copies.release(copy, "shortened", now)

    def _fail_silent(self, source: ScheduledSource, copy: RunningCopy, now: float) -> None:
        copy.ending = "stalled"
        self._fail(source, f"no data for {copy.silence(now):.0f} s", permanent=False, now=now)

    def _fail(
        self, source: ScheduledSource, reason: str, *, permanent: bool, now: float, retry_after: float | None = None
    ) -> None:
        """Unassign the source's bytes; then drop it, or pause it.

        If the server requested a pause of `retry_after` seconds, it is at least that long.
        """
        source.failures += 1
        source.reason = reason
        for copy in self.state.all_running(source):
            self._copies.abandon(copy)
            if copy.bytes >= USEFUL:
                source.failures = 1
        self._copies.hand_back(source, now)
        if permanent or source.failures >= self._tries:
            self._drop(source, reason, now)
            return
        source.status = "pausing"
        self._connections.close(source)
        source.resume_at = now + pause_seconds(source.failures, retry_after, self._chance)

    def _drop(self, source: ScheduledSource, reason: str, now: float) -> None:
        self._copies.hand_back(source, now)
        source.status, source.reason = "dropped", reason
        self._connections.close(source)
        self.state.note(f"{now:.3f} source {source.index}: left, {reason}")

    def _end(self, action: Done | GiveUp, now: float) -> None:
        for copy in list(self.state.copies.values()):
            if copy.id in self.state.copies:  # otherwise it ended with another copy of its source
                self._copies.abandon(copy)
                self._retire(copy, now)
        self._ended = True
        self._actions.append(action)

    def _wake(self, now: float) -> None:
        times = [source.resume_at for source in self.state.sources if source.status == "pausing"]
        if self.state.copies:
            times.append(max(now, self._looked_at + (SOON if self._some_will_widen() else TICK)))
        idle = [source for source in self.state.sources if source.status == "idle"]
        if idle:
            if not self._begun and self._first_ready is not None:
                times.append(self._first_ready + self.policy.patience)
            elif self.policy.watches_idle:
                times.append(now + IDLE_TICK)
        if times:
            self._actions.append(Wake(min(times)))

    # Helpers

    def _some_will_widen(self) -> bool:
        """Return whether a connecting source may get more streams once its round-trip time is known."""
        unknown = any(source.status == "connecting" and source.widening.rtt is None for source in self.state.sources)
        return self.policy.widens and unknown

    def _copy(self, copy: int) -> RunningCopy:
        if copy not in self.state.copies:
            raise self._illegal(f"copy {copy} is not running")
        return self.state.copies[copy]

    def _illegal(self, what: str) -> IllegalEventError:
        return IllegalEventError("\n".join([what, *self.state.history]))
