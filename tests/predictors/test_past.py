"""The known past of a link at a transfer's start: all transfers that had ended, in any order."""

from itertools import permutations
from math import exp, isnan, log, log1p

import pytest

from predictors.models.past import BY_SIZE, Past
from predictors.observation import Observation, Query

MB = 1_000_000


def moved(start: float, end: float, size: int = 100 * MB) -> Observation:
    return Observation("ftp://a", start, end, size)


def past(*moves: Observation) -> Past:
    found = Past()
    for each in moves:
        assert each.rate
        found.learn(each, each.rate)
    return found


def asked(size: int = 100 * MB) -> Query:
    return Query("ftp://a", 0.0, size)


def test_transfers_that_had_not_ended_are_not_known():
    known = past(moved(0.0, 10.0), moved(5.0, 30.0))
    assert isnan(known.features(asked(), 9.0).begun)
    assert known.features(asked(), 20.0) == past(moved(0.0, 10.0)).features(asked(), 20.0)


def test_latest_transfer_is_the_one_that_began_last():
    known = past(moved(50.0, 60.0), moved(0.0, 100.0))
    found = known.features(asked(), 110.0)
    assert found.begun == found.like_begun == log1p(60.0)
    assert found.rate == pytest.approx(log(1 * MB))
    assert found.like_rate == pytest.approx(log(10 * MB) - BY_SIZE * log(100 * MB))


def test_similar_past_transfer_is_chosen_by_size():
    known = past(moved(0.0, 10.0, 10 * MB), moved(50.0, 60.0, 1000 * MB))
    small, large, unknown = (known.features(Query("ftp://a", 0.0, size), 70.0) for size in (10 * MB, 1000 * MB, None))
    assert exp(small.like_begun) == pytest.approx(71.0)
    assert exp(large.like_begun) == exp(unknown.like_begun) == pytest.approx(21.0)
    none_so_small = known.features(asked(1 * MB), 70.0)
    assert none_so_small.like_begun == none_so_small.begun


def test_the_order_in_which_they_become_known_does_not_matter():
    moves = [moved(10.0 * i, 10.0 * i + 25.0 + 7 * (i % 3), (i + 1) * MB) for i in range(5)]
    found = {past(*some).features(asked(), 200.0) for some in permutations(moves)}
    assert len(found) == 1
