"""Tests that networks and demands refuse names given twice, and numbers that are negative, not finite, or not whole."""

from collections.abc import Callable
from math import inf, nan

import pytest

from coalloc.errors import UsageError
from coalloc.planner import Demand, File, Host, Isp, Link, LinkKey, Network, Shared
from coalloc.planner.documents import units
from coalloc.planner.network import joined

KEY = LinkKey("a", "b")


def network(*shared: Shared, **changed: object) -> Network:
    link = {"key": KEY, "capacity": 5, **changed}
    return Network.of((Host("a"), Host("b")), (Link(**link),), shared)


def file(**changed: object) -> File:
    return File(**{"name": "x", "size": 1, "holders": ("a",), "destinations": ("b",), **changed})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: network(capacity=-1), "link a -> b has a negative number"),
        (lambda: network(capacity=None), "link a -> b has no capacity"),
        (lambda: network(capacity=0.5), "link a -> b has the number 0.5, which is not whole"),
        (lambda: network(capacity=nan), "not whole"),
        (lambda: network(bounds=(1.5, 2)), "not whole"),
        (lambda: network(price=nan), "link a -> b has the invalid number nan"),
        (lambda: network(price=-1e-9), "link a -> b has the invalid number -1e-09"),
        (lambda: network(age=inf), "link a -> b has the invalid number inf"),
        (lambda: network(capacity=-(10**400)), "negative"),
        (lambda: network(Shared("sea", 5, {KEY: -1.0})), r"shared set sea has the invalid number -1\.0"),
        (lambda: network(Shared("sea", 5, {KEY: nan})), "shared set sea has the invalid number nan"),
        (lambda: network(Shared("sea", 5.5, {KEY: 1.0})), "not whole"),
        (lambda: network(Shared("sea", 5, {}), Shared("sea", 6, {})), "a shared set occurs twice: 'sea'"),
        (lambda: Network.of((Host("a"), Host("a")), ()), "a host occurs twice: 'a'"),
        (lambda: Network.of((Host("a"), Host("b")), (Link(KEY, 1), Link(KEY, 2))), "a link occurs twice: 'a -> b'"),
        (lambda: Network.of((Host("a", (Isp("x"), Isp("x"))),), ()), "an ISP of host a occurs twice: 'x'"),
        (lambda: Network.of((Host("a", (Isp(up=1.5),)),), ()), "host a has the number 1.5, which is not whole"),
        (lambda: Network.of((Host("a", io=-1),), ()), "host a has a negative number"),
        (lambda: Network({"b": Host("a")}, {}), "host a has another name as its key, 'b'"),
        (lambda: Network({"a": Host("a"), "b": Host("b")}, {LinkKey("b", "a"): Link(KEY, 1)}), "has another name"),
        (lambda: file(size=1e6), "file x has the number 1000000.0, which is not whole"),
        (lambda: file(size=-1), "file x has a negative number"),
        (lambda: file(available=nan), "file x has the invalid number nan"),
        (lambda: file(deadline=-1.0), r"file x has the invalid number -1\.0"),
        (lambda: file(holders=("a", "a")), "a holder of file x occurs twice: 'a'"),
        (lambda: file(destinations=("b", "b")), "a destination of file x occurs twice: 'b'"),
        (lambda: Demand((file(), file())), "a file occurs twice: 'x'"),
        (lambda: Demand((), nan), "the budget has the invalid number nan"),
        (lambda: Demand((), -1.0), "the budget has the invalid number -1"),
    ],
)
def test_names_given_twice_and_impossible_numbers_are_refused(make: Callable[[], object], message: str):
    with pytest.raises(UsageError, match=message) as refused:
        make()
    assert refused.value.remedy


@pytest.mark.parametrize("text", ["0.5 B/s", "3 bit/s", 0.25])
def test_a_rate_below_a_byte_per_second_is_not_taken_for_zero(text: object):
    with pytest.raises(ValueError, match="less than 1 B/s"):
        units.rate(text)
    assert units.rate("0 B/s") == 0


def test_a_link_that_does_not_fit_is_left_out_of_shared_sets_too():
    fibre = LinkKey("a", "b", "fibre")
    hosts = Host("a", (Isp("fibre"),)), Host("b")
    other = Network.of(hosts, (Link(fibre, 5),), (Shared("sea", 5, {fibre: 1.0}),))
    both = joined(Network.of((Host("a", (Isp("copper"),)), Host("b")), ()), other)
    assert (both.links, both.shared) == ({}, (Shared("sea", 5, {}),))


def test_shared_set_of_the_first_network_wins_over_its_namesake():
    one, other = network(Shared("sea", 5, {KEY: 1.0})), network(Shared("sea", 6, {KEY: 1.0}), Shared("isthmus", 7, {}))
    assert [(each.name, each.capacity) for each in joined(one, other).shared] == [("sea", 5), ("isthmus", 7)]
