"""The scheduler's state, event by event."""

import pytest

from coalloc.download.report import source_views
from coalloc.model.forecasts import Estimate
from coalloc.model.routes import PathState
from coalloc.schedule.actions import Abandon, Close, Connect, Done, Fetch, GiveUp, Shorten, Wake, Widen
from coalloc.schedule.connections import LINGER
from coalloc.schedule.events import (
    Failed,
    Finished,
    Held,
    Ready,
    Received,
    Rejected,
    SourceLimit,
    Started,
    Tick,
    Waiting,
)
from coalloc.schedule.pauses import TRIES
from coalloc.schedule.policies import make
from coalloc.schedule.scheduler import SOON, TICK, IllegalEventError
from coalloc.schedule.stream_count import FIRST
from coalloc.testing.invariants import CheckedScheduler

MB = 1_000_000


def scheduler(size=10 * MB, sources=2, strategy="adaptive", rate=1e6, blocks=None, **more):
    estimates = [Estimate(0.01, rate)] * sources
    machine = CheckedScheduler(size, estimates, make(strategy, blocks), **more)
    assert [a for a in machine.handle(Started(0.0)) if isinstance(a, Connect)] == [Connect(i) for i in range(sources)]
    return machine


def kinds(actions, kind):
    return [action for action in actions if isinstance(action, kind)]


def test_shares_are_given_at_the_first_answer():
    machine = scheduler()
    (fetch,) = kinds(machine.handle(Ready(0.1, 0)), Fetch)
    assert (fetch.source, fetch.start) == (0, 0)
    assert 5 * MB < fetch.end < 5.1 * MB  # the other has not answered: it is assumed to be a little behind
    (other,) = kinds(machine.handle(Ready(0.2, 1)), Fetch)
    assert (other.start, other.end) == (fetch.end, 10 * MB)


def test_a_lower_limit_ends_the_copies_of_the_last_source_and_a_higher_one_connects_it_again():
    machine = scheduler()
    machine.handle(Ready(0.1, 0))
    (other,) = kinds(machine.handle(Ready(0.2, 1)), Fetch)
    actions = machine.handle(SourceLimit(0.5, 1))
    assert Abandon(other.copy) in actions
    assert Close(1, temporary=True) in actions
    assert (other.start, other.end) in list(machine.state.unassigned)
    assert machine.state.sources[1].status == "spare"
    assert Connect(1) in machine.handle(SourceLimit(1.0, 2))


def test_a_far_source_has_its_streams_before_it_is_asked_for_anything():
    machine = scheduler(size=100 * MB, sources=1)
    widen, fetch = (a for a in machine.handle(Ready(0.0, 0, rtt=0.1)) if isinstance(a, Widen | Fetch))
    assert isinstance(widen, Widen)
    assert isinstance(fetch, Fetch)
    assert widen.streams > 1


def test_a_far_source_has_its_streams_as_soon_as_it_is_known_how_far_it_is():
    """Another source is near and delivers already."""
    machine = scheduler(size=100 * MB)
    *_, wake = machine.handle(Ready(0.03, 0, rtt=0.01))
    (wake,) = machine.handle(Tick(wake.at, (PathState(0.01), None)))
    assert wake.at == pytest.approx(2 * SOON)
    widen, wake = machine.handle(Tick(wake.at, (PathState(0.01), PathState(0.08))))
    assert widen == Widen(1, FIRST)
    assert wake.at == pytest.approx(2 * SOON + TICK)


@pytest.mark.parametrize("held", [False, True])
def test_far_source_has_more_streams_unless_it_waits_for_permission(held):
    machine, actions = scheduler(size=100 * MB, sources=1), []
    (fetch,) = kinds(machine.handle(Ready(0.0, 0, rtt=0.1)), Fetch)
    for i in range(20):
        now = 0.5 * (i + 1)
        if held:
            machine.handle(Held(now - 0.3, fetch.copy))
            machine.handle(Held(now - 0.1, fetch.copy, over=True))
        machine.handle(Received(now, fetch.copy, i * MB, (i + 1) * MB))
        actions += machine.handle(Tick(now, (PathState(0.1),)))
    assert bool(kinds(actions, Widen)) != held


