"""Reference makespans: those of a plan that knows a change in advance, and of one that ignores it."""

import pytest

from coalloc.collect.methods import AdaptiveCollecting
from coalloc.collect.simulation import Capacity, Underlay, simulate
from tests.benchmarks.clairvoyant import Change, clairvoyant
from tests.benchmarks.sites import SINK, Situation
from tests.benchmarks.staging import SCENARIOS, expected

RELAY = SCENARIOS["relay"]


def rates(situation: Situation) -> dict[tuple[str, str], float]:
    return {key[:2]: float(link.capacity) for key, link in situation.network.links.items()}


def test_it_is_the_plan_of_least_time_if_nothing_changes():
    pair = ("b", SINK)
    nothing = Change(7.0, pair, rates(RELAY)[pair])
    assert clairvoyant(rates(RELAY), RELAY.supply, SINK, nothing) == pytest.approx(expected(RELAY).seconds, rel=1e-6)


def test_plan_that_knows_a_change_sends_data_ahead():
    """A dead link makes a host fill up.

    The link from b is dead for 10 s; then it carries 10 a second. The direct link carries 1 all the time.
    """
    ways = {("a", "t"): 1.0, ("a", "b"): 5.0, ("b", "t"): 1e-9}
    opens = Change(10.0, ("b", "t"), 10.0)
    assert clairvoyant(ways, {"a": 100.0}, "t", opens) == pytest.approx(10 + 90 / 11)


def test_adaptive_recovers_what_a_clairvoyant_plan_gains_when_a_link_drops_to_half():
    halves = SCENARIOS["halves"]
    says, network = expected(halves), halves.network
    assert says.change is not None
    (key,) = (key for key in network.links if key[:2] == says.change.pair)
    drops = Capacity(says.change.at, str(key), says.change.rate)
    record = simulate(AdaptiveCollecting(network, halves.demand), Underlay.of(network), [drops])
    assert says.clairvoyant < says.kept
    assert says.kept - record.seconds >= 0.8 * (says.kept - says.clairvoyant)


def test_plan_is_direct_if_direct_is_fastest():
    says = expected(SCENARIOS["direct"])
    assert says.seconds == says.straight
