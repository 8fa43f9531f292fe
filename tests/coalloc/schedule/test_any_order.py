"""Every scheme under events in any possible order: its actions are legal, and it comes to an end.

The test plays the runner and all servers: each answers, refuses, is busy, lies, stalls, dies and comes back when it
likes, and what was fetched turns out to be wrong.
"""

from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coalloc.model.forecasts import Estimate
from coalloc.model.routes import PathState
from coalloc.schedule.actions import Abandon, Action, Close, Connect, Done, Fetch, GiveUp, Shorten, Wake, Widen
from coalloc.schedule.connections import LINGER
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
from coalloc.schedule.policies import NAMES, make
from coalloc.schedule.policies.in_order import InOrder
from coalloc.testing.invariants import CheckedScheduler
from coalloc.util.intervals import Intervals
from tests.support.effort import effort

SIZES = [0, 1, 1000, 300_000, 5_000_000, 200_000_000]
RATES = [None, 1e3, 1e6, 5e7]
RANGED = st.sampled_from([True, True, True, False])
LONGEST = 10_000.0
"""Virtual seconds within which a transfer ends from any state, if all servers work from then on."""
PLACES = st.integers(0, 99)
"""Divisors that choose sources for events, modulo their number."""
PARTS = st.floats(0, 1)


@dataclass
class Server:
    """A source as the runner sees it. `line`: it waits for a free connection. `early`: it connects before any request.

    `queues`: several copies may be requested from it at once.
    """

    ranged: bool
    queues: bool = False
    state: str = "closed"
    early: bool = False
    copies: set[int] = field(default_factory=set)
    gave: Intervals = field(default_factory=Intervals)


@dataclass
class Range:
    """A running partial copy and the bytes that it has delivered."""

    source: int
    start: int
    end: int
    skip: tuple[tuple[int, int], ...]
    received: Intervals
    held: bool = False

    @property
    def lacking(self) -> list[tuple[int, int]]:
        return self.received.gaps(self.start, self.end)


