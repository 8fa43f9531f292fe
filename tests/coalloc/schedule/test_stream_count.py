"""The number of streams of a source."""

import pytest

from coalloc.model.routes import PathState
from coalloc.schedule.stream_count import FACTOR, FIRST, MOST, Widening

MUCH = 1 << 30
RTT = 0.05


def widths(rates, loaded=RTT, lost=0, step=2.0):
    """Return the streams after each look, at these rates, round-trip times under load, and losses."""
    widening = Widening(rtt=RTT)
    widening.begin(0.0, MUCH)
    seen, at, delivered, disordered = [], 0.0, 0, 0
    for i, rate in enumerate(rates):
        at, delivered = at + step, delivered + int(rate * step)
        disordered += lost[i] if isinstance(lost, list) else lost
        way = PathState(loaded[i] if isinstance(loaded, list) else loaded, disordered)
        widening.look(at, delivered, MUCH, way)
        seen.append(widening.streams)
    return seen


@pytest.mark.parametrize(("rtt", "backlog"), [(None, MUCH), (0.001, MUCH), (0.2, 1 << 20)])
def test_a_source_that_is_near_or_has_little_to_send_keeps_one_stream(rtt, backlog):
    widening = Widening(rtt=rtt)
    assert widening.begin(-9.0, backlog) is None
    assert widening.look(10.0, 1_000_000, backlog, PathState(rtt or 0.1)) is None
    assert widening.streams == 1


def test_a_way_on_which_packets_queue_is_full():
    assert set(widths([10e6] * 9, loaded=RTT + 0.01)) == {FIRST}


def test_it_is_full_though_the_queue_is_empty_for_a_moment():
    assert set(widths([10e6] * 40, loaded=[RTT, RTT + 0.02, RTT] * 13 + [RTT], step=0.4)) == {FIRST}


UNSTEADY = [5e6, 5e6, 4.5e6, 4.5e6, 4.9e6, 4.9e6]
QUEUED = RTT + 0.02
AT_FIRST = [QUEUED] * 3 + [RTT] * 3


def test_streams_increase_if_packets_are_lost_without_a_queue():
    assert widths(UNSTEADY, loaded=AT_FIRST, lost=10, step=0.29)[-1] == MOST
    assert widths(UNSTEADY, loaded=AT_FIRST, lost=0, step=0.29)[-1] == FIRST
    assert widths(UNSTEADY, loaded=QUEUED, lost=10, step=0.29)[-1] == FIRST


def test_one_loss_or_those_of_a_queue_that_has_just_gone_mean_nothing():
    assert widths(UNSTEADY, loaded=AT_FIRST, lost=[0, 0, 0, 0, 10, 0], step=0.29)[-1] == FIRST
    assert widths(UNSTEADY, loaded=AT_FIRST, lost=[10, 10, 10, 10, 0, 0], step=0.29)[-1] == FIRST


def test_lossy_source_without_a_gain_gets_no_more_streams():
    assert set(widths([5e6] * 6, loaded=AT_FIRST, lost=10, step=0.29)) == {FIRST}


def test_a_near_source_that_loses_packets_by_chance_is_given_more_streams():
    widening = Widening(rtt=0.005)
    assert widening.begin(0.0, MUCH) is None
    rates, delivered, seen = [5e6, 4e6, 5e6, 4e6, 5e6], 0, []
    for i, rate in enumerate(rates):
        delivered += int(rate * 0.4)
        seen.append(widening.look(0.4 * (i + 1), delivered, MUCH, PathState(0.005, 10 * (i + 1))))
    assert [streams for streams in seen if streams] == [FIRST]


@pytest.mark.parametrize(("rtt", "rate", "streams"), [(0.005, 20e6, 2), (0.0005, 20e6, 1), (0.005, 5e6, 1)])
def test_a_near_source_that_loses_packets_of_a_full_queue_gets_a_second_stream(rtt, rate, streams):
    """One that is nearer regains its rate within a moment; for a slow one it is not worth the processor time."""
    widening = Widening(rtt=rtt)
    widening.begin(0.0, MUCH)
    for i in range(10):
        widening.look(0.4 * i, int(rate * 0.4 * i), MUCH, PathState(rtt + 0.02, disordered=i))
    assert widening.streams == streams


def test_streams_increase_if_the_rate_stops_growing_without_a_queue():
    assert widths([1e6, 9e6, 9e6, 30e6]) == [FIRST, FIRST, MOST, MOST]


def test_one_increase_that_does_not_help_is_the_last(monkeypatch):
    monkeypatch.setattr("coalloc.schedule.stream_count.MOST", 1000)
    assert widths([9e6, 9e6, 9e6, 9e6, 9e6])[-1] == FACTOR * FIRST
    assert widths([9e6, 9e6, 20e6, 20e6, 20e6])[-1] == FACTOR * FACTOR * FIRST


def test_stream_count_stays_while_the_path_state_is_unknown():
    widening = Widening(rtt=RTT)
    widening.begin(0.0, MUCH)
    assert [widening.look(at, int(at * 9e6), MUCH, None) for at in (2.0, 4.0, 6.0)] == [None, None, None]


def test_streams_stay_until_the_last_increase_can_show():
    widening = Widening(rtt=0.5)
    widening.begin(0.0, MUCH)
    looks = [widening.look(at, int(at * 1e6), MUCH, PathState(0.5)) for at in (1.5, 3.0, 4.6)]
    assert looks == [None, None, FACTOR * FIRST]


def test_little_that_is_left_is_not_worth_more():
    widening = Widening(rtt=RTT)
    widening.begin(0.0, MUCH)
    assert [widening.look(at, int(at * 1e6), 1 << 20, PathState(RTT)) for at in (2.0, 4.0, 6.0)] == [None, None, None]
