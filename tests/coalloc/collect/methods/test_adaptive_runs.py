"""Whole collections by the adaptive method in virtual time, beside plans that know the future."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.collect.methods import AdaptiveCollecting, AllAtOnce
from coalloc.collect.methods.actions import CollectDone, CollectGiveUp, Send
from coalloc.collect.methods.adaptive.directives import Lot, reachable
from coalloc.collect.simulation import Break, Capacity, Kill, SimulationRecord, Underlay, simulate
from coalloc.planner import Demand, File, Host, Isp, Link, LinkKey, Network, least_makespan
from coalloc.util.intervals import Intervals
from tests.support.effort import effort

MB = 1_000_000


def network(links: dict[tuple[str, str], float]) -> Network:
    """Return a network with these links, in MB/s."""
    hosts = tuple(map(Host, sorted({name for pair in links for name in pair})))
    return Network.of(hosts, tuple(Link(LinkKey(*pair), round(rate * MB)) for pair, rate in links.items()))


def files(size: int, *holders: str) -> Demand:
    return Demand(tuple(File(f"of {name}", size, (name,), ("t",)) for name in holders))


PAPER = network({("x", "t"): 1, ("y", "t"): 5, ("x", "y"): 2, ("y", "x"): 2})
TWO = files(1000 * MB, "x", "y")
FIVE = network(
    {("a", "t"): 1, ("b", "t"): 6, ("c", "t"): 4, ("d", "t"): 3, ("a", "b"): 4, ("a", "c"): 4, ("b", "c"): 3}
    | {("b", "d"): 5, ("c", "b"): 5, ("c", "d"): 2, ("d", "c"): 2, ("d", "b"): 4, ("a", "d"): 0.5, ("d", "a"): 9}
)


def test_the_example_of_the_paper_takes_as_long_as_its_plan():
    record = simulate(AdaptiveCollecting(PAPER, TWO), Underlay.of(PAPER))
    assert record.outcome == "done"
    assert record.seconds == pytest.approx(1000 / 3, rel=0.01)
    assert simulate(AllAtOnce(PAPER, TWO), Underlay.of(PAPER)).seconds == 1000
    assert record.peak("y") < 10 * MB  # of 667 MB that pass


@pytest.mark.parametrize("size", [30 * MB, 300 * MB])
def test_small_collections_too(size):
    demand = files(size, "a", "b", "c", "d")
    record = simulate(AdaptiveCollecting(FIVE, demand), Underlay.of(FIVE))
    assert record.seconds == pytest.approx(float(least_makespan(FIVE, demand).makespan), rel=0.03)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "known",
    [
        {("x", "t"): 2, ("y", "t"): 2.5, ("x", "y"): 4},
        {("x", "t"): 4, ("y", "t"): 5, ("x", "y"): 0.5},
        {("x", "t"): 1, ("y", "t"): 1, ("x", "y"): 1},
        {("x", "t"): 9, ("y", "t"): 9, ("x", "y"): 9},
    ],
)
def test_wrong_estimates_cost_little_since_plans_are_made_again(known):
    adaptive = simulate(AdaptiveCollecting(network(known), TWO), Underlay.of(PAPER))
    once = simulate(AdaptiveCollecting(network(known), TWO, period=inf), Underlay.of(PAPER))
    assert adaptive.seconds < 1.05 * 1000 / 3
    assert once.seconds > 1.3 * adaptive.seconds


def clairvoyant(before: Network, after: Network, demand: Demand, at: float) -> float:
    """Return the least time if capacities change at second `at` and the planner knows it: a flow in two stages."""
    from scipy.optimize import linprog  # takes half a second

    keys, names = list(before.links), list(before.hosts)
    m, n = len(keys), len(names)
    balance = np.zeros(
        (2 * n, 2 * m + n + 1)
    )  # flows of both stages, what waits between them, the second stage's seconds
    for stage in (0, 1):
        for i, key in enumerate(keys):
            balance[stage * n + names.index(key.sink), stage * m + i] += 1
            balance[stage * n + names.index(key.source), stage * m + i] -= 1
        for j in range(n):
            balance[stage * n + j, 2 * m + j] = 1 if stage else -1
    held = [sum(file.size for file in demand.files if name in file.holders) / MB for name in names]
    wanted = [demand.size / MB if name == "t" else 0.0 for name in names]
    narrow = np.zeros((m, 2 * m + n + 1))
    for i, key in enumerate(keys):
        narrow[i, m + i], narrow[i, -1] = 1, -after.links[key].capacity / MB
    bounds = [(0, before.links[key].capacity / MB * at) for key in keys] + [(0, None)] * (m + n + 1)
    cost = [0.0] * (2 * m + n) + [1.0]
    answer = linprog(cost, narrow, np.zeros(m), balance, [-size for size in held] + wanted, bounds)
    return at + answer.fun


@pytest.mark.sampled(4)
@pytest.mark.parametrize("pair", [("b", "t"), ("c", "t"), ("a", "b"), ("a", "c")], ids=" to ".join)
@pytest.mark.parametrize("size", [50 * MB, 400 * MB])
def test_replanning_after_a_rate_halves_gains_80_percent_of_the_possible(pair, size):
    demand = files(size, "a", "b", "c", "d")
    at = float(least_makespan(FIVE, demand).makespan) / 2
    key = LinkKey(*pair)
    half = replace(FIVE.links[key], capacity=FIVE.links[key].capacity // 2)
    after = replace(FIVE, links={**FIVE.links, key: half})
    change = Capacity(at, str(key), half.capacity)
    best = clairvoyant(FIVE, after, demand, at)
    adaptive = simulate(AdaptiveCollecting(FIVE, demand), Underlay.of(FIVE), [change]).seconds
    once = simulate(AdaptiveCollecting(FIVE, demand, period=inf), Underlay.of(FIVE), [change]).seconds
    assert once - adaptive >= 0.8 * (once - best) - 0.02 * best  # without a possible gain there is no loss


def test_an_intermediate_that_dies_costs_time_and_no_data():
    demand = files(100 * MB, "a", "c")
    alone = least_makespan(FIVE.without("b"), demand).makespan
    record = simulate(AdaptiveCollecting(FIVE, demand), Underlay.of(FIVE), [Kill(5.0, "b")])
    assert record.outcome == "done"
    assert record.seconds < 5.0 + float(alone) * 1.05


def test_pieces_on_a_stalled_link_take_another_path():
    demand = files(100 * MB, "a", "b", "c", "d")
    plan = least_makespan(FIVE, demand)
    whole = simulate(AdaptiveCollecting(FIVE, demand), Underlay.of(FIVE)).seconds
    assert whole == pytest.approx(float(plan.makespan), rel=0.03)
    method = AdaptiveCollecting(FIVE, demand)
    record = simulate(method, Underlay.of(FIVE), [Capacity(whole - 0.5, "b -> t", 0)])
    assert record.outcome == "done"
    assert record.seconds < whole + 5
    assert method.ledger.duplicate_bytes == 0


class Watched(AdaptiveCollecting):
    """Checks all invariants after each event."""

    def handle(self, event):
        actions = super().handle(event)
        for send in actions:
            if isinstance(send, Send) and send.sink not in self.ledger.files[send.piece.file].destinations:
                host = self.network.hosts[send.sink]
                assert host.relays
                assert host.storage is None or self.ledger.occupied(send.sink) <= host.storage
        if not isinstance(actions[-1] if actions else None, CollectDone | CollectGiveUp):
            assert self._traffic.wanted.keys() == self.ledger.running.keys()
            for pieces in self.ledger.staged.values():
                assert all(self.ledger.missing(piece.file, "t") for piece in pieces)
        return actions


@st.composite
def worlds(draw) -> tuple[Network, Network, Demand]:
    """Draw the true network, the known one, and the demand at t."""
    names = [*"abcde"[: draw(st.integers(1, 5))], "t"]
    rates = st.floats(0.05, 20)
    true = {pair: draw(rates) for pair in _pairs(names) if pair[1] == "t" or draw(st.booleans())}
    known = {pair: rate * draw(st.sampled_from((0.2, 0.7, 1, 1, 1.5, 5))) for pair, rate in true.items()}
    hosts = {name: draw(_hosts(name)) for name in names}
    demand = Demand(
        tuple(
            File(str(i), draw(st.integers(0, 2) | st.integers(0, 60 * MB)), tuple(holders), ("t",))
            for i, holders in enumerate(
                draw(st.lists(st.lists(st.sampled_from(names[:-1]), min_size=1, unique=True), min_size=1, max_size=5))
            )
        )
    )
    return replace(network(true), hosts=hosts), replace(network(known), hosts=hosts), demand


def _pairs(names: list[str]) -> list[tuple[str, str]]:
    return [(a, b) for a in names for b in names if a != b]


@st.composite
def _hosts(draw, name: str) -> Host:
    limits = st.none() | st.integers(MB // 10, 20 * MB)
    access = (Isp(up=draw(limits), down=draw(limits)),) if draw(st.booleans()) else ()
    storage = draw(st.none() | st.integers(0, 10 * MB))
    return Host(name, access, storage=storage, relays=draw(st.sampled_from((True, True, False))))


def happenings(names: list[str], kills: bool):
    times = st.floats(0.0, 60.0)
    hosts = st.sampled_from([name for name in names if name != "t"])
    pairs = st.sampled_from(_pairs(names))
    slower = st.builds(
        lambda at, pair, rate: Capacity(at, " -> ".join(pair), rate * MB), times, pairs, st.floats(0.02, 9)
    )
    all_kinds = [slower, st.builds(lambda at, pair: Break(at, *pair), times, pairs)]
    if kills:
        all_kinds.append(st.builds(Kill, times, hosts))
    return st.lists(st.one_of(all_kinds), max_size=12).map(lambda found: sorted(found, key=lambda each: each.at))


def arrived(record: SimulationRecord, demand: Demand) -> dict[str, Intervals]:
    """Return the bytes that hops delivered to t."""
    there = {file.name: Intervals() for file in demand.files}
    for hop in record.hops:
        if hop.outcome == "arrived" and hop.send.sink == "t":
            there[hop.send.piece.file].add(hop.send.piece.start, hop.send.piece.end)
    return there


@settings(max_examples=effort(15, 60))
@given(worlds(), st.data())
def test_every_byte_arrives_despite_any_change_of_links(world, data):
    true, known, demand = world
    record = _run(true, known, demand, data.draw(happenings(list(true.hosts), kills=False)))
    assert record.outcome == "done"
    there = arrived(record, demand)
    assert all(there[file.name].total == file.size for file in demand.files)


@settings(max_examples=effort(15, 60))
@given(worlds(), st.data())
def test_every_byte_arrives_if_a_holder_lives_and_otherwise_a_reason_is_given(world, data):
    true, known, demand = world
    what = data.draw(happenings(list(true.hosts), kills=True))
    record = _run(true, known, demand, what)
    dead = {each.host for each in what if isinstance(each, Kill) and each.at <= record.seconds}
    if all(set(file.holders) - dead for file in demand.files):
        assert record.outcome == "done"
    elif record.outcome != "done":
        assert record.outcome.endswith("cannot reach t: it died")


def _run(true: Network, known: Network, demand: Demand, what) -> SimulationRecord:
    links = {str(key) for key in true.links}
    lots = {Lot(file.holders, "", "t"): file.size for file in demand.files}
    assert reachable(known, lots) == lots
    what = [each for each in what if not isinstance(each, Capacity) or each.link in links]
    method = Watched(known, demand)
    record = simulate(method, Underlay.of(true), what, limit=1e5)
    assert method.ledger.duplicate_bytes == 0
    return record
