"""The runner around the scheduler: access to sources, and effects of late events."""

import asyncio

import pytest

from coalloc.download.connections import SourceConnections
from coalloc.download.runner import TransferRunner
from coalloc.errors import ReplicaChanged, VerificationError
from coalloc.model.replicas import Stat
from coalloc.schedule.actions import Abandon, Action, Close, Connect, Done, Fetch, Wake
from coalloc.schedule.events import Event, Failed, Finished, Ready, Received, Started, Tick, Waiting
from coalloc.testing.simulated import Behaviour, SimulatedSource
from coalloc.testing.virtual_clock import run


class Script:
    """A scheduler with scripted answers to events."""

    def __init__(self, *answers: list[Action]) -> None:
        self.answers = list(answers)
        self.events: list[Event] = []

    def handle(self, event: Event) -> list[Action]:
        self.events.append(event)
        return self.answers.pop(0) if self.answers else []


class SlowToStop(SimulatedSource):
    """A source that takes a second to end a cancelled fetch, and fails a fetch that starts meanwhile."""

    async def fetch(self, span, deliver):
        self.users += 1
        assert self.users == 1, "a source is used by one task at a time"
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(1)
            self.users -= 1


def agree_on(size):
    def agree(source: int, stat: Stat) -> None:
        if stat.size != size:
            raise VerificationError(f"source {source} has {stat.size} bytes", "leave it out")

    return agree


def keep_nothing(source: int, start: int, end: int, data: memoryview | None) -> None:
    pass


def test_a_source_that_winds_down_is_not_used_before_it_has():
    async def main():
        source = SlowToStop("s", bytes(10), Behaviour())
        runner = TransferRunner(SourceConnections([source], agree_on(10)), keep_nothing)
        abandon_twice = [Abandon(1), Fetch(2, 0, 0, 10), Abandon(2), Fetch(3, 0, 0, 10)]
        script = Script([Connect(0)], [Fetch(1, 0, 0, 10), Wake(1.0)], [], abandon_twice)  # [] after the tick of Ready
        running = asyncio.create_task(runner.run(script, Started(0.0)))
        await asyncio.sleep(10)
        assert not running.done()
        assert source.users == 1
        running.cancel()
        await asyncio.wait({running})
        await runner.close()
        assert source.users == 0

    run(main())


def test_a_replica_that_contradicts_with_the_last_byte_ends_this_run():
    async def main():
        behaviours = (Behaviour(connect_seconds=0.1), Behaviour(connect_seconds=0.1, claims_size=7))
        sources = [SimulatedSource(f"s{i}", bytes(10), behaviour) for i, behaviour in enumerate(behaviours)]
        runner = TransferRunner(SourceConnections(sources, agree_on(10)), keep_nothing)
        with pytest.raises(VerificationError, match="source 1 has 7 bytes"):
            await runner.run(Script([Connect(0), Connect(1)], [Done()]), Started(0.0))
        await runner.close()

    run(main())


def test_a_replica_that_contradicts_after_the_last_byte_ends_the_next_run():
    async def main():
        behaviours = (Behaviour(connect_seconds=0.1), Behaviour(connect_seconds=1.0, claims_size=7))
        sources = [SimulatedSource(f"s{i}", bytes(10), behaviour) for i, behaviour in enumerate(behaviours)]
        runner = TransferRunner(SourceConnections(sources, agree_on(10)), keep_nothing)
        script = Script([Connect(0), Connect(1)], [Done()])
        await runner.run(script, Started(0.0))
        assert script.events[-1] == Ready(0.1, 0)
        await asyncio.sleep(5)
        with pytest.raises(VerificationError, match="source 1 has 7 bytes"):
            await runner.run(script, Tick(5.0))
        await runner.close()

    run(main())


NEAR = Behaviour()


