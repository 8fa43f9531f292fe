"""The shell around the scheduler: who uses a source when, and what news that comes late does."""

import asyncio

import pytest

from coalloc.errors import VerificationError
from coalloc.model import Stat
from coalloc.runner import Runner
from coalloc.schedule.actions import Abandon, Action, Connect, Done, Fetch, Wake
from coalloc.schedule.events import Event, Ready, Started, Tick
from coalloc.testing.simulated import Behaviour, SimulatedSource
from coalloc.testing.virtual_clock import run


class Script:
    """A scheduler that answers each event with what it was told to."""

    def __init__(self, *answers: list[Action]) -> None:
        self.answers = list(answers)
        self.events: list[Event] = []

    def handle(self, event: Event) -> list[Action]:
        self.events.append(event)
        return self.answers.pop(0) if self.answers else []


class SlowToStop(SimulatedSource):
    """Winds down for a second when a fetch is cancelled; fails a fetch that begins meanwhile."""

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


def keep_nothing(source: int, offset: int, view: memoryview) -> None:
    pass


def test_a_source_that_winds_down_is_not_used_before_it_has():
    async def main():
        source = SlowToStop("s", bytes(10), Behaviour())
        runner = Runner([source], agree_on(10), keep_nothing)
        abandon_twice = [Abandon(1), Fetch(2, 0, 0, 10), Abandon(2), Fetch(3, 0, 0, 10)]
        script = Script([Connect(0)], [Fetch(1, 0, 0, 10), Wake(1.0)], abandon_twice)
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
        runner = Runner(sources, agree_on(10), keep_nothing)
        with pytest.raises(VerificationError, match="source 1 has 7 bytes"):
            await runner.run(Script([Connect(0), Connect(1)], [Done()]), Started(0.0))
        await runner.close()

    run(main())


def test_a_replica_that_contradicts_after_the_last_byte_ends_the_next_run():
    async def main():
        behaviours = (Behaviour(connect_seconds=0.1), Behaviour(connect_seconds=1.0, claims_size=7))
        sources = [SimulatedSource(f"s{i}", bytes(10), behaviour) for i, behaviour in enumerate(behaviours)]
        runner = Runner(sources, agree_on(10), keep_nothing)
        script = Script([Connect(0), Connect(1)], [Done()])
        await runner.run(script, Started(0.0))
        assert script.events[-1] == Ready(0.1, 0)
        await asyncio.sleep(5)
        with pytest.raises(VerificationError, match="source 1 has 7 bytes"):
            await runner.run(script, Tick(5.0))
        await runner.close()

    run(main())
