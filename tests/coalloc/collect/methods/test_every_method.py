"""Every method delivers every byte, or reports missing bytes with the reason, after any failures."""

from collections.abc import Container
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.collect.methods import METHODS, make
from coalloc.collect.methods.actions import CollectDone, CollectGiveUp
from coalloc.errors import UsageError
from coalloc.planner.network import Demand, File, Host, Network
from tests.coalloc.collect.methods.random_simulation import RandomSimulation
from tests.coalloc.planner.networks import collections, line
from tests.support.effort import effort

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("adaptive", {}),
    ("all-at-once", {}),
    ("one-by-one", {}),
    ("spread-in-time", {"group": 2, "slot": 1.5}),
    ("concurrent", {"group": 2}),
    ("best-path", {"block": 7}),
    ("best-path", {"block": 7, "best": "quickest"}),
    ("path-sync", {"percent": 100}),
    ("path-sync", {"percent": 60, "step": 1.0, "unit": 1}),
    ("path-delay", {}),
    ("path-delay", {"factor": 0.5, "step": 1.0, "unit": 1, "limits": False}),
]
variants = pytest.mark.parametrize(("name", "parameters"), VARIANTS, ids=str)


def test_every_method_is_tried():
    assert {name for name, _ in VARIANTS} == set(METHODS)


@st.composite
def fates(draw: st.DrawFn, demand: Demand) -> dict[str, float]:
    """Draw hosts that die, and when; one holder of each file survives."""
    spared = {draw(st.sampled_from(file.holders)) for file in demand.files} | {"D", "E"}
    names = sorted({"h0", "h1", "h2", "h3", "h4"} - spared)
    return {name: draw(st.floats(0, 10)) for name in names if draw(st.booleans())}


@st.composite
def refusals(draw: st.DrawFn, demand: Demand, deaths: Container[str]) -> list[tuple[str, str]]:
    """Draw hosts that refuse to send a file; one holder of each file survives and sends it."""
    refusing = []
    for file in demand.files:
        sender = draw(st.sampled_from([holder for holder in file.holders if holder not in deaths]))
        others = [host for host in (*file.holders, "h0", "h1") if host != sender]
        refusing += [(host, file.name) for host in dict.fromkeys(others) if draw(st.booleans())]
    return refusing


@pytest.mark.sampled(3)
@variants
@settings(max_examples=effort(15, 60))
@given(st.data(), collections(), st.integers(0, 10**6), st.integers(0, 3), st.booleans())
def test_every_byte_arrives(
    name: str,
    parameters: dict[str, Any],
    data: st.DataObject,
    both: tuple[Network, Demand],
    seed: int,
    failures: int,
    twice: bool,
):
    network, demand = both
    if twice:
        network, demand = wanted_twice(network, demand)
    deaths = {host: at for host, at in data.draw(fates(demand)).items() if host in network.hosts}
    refusing = data.draw(refusals(demand, deaths))
    method = make(name, network, demand, seed=seed, **parameters)
    simulation = RandomSimulation(method, demand, seed, failures, deaths, refusing=refusing)
    assert simulation.run() == CollectDone()
    assert simulation.ledger.done
    assert simulation.ledger.duplicate_bytes == 0
    if not (failures or deaths or refusing):
        assert not any(simulation.ledger.staged.values())


def wanted_twice(network: Network, demand: Demand) -> tuple[Network, Demand]:
    """Return the same network with a second destination that has equal links."""
    more = [replace(link, key=link.key._replace(sink="E")) for link in network.links.values() if link.key.sink == "D"]
    hosts = (*network.hosts.values(), Host("E"))
    files = tuple(replace(file, destinations=("D", "E")) for file in demand.files)
    return Network.of(hosts, (*network.links.values(), *more)), Demand(files)


@variants
def test_lost_file_is_reported_after_all_others_have_arrived(name: str, parameters: dict[str, Any]):
    demand = Demand((File("a", 10, ("A",), ("D",), available=2.0), File("b", 50, ("B",), ("D",))))
    network = line(A_D=5, B_D=5, A_B=5)
    simulation = RandomSimulation(make(name, network, demand, **parameters), demand, 1, deaths={"A": 1.0})
    end = simulation.run()
    assert isinstance(end, CollectGiveUp)
    assert "a cannot reach D" in end.reason
    assert simulation.ledger.missing("b", "D") == []


@variants
def test_a_holder_that_refuses_a_file_still_sends_the_others(name: str, parameters: dict[str, Any]):
    files = [File(each, 40, ("A", "B"), ("D",)) for each in ("a", "b")]
    demand = Demand((*files, File("empty", 0, ("A", "B"), ("D",)), File("c", 40, ("A",), ("D",))))
    refusing = [("A", "a"), ("A", "empty")]
    network = line(A_D=50, B_D=5, A_B=50)
    simulation = RandomSimulation(make(name, network, demand, **parameters), demand, 1, refusing=refusing)
    assert simulation.run() == CollectDone()
    assert simulation.refused_at
    for at, send in simulation.sends:
        assert at <= simulation.refused_at.get((send.source, send.piece.file), inf)


