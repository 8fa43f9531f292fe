"""Tests of the admission of promises on links that others use, too."""

from math import exp, inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.guarantees.deadline import PathRate
from coalloc.guarantees.finish import FinishErrors
from coalloc.guarantees.finish_admission import (
    AdmittedFinish,
    PromisedShare,
    PromisedShares,
    RefusedFinish,
    ServerLimit,
    SharedPath,
    admit,
    view,
)
from tests.support.seeds import tries

ERRORS = FinishErrors()
FREE = ServerLimit()


def path(rate: float = 1e6, spread: float = 0.3, *promised: PromisedShare, server: ServerLimit = FREE) -> SharedPath:
    return SharedPath(PathRate(rate, spread), PromisedShares(promised), server)


def safe(rate: float, spread: float = 0.3, sure: float = 0.95) -> float:
    """Return the rate that a link carries with this probability."""
    return rate * exp(-spread * ERRORS.quantile(sure))


def test_a_promise_takes_the_share_that_it_needs_of_one_link_that_suffices():
    found = admit(10e6, 1000.0, 1100.0, 0.95, [path(1e6), path(3e6)], FREE, ERRORS)
    assert isinstance(found, AdmittedFinish)
    assert (found.since, found.shares) == (1000.0, {1: pytest.approx(1e5)})
    assert found.chance >= 0.95
    assert 1000 < found.t50 < found.t95 < 1100
    assert found.t95 == pytest.approx(1000 + 10e6 / safe(3e6))


def test_several_links_are_used_if_one_is_not_enough():
    found = admit(150e6, 0.0, 100.0, 0.95, [path(1e6), path(1e6), path(1e6)], FREE, ERRORS)
    assert isinstance(found, AdmittedFinish)
    assert found.shares == {i: pytest.approx(0.75e6) for i in range(2)}


def test_two_requests_cannot_both_have_what_only_one_can():
    first = admit(50e6, 0.0, 100.0, 0.95, [path()], FREE, ERRORS)
    assert isinstance(first, AdmittedFinish)
    taken = PromisedShare(first.shares[0], 0.0, 100.0)
    second = admit(50e6, 0.0, 100.0, 0.95, [path(1e6, 0.3, taken)], FREE, ERRORS)
    assert isinstance(second, RefusedFinish)
    assert second.chance == pytest.approx(ERRORS.chance(0.0))  # of the sum of both, as the first one has precedence
    assert 100 < second.earliest < inf
    later = admit(50e6, 5.0, second.earliest, 0.95, [path(1e6, 0.3, taken)], FREE, ERRORS)
    assert isinstance(later, AdmittedFinish)
    assert later.since in (5.0, 100.0)


def test_a_link_that_is_full_now_is_promised_from_the_end_of_another_promise():
    full = PromisedShare(safe(1e6), 0.0, 100.0)
    found = admit(10e6, 0.0, 150.0, 0.95, [path(1e6, 0.3, full)], FREE, ERRORS)
    assert isinstance(found, AdmittedFinish)
    assert (found.since, found.shares) == (100.0, {0: pytest.approx(10e6 / 50)})


def test_interfaces_of_servers_limit_the_sum_over_their_links():
    elsewhere = PromisedShare(0.9e6, 0.0, 500.0)
    server = ServerLimit(1e6, PromisedShares([elsewhere]))
    refused = admit(50e6, 0.0, 100.0, 0.95, [path(10e6, server=server)], FREE, ERRORS)
    assert isinstance(refused, RefusedFinish)
    assert refused.chance < 0.01
    assert admit(5e6, 0.0, 100.0, 0.95, [path(10e6, server=server)], FREE, ERRORS)[0] >= 0.95
    receiver = ServerLimit(1e6, PromisedShares([elsewhere]))
    two = [path(10e6), path(10e6)]
    assert isinstance(admit(11e6, 0.0, 100.0, 0.95, two, receiver, ERRORS), RefusedFinish)
    assert isinstance(admit(9e6, 0.0, 100.0, 0.95, two, receiver, ERRORS), AdmittedFinish)


