"""Pairs of hosts: bytes in flight, stalls, and pauses after failures."""

from random import Random

import pytest

from coalloc.collect.methods.adaptive.pairs import TRIES, PairLane


def test_what_is_under_way_is_what_has_not_arrived():
    lane = PairLane()
    lane.work(0.0, 1, 100)
    lane.work(0.0, 2, 50)
    lane.moved(1.0, 1, 70)
    assert lane.under_way == 120
    lane.arrived(2.0, 1)
    lane.over(1)
    assert (lane.under_way, list(lane.hops)) == (50, [2])


def test_a_lane_has_stalled_after_ten_seconds_of_silence_and_four_times_what_a_piece_takes():
    lane = PairLane()
    assert not lane.stalled(100.0, 10.0)  # no bytes are requested from it
    lane.work(100.0, 1, 50)
    assert [lane.stalled(100.0 + s, 10.0) for s in (9, 19, 21)] == [False, False, True]
    assert [lane.stalled(100.0 + s, 100.0) for s in (9, 11)] == [False, True]
    assert [lane.stalled(100.0 + s, 0.1) for s in (59, 61)] == [False, True]
    lane.moved(120.0, 1, 40)
    assert not lane.stalled(121.0, 10.0)


def test_pauses_grow_and_what_fails_together_counts_once():
    lane, chance = PairLane(), Random(0)
    pauses = []
    now = 0.0
    while not lane.given_up:
        lane.failed(now, "refused", chance)
        lane.failed(now, "refused", chance)
        pauses.append(lane.resumes_at - now)
        now = lane.resumes_at
    assert len(pauses) == TRIES
    assert pauses[:4] == pytest.approx([0.5, 1, 2, 4], rel=0.25)
    assert max(pauses) < 40


def test_one_arrival_and_all_is_well():
    lane, chance = PairLane(), Random(0)
    for at in range(0, 100, 40):
        lane.failed(float(at), "refused", chance)
    lane.work(200.0, 1, 10)
    lane.arrived(201.0, 1)
    assert (lane.failures, lane.reason) == (0, "")
