"""Pairs of hosts: their bytes under way, rates, stalls, and pauses."""

from random import Random

import pytest

from coalloc.collect.methods.adaptive.link_queue import TRIES, LinkQueue, PairRateMeter


def test_bytes_under_way_are_those_that_have_not_arrived():
    queue = LinkQueue()
    queue.work(0.0, 1, 100)
    queue.work(0.0, 2, 50)
    queue.moved(1.0, 1, 70)
    assert queue.under_way == 120
    queue.arrived(2.0, 1)
    queue.over(1)
    assert (queue.under_way, list(queue.hops)) == (50, [2])


def test_a_lane_has_stalled_after_ten_seconds_of_silence_and_four_times_what_a_piece_takes():
    queue = LinkQueue()
    assert not queue.stalled(100.0, 10.0)  # no bytes are requested from it
    queue.work(100.0, 1, 50)
    assert [queue.stalled(100.0 + s, 10.0) for s in (9, 19, 21)] == [False, False, True]
    assert [queue.stalled(100.0 + s, 100.0) for s in (9, 11)] == [False, True]
    assert [queue.stalled(100.0 + s, 0.1) for s in (59, 61)] == [False, True]
    queue.moved(120.0, 1, 40)
    assert not queue.stalled(121.0, 10.0)


def test_pauses_grow_and_what_fails_together_counts_once():
    queue, chance = LinkQueue(), Random(0)
    pauses = []
    now = 0.0
    while not queue.given_up:
        queue.failed(now, "refused", chance)
        queue.failed(now, "refused", chance)
        pauses.append(queue.resumes_at - now)
        now = queue.resumes_at
    assert len(pauses) == TRIES
    assert pauses[:4] == pytest.approx([0.5, 1, 2, 4], rel=0.25)
    assert max(pauses) < 40


def test_one_arrival_and_all_is_well():
    queue, chance = LinkQueue(), Random(0)
    for at in range(0, 100, 40):
        queue.failed(float(at), "refused", chance)
    queue.work(200.0, 1, 10)
    queue.arrived(201.0, 1)
    assert (queue.failures, queue.reason) == (0, "")


def steady(meter: PairRateMeter, start: int, end: int, nbytes: int) -> None:
    for at in range(start, end):
        meter.moved(float(at), nbytes)


def test_the_last_five_seconds_count():
    meter = PairRateMeter()
    meter.begin(0.0)
    steady(meter, 1, 11, 100)
    assert meter.rate(10.0, 100) == 100
    steady(meter, 11, 13, 600)  # 2 s at 600, 3 s at 100
    assert meter.rate(12.0, 600) == pytest.approx(300)
    assert meter.rate(12.0, 600, memory=2.0) == pytest.approx(600)
    steady(meter, 13, 16, 600)
    assert meter.rate(15.0, 600) == pytest.approx(600)


def test_setting_up_does_not_count():
    meter = PairRateMeter()
    meter.begin(0.0)
    steady(meter, 3, 6, 100)  # the first piece took 3 s
    assert meter.rate(5.0, 100) == 100


def test_a_pair_is_not_judged_by_how_it_begins():
    meter = PairRateMeter()
    meter.begin(0.0)
    for at, nbytes in ((0.5, 0), (0.7, 10), (0.9, 20), (1.1, 40), (1.3, 90), (1.5, 10)):  # as TCP does
        meter.moved(at, nbytes)
        assert meter.rate(at, 100) is None
    for at in (2.0, 2.5, 3.0):
        meter.moved(at, 50)
    assert meter.rate(3.0, 100) == pytest.approx(100, rel=0.25)


def test_a_pair_without_work_is_not_slow():
    meter = PairRateMeter()
    meter.begin(0.0)
    steady(meter, 1, 4, 100)
    meter.rest()
    assert meter.rate(50.0, 0) == 100
    meter.begin(60.0)
    assert meter.rate(64.0, 100) == 100
    meter.moved(64.0, 100)  # waiting until 60 and setting up until 64 count for nothing
    meter.moved(65.0, 100)
    assert meter.rate(65.0, 100) == 100


def test_silence_counts_once_a_piece_is_late():
    meter = PairRateMeter()
    meter.begin(0.0)
    steady(meter, 1, 7, 100)
    assert meter.rate(7.0, 100) == 100  # due now
    assert meter.rate(8.0, 100) == pytest.approx(80)  # 100 bytes in 2 s, after 300 in 3 s
    assert meter.rate(106.0, 100) == pytest.approx(1)


def test_rate_is_known_after_a_while_even_without_an_arrival():
    meter = PairRateMeter()
    meter.begin(0.0)
    assert meter.rate(5.0, 100) is None
    assert meter.rate(10.0, 100) == 10