class Counting(SimulatedSource):
    """A source that counts requests, and takes a second to answer whether the file has changed."""

    def __init__(self, behaviour: Behaviour = NEAR):
        super().__init__("s", bytes(10), behaviour)
        self.rechecked = self.rested = self.closed = 0

    async def recheck(self):
        await asyncio.sleep(1)
        self.rechecked += 1
        return await super().recheck()

    async def rest(self):
        assert not self.users
        self.rested += 1

    async def close(self):
        self.closed += 1


def play(source, *answers):
    """Return the events from a runner with these answers, without ticks; the source reports a change at the end."""

    def agree(_, stat):
        if stat.size != 10:
            raise ReplicaChanged(f"it has {stat.size} bytes", "start again")

    async def main():
        connections, script = SourceConnections([source], agree), Script(*answers)
        runner = TransferRunner(connections, keep_nothing)
        running = asyncio.create_task(runner.run(script, Started(0.0)))
        await asyncio.sleep(10)
        errors = await connections.recheck([0])
        running.cancel()
        await asyncio.wait({running})
        await runner.close()
        return [event for event in script.events if not isinstance(event, Tick)], errors

    return run(main())


def kinds(events):
    return [type(event) for event in events]


FETCHED = [Connect(0)], [], [Fetch(1, 0, 0, 10)], []
"""Answers to `Started`, `Ready`, the next tick and `Received`; the next one is to `Finished`."""


def test_source_closed_while_it_connects_gives_no_events():
    source = Counting(Behaviour(connect_seconds=1.0))
    assert play(source, [Connect(0), Close(0)]) == ([Started(0.0)], {})
    assert source.closed


def test_a_source_that_is_let_go_while_it_connects_can_be_connected_again_at_once():
    source = Counting(Behaviour(connect_seconds=1.0))
    events, _ = play(source, [Connect(0), Close(0), Connect(0), Close(0, temporary=True), Connect(0)])
    assert events == [Started(0.0), Ready(1.0, 0)]


def test_a_source_that_waits_for_a_connection_leaves_the_line():
    source = Counting(Behaviour(free_at=5.0))
    events, _ = play(source, [Connect(0)], [Close(0)])
    assert kinds(events) == [Started, Waiting]
    assert source.opened == 0


def test_a_source_that_is_let_go_as_it_becomes_ready_stays_let_go():
    source = Counting()
    events, _ = play(source, [Connect(0)], [Close(0, temporary=True)])
    assert kinds(events) == [Started, Ready]
    assert source.rested == 1


def test_a_source_that_goes_to_rest_is_asked_for_changes_then_and_not_at_the_end():
    source = Counting()
    events, errors = play(source, *FETCHED, [Close(0, temporary=True)])
    assert kinds(events) == [Started, Ready, Received, Finished]
    assert (source.rechecked, source.rested, errors) == (1, 1, {})


def test_source_wanted_again_at_once_reconnects_before_any_recheck():
    source = Counting()
    events, errors = play(source, *FETCHED, [Close(0, temporary=True), Connect(0)], [], [Fetch(2, 0, 0, 10)])
    assert kinds(events) == [Started, Ready, Received, Finished, Ready, Received, Finished]
    assert events[4].at < 0.5
    assert (source.rechecked, source.rested, source.opened, errors) == (1, 1, 2, {})


def test_change_before_a_source_rests_is_found_at_the_end():
    source = Counting(Behaviour(becomes=((0.1, bytes(9)),)))
    _, errors = play(source, *FETCHED, [Close(0, temporary=True)])
    assert isinstance(errors[0], ReplicaChanged)
    assert (source.rechecked, source.rested) == (1, 1)


def test_a_server_that_dies_as_its_source_goes_to_rest_is_asked_at_the_end():
    source = Counting(Behaviour(dies_at=0.5, returns_at=3.0))
    events, errors = play(source, *FETCHED, [Close(0, temporary=True)])
    assert not [event for event in events if isinstance(event, Failed)]
    assert (source.rechecked, source.rested, errors) == (2, 1, {})
