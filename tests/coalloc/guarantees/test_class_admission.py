"""Rates of classes of files, from the first seconds of their servers."""

from coalloc.guarantees.admission import CONFIDENCE
from coalloc.guarantees.class_admission import ClassNeed, admit_classes
from coalloc.guarantees.samples import PathSamples


def path(rate: float, seconds: float = 10.0) -> PathSamples:
    """Return the samples of a path with a steady rate."""
    samples = PathSamples()
    for tick in range(int(4 * seconds) + 1):
        samples.add(rate / 4, tick / 4)
    return samples


def admitted(needs, paths):
    return [each and each.chance >= CONFIDENCE for each in admit_classes(needs, paths)]


def test_nothing_is_said_before_enough_is_known():
    assert admitted([ClassNeed(1.0, {("a",): 10})], {"a": path(100.0, 3.0)}) == [None]
    assert admitted([ClassNeed(1.0, {("a",): 10})], {}) == [None]
    assert admitted([ClassNeed(1.0, {("a",): 10, ("b",): 10})], {"a": path(100.0)}) == [None]


def test_a_complete_class_needs_nothing():
    assert admitted([ClassNeed(1.0, {}), ClassNeed(9e9, {("a",): 0})], {}) == [True, True]


def test_what_is_possible_can_be_promised():
    paths = {"a": path(100.0), "b": path(30.0)}
    left = {("a",): 1000, ("b",): 1000}
    (refused,) = admit_classes([ClassNeed(120.0, left)], paths)
    assert refused.chance < CONFIDENCE
    assert 0 < refused.possible < 60  # half of its bytes are at the slow server
    assert admitted([ClassNeed(0.9 * refused.possible, left)], paths) == [True]


def test_classes_with_precedence_take_from_the_others():
    paths = {"a": path(100.0)}
    one = ClassNeed(40.0, {("a",): 4000})
    assert admitted([one], paths) == [True]
    assert admitted([one, one], paths) == [True, False]
    first, second = admit_classes([one, one], paths)
    assert second.possible == max(0.0, first.possible - 40)


def test_replicas_add_up():
    both = ClassNeed(70.0, {("a", "b"): 700})
    assert admitted([both], {"a": path(60.0), "b": path(60.0)}) == [True]
    assert admitted([both], {"a": path(60.0)}) == [False]


def test_a_server_that_sends_nothing_has_no_rate():
    (found,) = admit_classes([ClassNeed(1.0, {("a",): 10})], {"a": path(0.0)})
    assert (found.chance, found.possible) == (0.0, 0.0)
