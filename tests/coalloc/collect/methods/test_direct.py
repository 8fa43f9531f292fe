"""The direct methods: they differ only in the order in which hosts send."""

from coalloc.collect.methods import AllAtOnce, make
from coalloc.collect.methods.actions import CollectDone, Piece, Send
from coalloc.collect.methods.events import Arrived, CollectStarted
from coalloc.planner.network import Demand, File, Host, Link, LinkKey, Network
from tests.coalloc.collect.methods.random_simulation import RandomSimulation
from tests.coalloc.planner.networks import line

NETWORK = line(A_T=1, B_T=1, C_T=1, D_T=1, E_T=1)
DEMAND = Demand(tuple(File(f"{host}{i}", 5, (host,), ("T",)) for host in "ABCDE" for i in (1, 2)))
TWO = Network.of(
    (Host("x"), Host("y"), Host("t")), (Link(LinkKey("x", "t"), 1_000_000), Link(LinkKey("y", "t"), 5_000_000))
)
OF_TWO = Demand((File("a", 1000, ("x",), ("t",)), File("b", 0, ("y",), ("t",))))


def run(name: str, seed: int = 1, **parameters: object) -> RandomSimulation:
    simulation = RandomSimulation(make(name, NETWORK, DEMAND, seed=seed, **parameters), DEMAND, 1)
    assert simulation.run() == CollectDone()
    return simulation


def most_at_once(simulation: RandomSimulation) -> int:
    """Return the hosts that send at the same time."""
    spans = {}
    for at, send in simulation.sends:
        begin, end = spans.get(send.source, (at, at))
        spans[send.source] = (min(begin, at), max(end, simulation.arrivals[send.hop]))
    return max(sum(begin <= at < end for begin, end in spans.values()) for at, _ in simulation.sends)


def turns(simulation: RandomSimulation) -> list[str]:
    return list(dict.fromkeys(send.source for _, send in simulation.sends))


def test_all_at_once_waits_for_nothing():
    assert [at for at, _ in run("all-at-once").sends] == [0.0] * 10


def test_one_by_one_sends_all_of_one_host_then_all_of_another():
    simulation = run("one-by-one")
    assert most_at_once(simulation) == 1
    assert len(turns(simulation)) == 5


def test_order_of_turns_depends_on_the_seed_only():
    assert len({tuple(turns(run("one-by-one", seed))) for seed in range(10)}) > 5
    assert turns(run("one-by-one", 3)) == turns(run("one-by-one", 3))


def test_concurrent_keeps_so_many_hosts_sending():
    simulation = run("concurrent", group=3)
    assert most_at_once(simulation) == 3
    begins = [at for at, _ in simulation.sends]
    assert begins[:6] == [0.0] * 6
    assert set(begins[6:]) <= set(simulation.arrivals.values())


def test_spread_in_time_begins_groups_at_their_times_ready_or_not():
    simulation = run("spread-in-time", group=2, slot=0.25)
    assert [at for at, _ in simulation.sends] == [0.0] * 4 + [0.25] * 4 + [0.5] * 2


def test_the_best_path_is_the_widest_one_in_blocks():
    network = line(A_T=10, A_R=90, R_T=80, A_S=85, S_R=85)
    demand = Demand((File("a", 10, ("A",), ("T",)),))
    simulation = RandomSimulation(make("best-path", network, demand, block=4), demand, 1)
    assert simulation.run() == CollectDone()
    assert [(send.source, send.sink) for _, send in simulation.sends[:3]] == [("A", "R")] * 3
    assert sorted(send.piece[1:] for _, send in simulation.sends if send.source == "R") == [(0, 4), (4, 8), (8, 10)]


def test_the_quickest_path_counts_the_time_to_fill_it():
    network = line(A_T=50, A_R=90, R_T=80)
    small = Demand((File("a", 10, ("A",), ("T",)),))
    simulation = RandomSimulation(make("best-path", network, small, best="quickest", block=10), small, 1)
    assert simulation.run() == CollectDone()
    assert [(send.source, send.sink) for _, send in simulation.sends] == [("A", "T")]


def test_best_path_avoids_hosts_that_do_not_relay():
    network = line(A_T=50, A_R=90, R_T=80)
    closed = Network({**network.hosts, "R": Host("R", relays=False)}, network.links)
    demand = Demand((File("a", 10, ("A",), ("T",)),))
    simulation = RandomSimulation(make("best-path", closed, demand), demand, 1)
    assert simulation.run() == CollectDone()
    assert [send.sink for _, send in simulation.sends] == ["T"]


def test_every_file_goes_straight_to_the_sink():
    method = AllAtOnce(TWO, OF_TWO)
    first, second = method.handle(CollectStarted(0.0))
    assert first == Send(1, "x", "t", Piece("a", 0, 1000))
    assert second == Send(2, "y", "t", Piece("b", 0, 0))
    assert method.handle(Arrived(1.0, 1)) == []
    assert method.handle(Arrived(2.0, 2)) == [CollectDone()]