def test_a_source_under_a_limit_is_shown_with_the_rate_of_its_transfer_not_with_that_of_its_bursts():
    machine = scheduler(size=100 * MB, sources=1, rate=None)
    (fetch,) = kinds(machine.handle(Ready(0.0, 0)), Fetch)
    for second in range(20):
        machine.handle(Held(second + 0.01, fetch.copy))
        machine.handle(Held(second + 0.9, fetch.copy, over=True))
        machine.handle(Received(second + 0.91, fetch.copy, second * MB, (second + 1) * MB))
        (view,) = source_views(machine.state, ["ftp://a/x"], second + 1.0)
        assert view.rate == pytest.approx(1 * MB, rel=0.1)


@pytest.mark.parametrize(("strategy", "rtt"), [("adaptive", 0.001), ("adaptive", None), ("single", 0.1)])
def test_a_near_source_and_a_scheme_of_the_paper_have_one_stream(strategy, rtt):
    machine = scheduler(size=100 * MB, sources=1, strategy=strategy)
    assert not kinds(machine.handle(Ready(0.0, 0, rtt=rtt)), Widen)


def test_idle_source_steals_the_tail_of_another_range():
    machine = scheduler()
    (first,) = kinds(machine.handle(Ready(0.0, 0)), Fetch)
    (second,) = kinds(machine.handle(Ready(0.0, 1)), Fetch)
    for at in range(0, 16 * MB // 10, MB // 10):
        machine.handle(Received(at / MB, second.copy, second.start + at, second.start + at + MB // 10))
    for at in range(first.start, first.end, MB):
        machine.handle(Received(1.0 + at / 10 / MB, first.copy, at, min(at + MB, first.end)))
    actions = machine.handle(Finished(1.6, first.copy))
    (shorten,), (fetch,) = kinds(actions, Shorten), kinds(actions, Fetch)
    assert shorten.copy == second.copy
    assert (fetch.source, fetch.start, fetch.end) == (0, shorten.end, second.end)
    machine.handle(Received(1.7, second.copy, second.start + 16 * MB // 10, shorten.end))
    machine.handle(Finished(1.8, second.copy))
    assert [source.ended[0].ending for source in machine.state.sources] == ["whole", "shortened"]
    assert [source.planned for source in machine.state.sources] == [first.end, 10 * MB - first.end]


def test_a_silent_copy_is_abandoned_and_its_source_connected_anew():
    machine = scheduler(sources=1)
    (fetch,) = kinds(machine.handle(Ready(0.0, 0)), Fetch)
    machine.handle(Received(0.1, fetch.copy, 0, 1000))
    assert not kinds(machine.handle(Tick(2.0)), Abandon)
    assert kinds(machine.handle(Tick(4.0)), Abandon) == [Abandon(fetch.copy)]
    assert [(copy.ending, copy.over_at) for copy in machine.state.sources[0].ended] == [("stalled", 4.0)]
    assert kinds(machine.handle(Tick(4.7)), Connect) == [Connect(0)]
    (again,) = kinds(machine.handle(Ready(4.8, 0)), Fetch)
    assert (again.start, again.end) == (1000, 10 * MB)


def test_fragments_of_a_failed_source_become_one_copy_of_another():
    """Parallel streams deliver several parts of a range at once."""
    machine = scheduler(size=12 * MB)
    (first,) = kinds(machine.handle(Ready(0.0, 0)), Fetch)
    (second,) = kinds(machine.handle(Ready(0.0, 1)), Fetch)
    delivered = [(second.start + at, second.start + at + MB // 2) for at in range(MB // 2, 5 * MB, MB)]
    for start, end in delivered:
        machine.handle(Received(0.1, second.copy, start, end))
    machine.handle(Failed(0.2, 1, "lost", permanent=True, copy=second.copy))
    machine.handle(Received(0.3, first.copy, first.start, first.end))
    (fetch,) = kinds(machine.handle(Finished(0.3, first.copy)), Fetch)
    assert (fetch.source, fetch.start, fetch.end) == (0, second.start, second.end)
    assert list(fetch.skip) == delivered
    missing = machine.state.lacking(machine.state.copies[fetch.copy])
    actions = [action for start, end in missing for action in machine.handle(Received(0.4, fetch.copy, start, end))]
    assert kinds(actions, Done)


def nearly_done(rtt=0.1, queueing=(0,)):
    """Run two sources of 1 MB/s until the first is nearly done; return the actions of the next tick, and its copy."""
    machine = scheduler(size=20 * MB)
    (first,) = kinds(machine.handle(Ready(0.0, 0, rtt=rtt)), Fetch)
    (second,) = kinds(machine.handle(Ready(0.0, 1, rtt=rtt)), Fetch)
    machine.handle(Received(0.1, second.copy, second.start, second.start + 1000))
    at = first.start
    while first.end - at > 300_000:
        machine.handle(Received(0.2 + at / 5 / MB, first.copy, at, at + 100_000))
        at += 100_000
    now = 0.2 + at / 5 / MB
    return machine, machine.handle(Tick(now, (PathState(rtt),) * 2, (), queueing)), first, at, now


def test_a_source_that_queues_gets_its_next_range_before_the_present_one_ends():
    machine, actions, first, at, now = nearly_done()
    (fetch,) = kinds(actions, Fetch)
    assert fetch.source == 0
    machine.handle(Received(now + 0.1, fetch.copy, fetch.start, fetch.start + 1000))  # they may overlap
    machine.handle(Received(now + 0.2, first.copy, at, first.end))
    machine.handle(Finished(now + 0.2, first.copy))
    assert machine.state.sources[0].copy == fetch.copy
    assert not kinds(nearly_done(queueing=())[1], Fetch)


def test_new_source_gets_a_range_and_one_that_just_began_keeps_its_own():
    """One packet is no measurement: at a distance, the next ones come a round trip later."""
    machine = scheduler(size=100 * MB, sources=3, rate=None)
    (first,) = kinds(machine.handle(Ready(0.0, 0, rtt=0.05)), Fetch)
    (second,) = kinds(machine.handle(Ready(0.0, 1, rtt=0.05)), Fetch)
    for copy in (first, second):
        machine.handle(Received(0.1, copy.copy, copy.start, copy.start + 1448))
    machine.handle(Received(0.12, first.copy, first.start + 1448, first.start + 100_000))
    actions = machine.handle(Ready(0.14, 2, rtt=0.05))
    assert kinds(actions, Fetch)
    assert not kinds(actions, Abandon)
    machine.handle(Received(0.15, second.copy, second.start + 1448, second.start + 2000))
    state = machine.state
    machine.handle(Failed(0.2, 1, "lost", permanent=False, copy=second.copy))
    assert state.rate(state.sources[1], 0.2) > 0


def test_a_distant_source_takes_nothing_that_a_near_one_delivers_before():
    machine = scheduler(size=2 * MB, sources=2, rate=None)
    machine.state.sources[0].setup_seconds = machine.state.sources[1].setup_seconds = None
    (fetch,) = kinds(machine.handle(Ready(0.0, 0, rtt=0.01)), Fetch)
    for i in range(1, 11):
        machine.handle(Received(0.01 * i, fetch.copy, (i - 1) * 50_000, i * 50_000))
    assert not kinds(machine.handle(Ready(0.1, 1, rtt=0.06)), Fetch)  # its first byte would come after 0.12 s


def test_a_queued_copy_may_wait_for_the_earlier_one_but_not_longer():
    machine, actions, first, at, now = nearly_done()
    (fetch,) = kinds(actions, Fetch)
    for i in range(1, 9):  # the source becomes slow
        machine.handle(Received(now + i, first.copy, at + i * 1000, at + (i + 1) * 1000))
        assert not kinds(machine.handle(Tick(now + i, (PathState(0.1),) * 2)), Abandon)
    machine.handle(Received(now + 9, first.copy, at, first.end))
    machine.handle(Finished(now + 9, first.copy))
    assert not kinds(machine.handle(Tick(now + 9.1, (PathState(0.1),) * 2)), Abandon)
    assert Abandon(fetch.copy) in machine.handle(Tick(now + 40, (PathState(0.1),) * 2))


def test_failure_of_a_source_ends_all_its_copies():
    machine, actions, first, _, now = nearly_done()
    (fetch,) = kinds(actions, Fetch)
    actions = machine.handle(Failed(now, 0, "lost", permanent=False, copy=first.copy))
    assert kinds(actions, Abandon) == [Abandon(fetch.copy)]
    assert machine.state.sources[0].status == "pausing"
    machine, actions, first, _, now = nearly_done()
    (fetch,) = kinds(actions, Fetch)
    machine.handle(Received(now + 0.1, fetch.copy, fetch.start, fetch.end))
    machine.handle(Finished(now + 0.1, fetch.copy))
    assert machine.state.sources[0].copy == first.copy  # the earlier one is slower
    actions = machine.handle(Tick(now + 20.0, (PathState(0.1),) * 2, (), ()))
    assert Abandon(first.copy) in actions


def test_pauses_grow_and_a_hopeless_source_is_left():
    machine = scheduler(sources=1)
    pauses, now = [], 0.0
    for _ in range(TRIES - 1):
        (wake,) = kinds(machine.handle(Failed(now, 0, "refused", permanent=False)), Wake)
        pauses.append(wake.at - now)
        now = wake.at
        assert kinds(machine.handle(Tick(now)), Connect)
    for pause, least in zip(pauses, [0.5, 1.0, 2.0, 4.0], strict=True):
        assert least <= pause <= 1.25 * least
    assert kinds(machine.handle(Failed(now, 0, "refused", permanent=False)), GiveUp) == [GiveUp("refused")]


def test_a_source_is_left_alone_as_long_as_its_server_asks():
    machine = scheduler(sources=2)
    machine.handle(Failed(0.0, 0, "busy", permanent=False, retry_after=20.0))
    assert not kinds(machine.handle(Tick(19.9)), Connect)
    assert kinds(machine.handle(Tick(25.0)), Connect) == [Connect(0)]


def test_transfers_that_fail_together_come_back_apart():
    def pause(seed: int) -> float:
        (wake,) = kinds(scheduler(sources=1, seed=seed).handle(Failed(0.0, 0, "busy", permanent=False)), Wake)
        return wake.at

    assert pause(1) == pause(1)
    assert len({pause(seed) for seed in range(50)}) == 50


def test_a_permanent_failure_is_not_tried_again():
    machine = scheduler(sources=1)
    assert kinds(machine.handle(Failed(0.1, 0, "no such file", permanent=True)), GiveUp)


def test_rejected_bytes_are_fetched_from_another():
    machine = scheduler(size=100, sources=2)
    (fetch,) = kinds(machine.handle(Ready(0.0, 0)), Fetch)
    assert kinds(machine.handle(Received(0.1, fetch.copy, 0, 100)), Done)
    assert not machine.handle(Rejected(0.2, (0,), ((0, 100),)))[:-1]
    (again,) = kinds(machine.handle(Ready(0.3, 1)), Fetch)
    assert (again.source, again.start, again.end) == (1, 0, 100)
    assert kinds(machine.handle(Received(0.4, again.copy, 0, 100)), Done)


def test_a_source_that_comes_back_while_it_connects_is_not_connected_twice():
    """The source was suspected wrongly, because of ranges of an earlier run."""
    machine = scheduler(size=100, sources=3)
    (fetch,) = kinds(machine.handle(Ready(0.0, 0)), Fetch)
    machine.handle(Received(0.1, fetch.copy, 0, 100))
    assert kinds(machine.handle(Rejected(0.2, (2,), ((0, 50),))), Close) == [Close(2)]
    (again,) = kinds(machine.handle(Ready(0.3, 1)), Fetch)
    machine.handle(Received(0.4, again.copy, 0, 50))
    actions = machine.handle(Rejected(0.5, (1,), ((0, 50),), restored=(2,)))
    assert kinds(actions, Connect) == [Connect(2)]
    assert not kinds(machine.handle(Ready(0.6, 2)), Connect)
    assert machine.state.sources[2].usable


def test_a_source_without_ranges_is_not_asked_for_the_middle_when_it_is_the_last_no_more():
    machine = scheduler(size=10 * MB)
    machine.handle(Waiting(0.0, 1, "no free connection"))
    (all_of_it,) = kinds(machine.handle(Ready(0.0, 0, ranged=False)), Fetch)
    machine.handle(Received(0.1, all_of_it.copy, 0, 1000))
    actions = machine.handle(Ready(0.2, 1))
    (shorten,), (stolen,) = kinds(actions, Shorten), kinds(actions, Fetch)
    assert (stolen.source, stolen.start) == (1, shorten.end)
    machine.handle(Received(0.3, all_of_it.copy, 1000, shorten.end))
    actions = machine.handle(Finished(0.3, all_of_it.copy))
    assert not kinds(actions, Fetch)
    assert kinds(actions, Close) == [Close(0, temporary=True)]
    actions = machine.handle(Failed(0.4, 1, "gone", permanent=True, copy=stolen.copy))
    assert kinds(actions, Connect) == [Connect(0)]
    (rest,) = kinds(machine.handle(Ready(0.5, 0, ranged=False)), Fetch)
    assert (rest.start, rest.end) == (0, stolen.end)


def test_a_source_that_is_not_needed_is_let_go_after_a_while_and_comes_back():
    machine = scheduler(strategy="brute")
    fetches = [kinds(machine.handle(Ready(0.0, source)), Fetch) for source in range(2)]
    (first,), (second,) = [fetch for fetch in fetches[1] if fetch.source == 0], [f for f in fetches[1] if f.source == 1]
    machine.handle(Received(1.0, first.copy, first.start, first.end))
    assert not kinds(machine.handle(Finished(1.0, first.copy)), Close)
    machine.handle(Received(1.5, second.copy, second.start, second.start + 1000))
    assert not kinds(machine.handle(Tick(1.0 + LINGER / 2)), Close)
    assert kinds(machine.handle(Tick(1.0 + LINGER)), Close) == [Close(0, temporary=True)]
    actions = machine.handle(Failed(3.1, 1, "gone", permanent=True, copy=second.copy))
    assert kinds(actions, Connect) == [Connect(0)]
    (rest,) = kinds(machine.handle(Ready(3.2, 0)), Fetch)
    assert (rest.start, rest.end) == (second.start + 1000, second.end)


def test_a_source_that_is_too_slow_makes_room_at_once_for_one_that_is_kept_out():
    machine = CheckedScheduler(100 * MB, [Estimate()] * 3, make("aggressive"), most=2)
    machine.handle(Started(0.0))
    (fast,) = kinds(machine.handle(Ready(0.0, 0)), Fetch)
    (slow,) = kinds(machine.handle(Ready(0.0, 1)), Fetch)
    for at, copy in ((1.0, fast), (1000.0, slow)):
        machine.handle(Received(at - 0.5, copy.copy, copy.start, copy.start + 1000))
        machine.handle(Received(at, copy.copy, copy.start + 1000, copy.end))
        actions = machine.handle(Finished(at, copy.copy))
    assert kinds(actions, Close) == [Close(1, temporary=True)]
    assert kinds(actions, Connect) == [Connect(2)]


def test_a_source_without_ranges_is_used_only_as_the_last():
    machine = scheduler(sources=2)
    assert not kinds(machine.handle(Ready(0.0, 0, ranged=False)), Fetch)
    assert kinds(machine.handle(Failed(0.1, 1, "gone", permanent=True)), Connect) == [Connect(0)]
    assert kinds(machine.handle(Ready(0.2, 0, ranged=False)), Fetch)


def test_illegal_event_raises_an_error_with_the_history():
    machine = scheduler(sources=1)
    machine.handle(Ready(0.0, 0))
    with pytest.raises(IllegalEventError, match=r"copy 7 is not running\n.*copy 1"):
        machine.handle(Finished(1.0, 7))


def test_an_empty_file_needs_an_answer_and_no_byte():
    machine = scheduler(size=0, sources=2)
    assert kinds(machine.handle(Ready(0.1, 1)), Done)


def test_a_share_of_a_source_that_turns_out_to_ignore_ranges_goes_to_others():
    machine = scheduler(strategy="brute")
    machine.handle(Ready(0.0, 0))
    (own,) = kinds(machine.handle(Tick(5.0)), Fetch)
    machine.handle(Ready(6.0, 1, ranged=False))
    machine.handle(Received(7.0, own.copy, own.start, own.end))
    (rest,) = kinds(machine.handle(Finished(7.0, own.copy)), Fetch)
    assert (rest.source, rest.start, rest.end) == (0, own.end, 10 * MB)


def test_a_source_without_ranges_is_left_alone_while_another_pauses():
    machine = scheduler()
    machine.handle(Ready(0.0, 0, ranged=False))
    actions = machine.handle(Failed(0.1, 1, "reset", permanent=False))
    assert not kinds(actions, Connect)
    assert kinds(machine.handle(Tick(0.8)), Connect) == [Connect(1)]


def test_bytes_that_were_here_already_do_not_make_up_for_failures():
    machine = scheduler(sources=1, missing=[(9 * MB, 10 * MB)])
    now, actions = 0.0, []
    for _ in range(TRIES):
        (fetch,) = kinds(machine.handle(Ready(now, 0, ranged=False)), Fetch)
        machine.handle(Received(now, fetch.copy, 0, 2 * MB))
        actions = machine.handle(Failed(now, 0, "reset", permanent=False, copy=fetch.copy))
        now += 60.0
        machine.handle(Tick(now)) if not kinds(actions, GiveUp) else None
    assert kinds(actions, GiveUp)


def test_a_source_rejected_while_it_connects_stays_out():
    machine = scheduler(size=100)
    (fetch,) = kinds(machine.handle(Ready(0.0, 0)), Fetch)
    machine.handle(Received(0.1, fetch.copy, 0, 100))
    actions = machine.handle(Rejected(0.2, (1,), ((0, 10),)))
    assert kinds(actions, Close) == [Close(1)]
    assert not kinds(actions, Connect)
    assert not kinds(machine.handle(Tick(9.0)), Connect)


def test_blocks_that_are_delivered_quickly_do_not_put_off_the_look_at_the_silent():
    machine = scheduler(strategy="conservative", blocks=100)
    (block,) = kinds(machine.handle(Started(0.0)) + machine.handle(Ready(0.0, 0)), Fetch)
    (silent,) = kinds(machine.handle(Ready(0.0, 1)), Fetch)
    machine.handle(Tick(0.1))
    for at in (0.15, 0.2, 0.25):
        machine.handle(Received(at, block.copy, block.start, block.end))
        actions = machine.handle(Finished(at, block.copy))
        (block,), (wake,) = kinds(actions, Fetch), kinds(actions, Wake)
        assert wake.at == pytest.approx(0.1 + TICK)
    assert silent.source == 1


def test_bytes_in_flight_over_parallel_streams_are_not_stolen():
    machine = scheduler(size=20 * MB)
    (fetch,) = kinds(machine.handle(Ready(0.0, 0, rtt=0.3)), Fetch)
    (other,) = kinds(machine.handle(Ready(0.0, 1)), Fetch)
    for at in range(0, 4 * MB, MB):  # every other half megabyte of the first four, and nothing beyond
        machine.handle(Received(0.5 + at / MB / 10, fetch.copy, fetch.start + at, fetch.start + at + MB // 2))
    machine.handle(Received(0.1, other.copy, other.start, other.start + 1000))
    machine.handle(Received(1.0, other.copy, other.start + 1000, other.end))
    (stolen,) = kinds(machine.handle(Finished(1.0, other.copy)), Fetch)
    copy = machine.state.copies[fetch.copy]
    left = sum(end - start for start, end in machine.state.lacking(copy))
    assert left >= int(3 * 0.3 * machine.state.rate(machine.state.sources[0], 1.0))  # three round trips
    assert (stolen.start, stolen.end) == (copy.end, fetch.end)


def test_the_first_part_can_be_taken_when_the_last_part_is_there():
    """Two sessions without a queue have divided a range, and the second one has delivered its part."""
    machine = scheduler(size=20 * MB)
    (fetch,) = kinds(machine.handle(Ready(0.0, 0, rtt=0.001)), Fetch)
    (other,) = kinds(machine.handle(Ready(0.0, 1, rtt=0.001)), Fetch)
    middle = (fetch.start + fetch.end) // 2
    machine.state.sources[0].widening.streams = 2
    for i in range(1, 11):
        machine.handle(Received(0.1 * i, fetch.copy, fetch.start + (i - 1) * 1000, fetch.start + i * 1000))
    machine.handle(Received(1.0, fetch.copy, middle, fetch.end))
    machine.handle(Received(1.1, other.copy, other.start, other.start + 1000))
    machine.handle(Received(2.0, other.copy, other.start + 1000, other.end))
    (stolen,) = kinds(machine.handle(Finished(2.0, other.copy)), Fetch)
    assert fetch.start + 10_000 <= stolen.start < middle


def test_range_can_be_raced_again_after_its_original_failed():
    machine = scheduler(size=60_000)
    (fetch,) = kinds(machine.handle(Ready(0.0, 0)), Fetch)
    state = machine.state
    machine.handle(Received(0.1, fetch.copy, 0, 1000))
    (race,) = kinds(machine.handle(Ready(0.5, 1)), Fetch)
    original, racer = state.copies[fetch.copy], state.copies[race.copy]
    assert racer.racing
    assert state.rivals(original)
    assert state.rivals(racer)
    machine.handle(Failed(0.6, 0, "reset", permanent=False, copy=fetch.copy))
    assert not state.rivals(racer)


def test_of_two_requests_without_an_answer_the_first_that_is_answered_goes_on():
    machine = scheduler(size=100_000, sources=3)
    (first,) = kinds(machine.handle(Ready(0.0, 0, rtt=0.001)), Fetch)
    machine.handle(Ready(0.0, 1, rtt=0.001))
    (second,) = kinds(machine.handle(Tick(0.5, (None,) * 3)), Fetch)
    assert (second.start, second.end) == (first.start, first.end)
    actions = machine.handle(Received(0.9, second.copy, 0, 10_000))
    assert kinds(actions, Abandon) == [Abandon(first.copy)]
    assert machine.state.raced_bytes == 0
    assert machine.state.sources[0].setup_seconds >= 0.9  # so it is not soon taken for a quick one
    assert not kinds(machine.handle(Received(1.0, second.copy, 10_000, 90_000)), Abandon)


def test_a_source_that_answers_later_than_others_again_and_again_is_not_left():
    machine = scheduler(size=100_000, sources=3)
    machine.handle(Ready(0.0, 0, rtt=0.001))
    machine.handle(Ready(0.0, 1, rtt=0.001))
    (second,) = kinds(machine.handle(Tick(0.5, (None,) * 3)), Fetch)
    late = machine.state.sources[0]
    late.failures = TRIES - 1
    machine.handle(Received(1.5, second.copy, 0, 10_000))
    assert late.status == "pausing"
    (wake,) = kinds(machine.handle(Failed(1.6, 1, "reset", permanent=False, copy=second.copy)), Wake)
    assert Connect(0) in machine.handle(Tick(max(wake.at, late.resume_at)))


def test_loser_of_a_race_gets_work_at_once_and_the_winner_finishes():
    machine = scheduler(size=3 * MB, sources=3)
    fetches = [kinds(machine.handle(Ready(0.0, source)), Fetch)[0] for source in range(3)]
    for step, fetch in enumerate(fetches):
        machine.handle(Received(0.1 + step / 100, fetch.copy, fetch.start, fetch.start + 1000))
    busy, slow, fast = fetches
    machine.handle(Received(0.2, slow.copy, slow.start + 1000, slow.end - 60_000))
    machine.handle(Received(0.95, busy.copy, busy.start + 1000, busy.end - 600_000))
    machine.handle(Received(1.0, fast.copy, fast.start + 1000, fast.end))
    (race,) = kinds(machine.handle(Finished(1.0, fast.copy)), Fetch)
    assert (race.start, race.end) == (slow.end - 60_000, slow.end)
    actions = machine.handle(Received(1.1, race.copy, race.start, race.end))
    (lost,), (fetch,) = kinds(actions, Abandon), kinds(actions, Fetch)
    assert lost.copy == slow.copy
    assert fetch.source == slow.source
    assert not machine.handle(Received(1.2, busy.copy, busy.end - 600_000, busy.end - 599_000))
    ended = machine.handle(Finished(1.2, race.copy))
    assert Abandon(race.copy) not in ended
    assert not kinds(ended, Done)


def test_race_covers_only_the_missing_bytes_of_the_last_streams():
    machine = scheduler(size=40 * MB)
    (far,) = kinds(machine.handle(Ready(0.0, 0, rtt=0.2)), Fetch)
    (near,) = kinds(machine.handle(Ready(0.0, 1)), Fetch)
    machine.handle(Received(0.4, far.copy, far.start, far.start + 1000))
    gaps = [(far.end - MB * back // 5, far.end - MB * back // 5 + 50_000) for back in (5, 3, 1)]
    edges = [far.start + 1000, *(edge for gap in gaps for edge in gap), far.end]
    for at, (start, end) in enumerate(zip(edges[::2], edges[1::2], strict=True)):
        machine.handle(Received(10.0 + at / 10, far.copy, start, end))
    machine.handle(Received(10.4, near.copy, near.start, near.start + 1000))
    machine.handle(Received(20.0, near.copy, near.start + 1000, near.end))
    (race,) = kinds(machine.handle(Finished(20.0, near.copy)), Fetch)
    assert (race.start, race.end) == (gaps[0][0], gaps[-1][1])
    assert race.skip == ((gaps[0][1], gaps[1][0]), (gaps[1][1], gaps[2][0]))
    assert machine.state.raced_bytes == 3 * 50_000
    for start, end in gaps[:2]:
        machine.handle(Received(20.1, race.copy, start, end))
    actions = machine.handle(Received(20.2, race.copy, *gaps[2]))
    assert {each.copy for each in kinds(actions, Abandon)} >= {far.copy}
    assert kinds(actions, Done)


def test_complete_file_waits_for_a_witness():
    machine = CheckedScheduler(100, [Estimate()], make("adaptive"), missing=[])
    assert not kinds(machine.handle(Started(0.0)), Done)
    assert kinds(machine.handle(Ready(0.1, 0)), Done)


def test_single_goes_on_with_the_next_best():
    estimates = [Estimate(0.01, rate) for rate in (1e6, 4e6, 2e6)]
    machine = CheckedScheduler(MB, estimates, make("single"))
    machine.handle(Started(0.0))
    machine.handle(Ready(0.0, 0))
    machine.handle(Ready(0.0, 2))
    (fetch,) = kinds(machine.handle(Ready(0.0, 1)), Fetch)
    assert fetch.source == 1
    (after,) = kinds(machine.handle(Failed(0.1, 1, "gone", permanent=True, copy=fetch.copy)), Fetch)
    assert after.source == 2


@pytest.mark.parametrize("strategy", ["brute", "adaptive"])
def test_share_of_a_waiting_source_goes_to_others(strategy):
    machine = scheduler(strategy=strategy)
    machine.handle(Ready(0.0, 0))
    machine.handle(Tick(5.0))
    assert machine.state.sources[1].share
    machine.handle(Waiting(6.0, 1, "no free connection"))
    assert not machine.state.sources[1].share
    (copy,) = machine.state.copies.values()
    machine.handle(Received(7.0, copy.id, copy.start, copy.end))
    (rest,) = kinds(machine.handle(Finished(7.0, copy.id)), Fetch)
    assert (rest.source, rest.start, rest.end) == (0, copy.end, 10 * MB)


def test_the_last_source_may_wait_as_long_as_it_takes():
    machine = scheduler(sources=1)
    assert not kinds(machine.handle(Waiting(0.0, 0, "no free connection")), GiveUp)
    assert not kinds(machine.handle(Tick(1e6)), GiveUp)
    assert kinds(machine.handle(Ready(1e6, 0)), Fetch)


def test_a_source_that_waited_is_a_spare_one_when_its_place_is_taken():
    machine = CheckedScheduler(10 * MB, [Estimate()] * 2, make("adaptive"), most=1)
    machine.handle(Started(0.0))
    assert kinds(machine.handle(Waiting(0.1, 0, "no free connection")), Connect) == [Connect(1)]
    (fetch,) = kinds(machine.handle(Ready(0.2, 1)), Fetch)
    assert not kinds(machine.handle(Ready(0.3, 0)), Fetch)
    failed = machine.handle(Failed(0.4, 1, "gone", permanent=True, copy=fetch.copy))
    assert kinds(failed, Connect) == [Connect(0)]


def test_a_source_that_answers_when_another_has_its_place_can_be_asked():
    machine = CheckedScheduler(0, [Estimate()] * 2, make("adaptive"), most=1)
    assert Connect(0) in machine.handle(Started(0.0))
    assert Connect(1) in machine.handle(Waiting(0.1, 0, "no free connection"))
    assert machine.handle(Ready(0.2, 0, ranged=True, rtt=None))[-1] == Done()
    assert [source.answers for source in machine.state.sources] == [True, False]
