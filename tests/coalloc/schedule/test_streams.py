"""How many streams a source gets."""

import pytest

from coalloc.schedule.streams import FIRST, MOST, Widening

MUCH = 1 << 30


def widths(rates, rtt=0.05):
    """The streams after each look, a second apart, at these rates."""
    widening = Widening(rtt=rtt)
    widening.begin(-9.0, MUCH)
    seen = []
    for at, rate in enumerate(rates):
        widening.look(float(at), rate, MUCH)
        seen.append(widening.streams)
    return seen


@pytest.mark.parametrize(("rtt", "backlog"), [(None, MUCH), (0.001, MUCH), (0.2, 1 << 20)])
def test_a_source_that_is_near_or_has_little_to_send_keeps_one_stream(rtt, backlog):
    widening = Widening(rtt=rtt)
    assert widening.begin(-9.0, backlog) is None
    assert widening.look(10.0, 1e6, backlog) is None
    assert widening.streams == 1


def test_a_steady_source_keeps_what_it_began_with():
    assert set(widths([5e6, 9e6, 10e6, 10e6, 9.5e6, 10e6])) == {FIRST}


def test_more_while_they_help():
    rates = [10e6, 3e6, 5e6, 5e6, 9.9e6, 9.9e6]
    assert widths(rates) == [FIRST, 4 * FIRST, MOST, MOST, MOST, MOST]


def test_one_increase_that_does_not_help_is_the_last():
    assert widths([10e6, 5e6, 5e6, 5e6, 2e6, 1e6])[-1] == 4 * FIRST


def test_never_more_than_the_most():
    assert widths([1e7 * 0.9**i if i % 2 else 1e7 * 0.4**i for i in range(20)])[-1] <= MOST


def test_not_before_the_last_increase_can_have_shown():
    widening = Widening(rtt=0.5)
    widening.begin(-9.0, MUCH)
    widening.look(0.0, 10e6, MUCH)
    assert widening.look(1.0, 1e6, MUCH) is None
    assert widening.look(4.0, 1e6, MUCH) == 4 * FIRST