def test_what_can_never_be_promised_has_no_earliest_time():
    forever = PromisedShare(1e6, 0.0, inf)
    refused = admit(1e6, 0.0, 100.0, 0.95, [path(1e6, 0.3, forever)], FREE, ERRORS)
    assert refused == RefusedFinish(0.0, None)
    assert admit(1e6, 100.0, 90.0, 0.95, [path()], FREE, ERRORS)[0] == 0.0


def test_the_chance_of_a_running_promise_is_that_of_the_sum_of_all_before_it():
    before = PromisedShare(0.4e6, 0.0, 500.0)
    assert view(0, 99.0, 100.0, 0.95, [path()], FREE, ERRORS) == (1.0, 99.0)
    alone = view(40e6, 0.0, 100.0, 0.95, [path()], FREE, ERRORS)
    behind = view(40e6, 0.0, 100.0, 0.95, [path(1e6, 0.3, before)], FREE, ERRORS)
    assert behind.chance < alone.chance
    assert behind.sure_by > alone.sure_by == pytest.approx(40e6 / safe(1e6))
    assert view(40e6, 0.0, 100.0, 0.95, [path(1e6, 0.3, PromisedShare(9e6, 0.0, 9.0))], FREE, ERRORS).sure_by == inf
    assert view(40e6, 200.0, 100.0, 0.95, [path()], FREE, ERRORS).chance == 0.0


def test_shares_that_begin_when_others_end_are_not_added_up():
    assert PromisedShares([PromisedShare(5.0, 0.0, 9.0), PromisedShare(5.0, 9.0, 20.0)]).most(0.0) == 5.0
    assert PromisedShares([PromisedShare(5.0, 0.0, 9.0), PromisedShare(6.0, 8.0, 20.0)]).most(0.0) == 11.0
    assert PromisedShares([PromisedShare(5.0, 0.0, 9.0)]).most(9.0) == 0
    assert PromisedShares().most(9.0) == 0


MOMENTS = st.integers(0, 12)


@given(st.lists(st.tuples(st.integers(1, 9), MOMENTS, MOMENTS | st.just(inf))), MOMENTS)
def test_the_highest_sum_is_that_of_all_moments(shares, since: int):
    promised = PromisedShares(PromisedShare(*share) for share in shares)
    sums = [sum(rate for rate, begin, end in shares if begin <= moment < end) for moment in range(since, 14)]
    assert promised.most(since) == max(sums)


@pytest.mark.seeded
def test_promises_never_add_up_to_more_than_the_links_carry():
    for attempt in tries(20):
        with attempt as seed:
            _promise_much(Random(seed))


def _promise_much(chances: Random) -> None:
    """Admit random requests; check each sum of shares, and that what a refusal offers holds half a minute long."""
    link, now, made = path(1e6, chances.uniform(0.05, 0.6)), 0.0, []
    for _ in range(40):
        now += chances.expovariate(0.1)
        nbytes, by = chances.uniform(0.1, 100) * 1e6, now + chances.uniform(5, 300)
        shared = link._replace(promised=PromisedShares(each for each in made if each.until > now))
        found = admit(nbytes, now, by, 0.95, [shared], FREE, ERRORS)
        if isinstance(found, AdmittedFinish):
            assert found.shares[0] * (by - found.since) == pytest.approx(nbytes)
            made.append(PromisedShare(found.shares[0], found.since, by))
            assert PromisedShares(made).most(0.0) <= safe(1e6, link.rate.spread) * (1 + 1e-9)
        else:
            assert found.chance < 0.95
            again = admit(nbytes, now + chances.uniform(0, 29.9), found.earliest, 0.95, [shared], FREE, ERRORS)
            assert isinstance(again, AdmittedFinish)
    assert made
