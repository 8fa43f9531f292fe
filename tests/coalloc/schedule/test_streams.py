"""How many streams a source gets."""

import pytest

from coalloc.schedule.streams import FACTOR, FIRST, MOST, Widening

MUCH = 1 << 30
RTT = 0.05


def widths(rates, loaded=RTT, step=2.0):
    """The streams after each look, at these rates, and these round trips under load."""
    widening = Widening(rtt=RTT)
    widening.begin(0.0, MUCH)
    seen, at, delivered = [], 0.0, 0
    for i, rate in enumerate(rates):
        at, delivered = at + step, delivered + int(rate * step)
        widening.look(at, delivered, MUCH, loaded[i] if isinstance(loaded, list) else loaded)
        seen.append(widening.streams)
    return seen


@pytest.mark.parametrize(("rtt", "backlog"), [(None, MUCH), (0.001, MUCH), (0.2, 1 << 20)])
def test_a_source_that_is_near_or_has_little_to_send_keeps_one_stream(rtt, backlog):
    widening = Widening(rtt=rtt)
    assert widening.begin(-9.0, backlog) is None
    assert widening.look(10.0, 1_000_000, backlog, rtt) is None
    assert widening.streams == 1


def test_a_way_on_which_packets_queue_is_full():
    assert set(widths([10e6] * 9, loaded=RTT + 0.01)) == {FIRST}


def test_it_is_full_though_the_queue_is_empty_for_a_moment():
    assert set(widths([10e6] * 40, loaded=[RTT, RTT + 0.02, RTT] * 13 + [RTT], step=0.4)) == {FIRST}


def test_more_at_once_when_the_rate_has_fallen_and_nothing_queues():
    queue, none = RTT + 0.02, RTT
    assert widths([9e6, 9e6, 9e6, 5e6], loaded=[queue, queue, queue, none], step=0.4)[-1] == MOST
    assert widths([9e6, 9e6, 9e6, 7e6], loaded=[queue, queue, queue, none], step=0.4)[-1] == FIRST
    assert widths([9e6, 9e6, 9e6, 5e6], loaded=queue, step=0.4)[-1] == FIRST


def test_more_where_nothing_queues_and_the_rate_grows_no_more():
    assert widths([1e6, 9e6, 9e6, 30e6]) == [FIRST, FIRST, MOST, MOST]


def test_one_increase_that_does_not_help_is_the_last(monkeypatch):
    monkeypatch.setattr("coalloc.schedule.streams.MOST", 1000)
    assert widths([9e6, 9e6, 9e6, 9e6, 9e6])[-1] == FACTOR * FIRST
    assert widths([9e6, 9e6, 20e6, 20e6, 20e6])[-1] == FACTOR * FACTOR * FIRST


def test_nothing_changes_while_nobody_knows_the_round_trip():
    assert set(widths([9e6] * 5, loaded=None)) == {FIRST}


def test_not_before_the_last_increase_can_have_shown():
    widening = Widening(rtt=0.5)
    widening.begin(0.0, MUCH)
    looks = [widening.look(at, int(at * 1e6), MUCH, 0.5) for at in (1.5, 3.0, 4.6)]
    assert looks == [None, None, FACTOR * FIRST]


def test_little_that_is_left_is_not_worth_more():
    widening = Widening(rtt=RTT)
    widening.begin(0.0, MUCH)
    assert [widening.look(at, int(at * 1e6), 1 << 20, RTT) for at in (2.0, 4.0, 6.0)] == [None, None, None]