@variants
def test_a_file_that_every_holder_refuses_is_reported_after_the_others(name: str, parameters: dict[str, Any]):
    demand = Demand((File("a", 10, ("A", "B"), ("D",)), File("b", 50, ("B",), ("D",))))
    refusing = [("A", "a"), ("B", "a")]
    network = line(A_D=5, B_D=5)
    simulation = RandomSimulation(make(name, network, demand, **parameters), demand, 1, refusing=refusing)
    end = simulation.run()
    assert isinstance(end, CollectGiveUp)
    assert "a cannot reach D: it is not sent" in end.reason
    assert simulation.ledger.missing("b", "D") == []


@variants
@pytest.mark.parametrize("refused", ["a", "ab"])
def test_a_relay_that_refuses_pieces_is_avoided(name: str, parameters: dict[str, Any], refused: str):
    demand = Demand((File("a", 40, ("A",), ("D",)), File("b", 40, ("A",), ("D",))))
    network = line(A_D=1, A_B=50, B_D=50)
    refusing = [("B", each) for each in refused]
    simulation = RandomSimulation(make(name, network, demand, **parameters), demand, 1, refusing=refusing)
    assert simulation.run() == CollectDone()


@variants
@pytest.mark.parametrize("others", [{}, {"A_B": 5, "B_D": 5}])
def test_hosts_that_cannot_send_to_each_other_are_not_tried_again(
    name: str, parameters: dict[str, Any], others: dict[str, float]
):
    demand = Demand((File("a", 10, ("A",), ("D",)),))
    method = make(name, line(A_D=50, **others), demand, **parameters)
    simulation = RandomSimulation(method, demand, 1, apart=[("A", "D")])
    end = simulation.run()
    assert end == CollectDone() if others else "they do not fit" in getattr(end, "reason", "")
    assert not [at for at, send in simulation.sends if at > 15 and (send.source, send.sink) == ("A", "D")]


@variants
def test_a_destination_that_is_gone_is_the_end(name: str, parameters: dict[str, Any]):
    demand = Demand((File("a", 10, ("A",), ("D",), available=2.0),))
    end = RandomSimulation(make(name, line(A_D=5), demand, **parameters), demand, 1, deaths={"D": 1.0}).run()
    assert isinstance(end, CollectGiveUp)
    assert "D died" in end.reason


@variants
def test_a_way_that_always_fails_is_left_at_last(name: str, parameters: dict[str, Any]):
    demand = Demand((File("a", 10, ("A",), ("D",)),))
    end = RandomSimulation(make(name, line(A_D=5), demand, **parameters), demand, 1, failures=10**9, chance=1.0).run()
    assert isinstance(end, CollectGiveUp)
    assert "a cannot reach D: the weather" in end.reason


@variants
def test_files_travel_over_other_hosts_if_there_is_no_direct_link(name: str, parameters: dict[str, Any]):
    demand = Demand((File("a", 10, ("A",), ("D",)), File("empty", 0, ("A",), ("D",))))
    simulation = RandomSimulation(make(name, line(A_B=5, B_C=5, C_D=5), demand, **parameters), demand, 1)
    assert simulation.run() == CollectDone()


@variants
def test_files_at_the_destination_are_not_sent(name: str, parameters: dict[str, Any]):
    demand = Demand((File("a", 10, ("A", "D"), ("D",)), File("b", 10, ("A",), ("D",))))
    simulation = RandomSimulation(make(name, line(A_D=5), demand, **parameters), demand, 1)
    assert simulation.run() == CollectDone()
    assert {send.piece.file for _, send in simulation.sends} == {"b"}


def test_a_method_that_is_not_there_is_named():
    with pytest.raises(UsageError, match="unknown method 'magic'"):
        make("magic", line(A_D=5), Demand(()))


def test_a_parameter_that_a_method_does_not_take_is_named():
    with pytest.raises(UsageError, match="one-by-one does not have the option percent"):
        make("one-by-one", line(A_D=5), Demand(()), percent=95)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("path-sync", {"percent": 0}),
        ("path-delay", {"factor": 0}),
        ("concurrent", {"group": 0}),
        ("spread-in-time", {"slot": 0}),
        ("best-path", {"best": "cheapest"}),
    ],
)
def test_parameters_that_make_no_sense_are_refused(name: str, parameters: dict[str, Any]):
    with pytest.raises(UsageError):
        make(name, line(A_D=5), Demand((File("a", 10, ("A",), ("D",)),)), **parameters)