class AnyOrder(RuleBasedStateMachine):
    """One transfer."""

    @initialize(
        strategy=st.sampled_from([*NAMES, "in order"]),
        size=st.sampled_from(SIZES),
        sources=st.lists(st.tuples(st.sampled_from(RATES), RANGED, st.booleans()), min_size=1, max_size=6),
        most=st.none() | st.integers(1, 6),
        here=st.tuples(PARTS, PARTS) | st.none(),
        early=st.sets(st.integers(0, 5)),
        room=st.sampled_from([1.0, 0.3, 0.01]),
    )
    def begin(self, strategy, size, sources, most, here, early, room) -> None:
        self.now, self.wake, self.end = 0.0, inf, None
        self.size = size
        self.most = most or len(sources)
        self.servers = [Server(ranged, queues and ranged) for _, ranged, queues in sources]
        self.ranges: dict[int, Range] = {}
        self.here = Intervals()
        if here is not None:
            self.here.add(*sorted(int(size * part) for part in here))
        self.whole = self.here.covers(0, size)
        self.suspected: set[int] = set()
        self.bad: set[int] = set()
        self.begun = False
        estimates = [Estimate(0.1 if rate else None, rate) for rate, _, _ in sources]
        self.in_order = strategy == "in order"
        self.room = max(1, int(room * size)) if self.in_order else size
        self.scheduler = CheckedScheduler(
            size,
            estimates,
            InOrder(self.room) if self.in_order else make(strategy),
            missing=self.here.gaps(0, size),
            opened=self.room if self.in_order else None,
            most=self.most,
        )
        self.state = self.scheduler.state
        known = tuple(sorted(source for source in early if source < len(sources)))[: self.most]
        for source in known:
            self.servers[source].state, self.servers[source].early = "open", True
        self.tell(Started(self.now, known))

    # The runner

    def tell(self, event: Event) -> None:
        """Pass on an event, and carry out the actions."""
        for action in self.scheduler.handle(event):
            self.perform(action)
        if self.end is None:
            assert {(id, r.source, r.start, r.end) for id, r in self.ranges.items()} == {
                (copy.id, copy.source, copy.start, copy.end) for copy in self.state.copies.values()
            }

    def perform(self, action: Action) -> None:
        assert self.end is None or isinstance(action, Close), f"{action} after the end"
        match action:
            case Connect(source):
                server = self.servers[source]
                assert server.state == "closed" or server.early, "it is connected, or under way"
                server.state, server.early = "opening", False
            case Close(source, _):
                server = self.servers[source]
                assert server.state != "closed", "there is nothing to close"
                assert not server.copies, "it fetches"
                server.state, server.early = "closed", False
            case Fetch(id, source, start, end, skip):
                server = self.servers[source]
                assert server.state == "open"
                assert not server.copies or server.queues, "it fetches something else"
                assert 0 <= start < end <= self.size
                assert server.ranged or start == 0
                server.copies.add(id)
                self.ranges[id] = Range(source, start, end, skip, Intervals(skip))
            case Shorten(id, end):
                assert self.ranges[id].start <= end <= self.ranges[id].end
                self.ranges[id].end = end
            case Abandon(id):
                self.servers[self.ranges.pop(id).source].copies.remove(id)
            case Widen(source, streams):
                assert streams > 1
                assert self.servers[source].state != "closed"
            case Wake(at):
                self.wake = max(at, self.now)
            case Done():
                assert self.here.covers(0, self.size)
                assert not self.ranges
                self.end, self.wake = "done", inf
            case GiveUp():
                assert not self.here.covers(0, self.size) or not self.begun
                assert {server.state for server in self.servers} <= {"closed"}
                self.end = "gave up"

    def tick(self, wanted: tuple[int, ...] = ()) -> None:
        self.wake = inf
        paths = tuple(PathState(0.02) if server.state == "open" else None for server in self.servers)
        queueing = tuple(i for i, server in enumerate(self.servers) if server.queues and server.copies)
        self.tell(Tick(self.now, paths, wanted, queueing))

    # The servers

    def which(self, place: int, *states: str) -> int:
        found = [i for i, server in enumerate(self.servers) if server.state in states]
        return found[place % len(found)]

    def some(self, *states: str) -> bool:
        return self.end != "gave up" and any(server.state in states for server in self.servers)

    @precondition(lambda self: self.some("opening", "line"))
    @rule(place=PLACES, rtt=st.sampled_from([None, 0.001, 0.1]))
    def answer(self, place, rtt) -> None:
        self.answers(self.which(place, "opening", "line"), rtt)

    def answers(self, source: int, rtt: float | None = None) -> None:
        self.servers[source].state, self.begun = "open", True
        self.tell(Ready(self.now, source, self.servers[source].ranged, rtt))
        if self.end is None:
            self.tick()

    @precondition(lambda self: self.some("opening", "line"))
    @rule(place=PLACES, permanent=st.booleans(), asked=st.none() | st.floats(0, 400))
    def refuse(self, place, permanent, asked) -> None:
        source = self.which(place, "opening", "line")
        self.servers[source].state = "closed"
        self.tell(Failed(self.now, source, "refused", permanent, None, asked))

    @precondition(lambda self: self.some("opening"))
    @rule(place=PLACES)
    def have_no_connection(self, place) -> None:
        source = self.which(place, "opening")
        self.servers[source].state = "line"
        self.tell(Waiting(self.now, source, "no free connection"))

    @precondition(lambda self: self.ranges)
    @rule(place=PLACES, at=PARTS, part=PARTS)
    def deliver(self, place, at, part) -> None:
        """Deliver some bytes, perhaps out of order; the stream is not held."""
        id, copy = self.pick(place)
        if copy.lacking and not copy.held:
            start, end = copy.lacking[int(at * (len(copy.lacking) - 1))]
            self.delivers(id, start, start + max(1, int(part * (end - start))))

    def pick(self, place: int) -> tuple[int, Range]:
        return list(self.ranges.items())[place % len(self.ranges)]

    def delivers(self, id: int, start: int, end: int) -> None:
        copy = self.ranges[id]
        copy.received.add(start, end)
        for a, b in self.here.gaps(start, end):
            self.servers[copy.source].gave.add(a, b)
        self.here.add(start, end)
        self.tell(Received(self.now, id, start, end))

    @precondition(lambda self: any(not copy.lacking and not copy.held for copy in self.ranges.values()))
    @rule(place=PLACES)
    def finish(self, place) -> None:
        whole = [id for id, copy in self.ranges.items() if not copy.lacking and not copy.held]
        self.finishes(whole[place % len(whole)])

    def finishes(self, id: int) -> None:
        self.servers[self.ranges.pop(id).source].copies.remove(id)
        self.tell(Finished(self.now, id))

    @precondition(lambda self: self.ranges)
    @rule(place=PLACES)
    def end_too_early(self, place) -> None:
        self.finishes(self.pick(place)[0])

    @precondition(lambda self: self.ranges)
    @rule(place=PLACES, permanent=st.booleans(), asked=st.none() | st.floats(0, 400))
    def lose(self, place, permanent, asked) -> None:
        id, copy = self.pick(place)
        del self.ranges[id]
        self.servers[copy.source].copies.remove(id)
        self.servers[copy.source].state = "closed"
        self.tell(Failed(self.now, copy.source, "lost", permanent, id, asked))

    @precondition(lambda self: self.ranges)
    @rule(place=PLACES)
    def hold(self, place) -> None:
        """Let the source wait for permission to request more, or grant it."""
        id, copy = self.pick(place)
        copy.held = not copy.held
        self.tell(Held(self.now, id, over=not copy.held))

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.3, 1.0, 4.0, 40.0]), wanted=st.sets(st.integers(0, 5)))
    def pass_time(self, seconds, wanted) -> None:
        until = self.now + seconds
        while self.wake <= until and self.end is None:
            self.now = max(self.now, self.wake)
            without = [i for i, server in enumerate(self.servers) if server.state == "open" and not server.copies]
            self.tick(tuple(sorted(wanted & set(without))))
        self.now = max(self.now, until)

    @precondition(lambda self: self.end is None)
    @rule(most=st.integers(1, 6))
    def limit(self, most) -> None:
        """Use more or fewer sources from now on."""
        self.most = most
        self.tell(SourceLimit(self.now, most))

    @precondition(lambda self: self.end == "done" and self.size)
    @rule(suspects=st.sets(st.integers(0, 5), min_size=1), merely=st.booleans())
    def reject(self, suspects, merely) -> None:
        """Mark some ranges as wrong or suspected; sources that are not suspected any more come back."""
        named = {source for source in suspects if source < len(self.servers)} - self.bad - self.suspected
        restored = self.suspected - named
        if not named or all(
            i in named | self.bad or (source.status == "dropped" and i not in restored)
            for i, source in enumerate(self.state.sources)
        ):
            return
        self.suspected = set(named) if merely else set()
        self.bad |= set() if merely else named
        dropped = []
        for source in sorted(named):
            for start, end in self.servers[source].gave:
                dropped.append((start, end))
                self.here.remove(start, end)
            self.servers[source].gave = Intervals()
        self.end = None
        self.tell(Rejected(self.now, tuple(sorted(named)), tuple(dropped), tuple(sorted(restored))))

    @precondition(lambda self: self.end is None and self.state.opened < self.size)
    @rule(part=PARTS)
    def read(self, part) -> None:
        """Let the reader take some bytes, so that there is room for others."""
        self.tell(Opened(self.now, min(self.size, self.state.opened + 1 + int(part * self.room))))

    @precondition(lambda self: self.end is None and self.begun and self.in_order)
    @rule(place=PLACES, at=PARTS, part=PARTS)
    def reject_meanwhile(self, place, at, part) -> None:
        """Mark a range as wrong while others are fetched; the source is not used any more."""
        there = list(self.here.within(0, self.state.opened))
        if not there or len(self.bad) + 1 >= len(self.servers):
            return
        start, end = there[int(at * (len(there) - 1))]
        wrong = (start, start + max(1, int(part * (end - start))))
        self.here.remove(*wrong)
        for server in self.servers:
            server.gave.remove(*wrong)
        source = place % len(self.servers)
        self.bad.add(source)
        self.tell(Rejected(self.now, (source,), (wrong,)))

    # What holds at any time

    @invariant()
    def keeps_its_places(self) -> None:
        if not self.begun or self.whole:  # a file that is whole already is done before any source is put aside
            return
        busy = [server for server in self.servers if server.state in ("open", "opening")]
        assert len(busy) <= self.most, "more are connected than may be"
        for source, server in zip(self.state.sources, self.servers, strict=True):
            if source.status in ("spare", "pausing", "dropped"):
                assert server.state == "closed", f"a source that is {source.status} stays connected"

    @invariant()
    def goes_on(self) -> None:
        if self.end or not self.begun or self.ranges:
            return
        assert self.wake < inf or self.some("opening", "line"), "nothing will happen any more"
        if self.state.opened < self.size:
            return
        if not any(server.state == "opening" for server in self.servers) and self.scheduler.policy.name != "aggressive":
            idle = [source for source in self.state.sources if source.status == "idle"]
            assert not idle, "a source has no work, and bytes are missing"

    @invariant()
    def spares_what_it_does_not_need(self) -> None:
        if self.end or not self.begun or self.scheduler.policy.name in ("adaptive", "single"):
            return
        for source in self.state.sources:
            if source.status == "idle" and not self.state.unassigned:
                assert self.now <= source.idle_at + LINGER + 1.0 or self.wake <= self.now

    def teardown(self) -> None:
        """Let all servers work from now on: the transfer ends with each byte once, unless no source is left."""
        if not hasattr(self, "scheduler"):
            return
        if self.end is None and self.state.opened < self.size:
            self.tell(Opened(self.now, self.size))
        until, steps = self.now + LONGEST, 0
        while self.end is None:
            steps += 1
            assert steps < 2000
            assert self.now < until, "it stands still"
            if self.some("opening", "line"):
                self.answers(self.which(0, "opening", "line"))
            elif self.ranges:
                id, copy = self.pick(0)
                if copy.held:
                    self.hold(0)
                elif copy.lacking:
                    self.now += 0.05
                    self.delivers(id, *copy.lacking[0])
                else:
                    self.finishes(id)
            else:
                assert self.wake < inf, "nothing will happen any more"
                self.now = max(self.now, self.wake)
                self.tick()
        if self.end == "gave up":
            assert {source.status for source in self.state.sources} == {"dropped"}


AnyOrder.TestCase.settings = settings(max_examples=effort(50, 500), stateful_step_count=effort(60, 100))
test_any_order = pytest.mark.long(AnyOrder.TestCase)


def test_a_forecast_that_is_much_too_low_is_corrected_though_each_range_arrives_at_once():
    machine = AnyOrder()
    machine.begin("in order", 200_000_000, [(1000.0, True, False)], None, (0.0, 0.0), set(), 1.0)
    machine.answer(place=0, rtt=None)
    machine.teardown()
    assert machine.end == "done"
    assert len(machine.state.sources[0].ended) < 20
