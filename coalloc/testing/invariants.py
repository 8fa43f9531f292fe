"""Invariants of the scheduler, and a scheduler that checks them after every event."""

from coalloc.schedule import Scheduler
from coalloc.schedule.actions import Action
from coalloc.schedule.events import Event
from coalloc.util.intervals import Intervals

__all__ = ["CheckedScheduler", "check"]


def check(scheduler: Scheduler) -> None:
    """Check that each byte is final, in one copy, share or unassigned range, or not opened; races have some twice."""
    state = scheduler.state
    promised = Intervals()
    places: list[list[tuple[int, int]]] = [list(state.unassigned), *(list(source.share) for source in state.sources)]
    races: list[list[tuple[int, int]]] = []
    for copy in state.copies.values():
        (races if copy.racing else places).append(state.lacking(copy))
    for place in places:
        for start, end in place:
            assert not promised.within(start, end), f"[{start}, {end}) is promised twice"
            assert not state.final.within(start, end), f"[{start}, {end}) is final and promised"
            promised.add(start, end)
    for place in races:
        for start, end in place:
            promised.add(start, end)
    closed = sum(end - start for start, end in state.final.gaps(state.opened, state.size))
    assert not promised.within(state.opened, state.size), "bytes are promised that are not opened"
    lost = state.size - state.final.total - promised.total - closed
    assert lost == 0, f"{lost} bytes are assigned to no source"
    for source in state.sources:
        assert (source.copy is not None) == (source.status == "fetching")
        assert all(copy.source == source.index for copy in state.all_running(source))
        assert source.copy is not None or not source.draining
        assert source.status not in ("dropped", "waiting") or not source.share


class CheckedScheduler(Scheduler):
    """A scheduler that checks its invariants after every event."""

    def handle(self, event: Event) -> list[Action]:
        actions = super().handle(event)
        check(self)
        return actions
