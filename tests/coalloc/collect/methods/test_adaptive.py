"""Confluence's protocol, event by event, on its example: 1 MB/s from x to t, 5 MB/s from y to t, 2 MB/s from x to y."""

from collections import Counter, defaultdict
from dataclasses import replace
from math import inf

import pytest

from coalloc.collect.methods import AdaptiveCollecting
from coalloc.collect.methods.actions import Cancel, CollectDone, CollectGiveUp, CollectWake, Drop, Piece, Send
from coalloc.collect.methods.events import (
    Arrived,
    CollectStarted,
    CollectTick,
    Gone,
    HopFailed,
    HopFault,
    HopMoved,
    LinkHeld,
)
from coalloc.errors import UsageError
from coalloc.planner import Demand, File, Host, Link, LinkKey, Network

MB = 1_000_000
DEMAND = Demand((File("a", 1000 * MB, ("x",), ("t",)), File("b", 1000 * MB, ("y",), ("t",))))


def network(*links: tuple[str, str, float], **storage: int) -> Network:
    names = sorted({name for link in links for name in link[:2]})
    hosts = tuple(Host(name, storage=storage.get(name)) for name in names)
    return Network.of(hosts, tuple(Link(LinkKey(a, b), round(rate * MB)) for a, b, rate in links))


PAPER = network(("x", "t", 1), ("y", "t", 5), ("x", "y", 2))


def kinds(actions, kind):
    return [action for action in actions if isinstance(action, kind)]


def under_way(sends: list[Send]) -> dict[tuple[str, str], int]:
    sizes: Counter[tuple[str, str]] = Counter()
    for send in sends:
        sizes[send.source, send.sink] += send.piece.size
    return dict(sizes)


def sent(actions, source: str, sink: str) -> list[Send]:
    return [send for send in kinds(actions, Send) if (send.source, send.sink) == (source, sink)]


def test_about_a_second_of_what_is_planned_is_handed_out_to_each_pair():
    actions = AdaptiveCollecting(PAPER, DEMAND).handle(CollectStarted(0.0))
    handed = under_way(kinds(actions, Send))
    assert handed == pytest.approx({("x", "t"): 1 * MB, ("x", "y"): 2 * MB, ("y", "t"): 5 * MB}, rel=0.5)
    assert all(len(sent(actions, *pair)) >= 2 for pair in handed)  # so that no pair waits for the method


def test_the_next_piece_follows_when_one_is_acknowledged():
    method = AdaptiveCollecting(PAPER, DEMAND)
    first, *rest = sent(method.handle(CollectStarted(0.0)), "y", "t")
    (more,) = sent(method.handle(Arrived(0.5, first.hop)), "y", "t")
    assert more.piece.start == rest[-1].piece.end


def test_an_intermediate_sends_what_is_staged_before_what_it_has_and_deletes_it_at_once():
    method = AdaptiveCollecting(PAPER, DEMAND)
    started = method.handle(CollectStarted(0.0))
    (relayed, *_), own = sent(started, "x", "y"), sent(started, "y", "t")
    assert sent(method.handle(Arrived(0.5, relayed.hop)), "y", "t") == []  # bytes of one second are in flight
    (on,) = sent(method.handle(Arrived(0.6, own[0].hop)), "y", "t")
    assert on.piece == relayed.piece
    for hop in own[1:]:
        method.handle(Arrived(0.7, hop.hop))
    assert kinds(method.handle(Arrived(0.8, on.hop)), Drop) == [Drop("y", relayed.piece)]


def test_rationale_names_the_relay_and_both_durations():
    method = AdaptiveCollecting(PAPER, DEMAND)
    method.handle(CollectStarted(0.0))
    assert method.rationale == "over y: 333 s instead of 1e+03 s direct"


def test_direct_is_used_and_reported_if_no_relay_is_faster():
    even = network(("x", "t", 1), ("y", "t", 1), ("x", "y", 1))
    method = AdaptiveCollecting(even, DEMAND)
    sends = kinds(method.handle(CollectStarted(0.0)), Send)
    assert {send.sink for send in sends} == {"t"}
    assert method.rationale == "direct, 1e+03 s: no path over other hosts is 3% faster"


def test_pieces_go_several_ways_in_proportion_to_what_each_still_has_to_carry():
    """Pr[y] (3.3): z gets bytes from r, and sends on to u and v, three times as much to v."""
    ways = network(("r", "z", 8), ("z", "u", 2), ("z", "v", 6), ("u", "t", 2), ("v", "t", 6))
    chosen: Counter[str] = Counter()
    for seed in range(400):
        method = AdaptiveCollecting(ways, Demand((File("a", 800 * MB, ("r",), ("t",)),)), seed)
        first, *_ = method.handle(CollectStarted(0.0))
        (on,) = (send for send in method.handle(Arrived(0.1, first.hop)) if send.source == "z")
        chosen[on.sink] += 1
    assert chosen["v"] / chosen["u"] == pytest.approx(3, rel=0.25)


def test_plans_are_made_every_twentieth_of_the_time_and_every_fifteen_seconds_at_least():
    (wake,) = kinds(AdaptiveCollecting(PAPER, DEMAND).handle(CollectStarted(100.0)), CollectWake)
    assert wake.at == 115
    small = Demand((File("a", 100 * MB, ("x",), ("t",)), File("b", 100 * MB, ("y",), ("t",))))
    (wake,) = kinds(AdaptiveCollecting(PAPER, small).handle(CollectStarted(100.0)), CollectWake)
    assert wake.at == pytest.approx(100 + 33.3 / 20, abs=0.01)


def test_period_can_be_set():
    (wake,) = kinds(AdaptiveCollecting(PAPER, DEMAND, period=60.0).handle(CollectStarted(0.0)), CollectWake)
    assert wake.at == 60


def drive(
    method: AdaptiveCollecting, rates: dict[tuple[str, str], float], seconds: float
) -> dict[tuple[str, str], int]:
    """Move this many MB/s over each pair; the bytes handed out in the last second go to each."""
    queues: defaultdict[tuple[str, str], list[tuple[float, Send]]] = defaultdict(list)
    free: defaultdict[tuple[str, str], float] = defaultdict(float)
    handed: Counter[tuple[str, str]] = Counter()
    wake = 0.0

    def act(now: float, actions) -> None:
        nonlocal wake
        for action in actions:
            if isinstance(action, Send):
                pair = action.source, action.sink
                free[pair] = max(now, free[pair]) + action.piece.size / MB / rates[pair]
                queues[pair].append((free[pair], action))
                handed[pair] += action.piece.size if now > seconds - 1 else 0
            elif isinstance(action, CollectWake):
                wake = action.at
            assert not isinstance(action, Cancel)

    act(0.0, method.handle(CollectStarted(0.0)))
    while True:
        ends, pair = min((queue[0][0], pair) for pair, queue in queues.items() if queue)
        if min(ends, wake) > seconds:
            return dict(handed)
        if wake < ends:
            act(wake, method.handle(CollectTick(wake)))
        else:
            act(ends, method.handle(Arrived(ends, queues[pair].pop(0)[1].hop)))


def test_measurements_change_the_plan():
    """x -> y carries half of the expected rate, and x -> t half as much again."""
    method = AdaptiveCollecting(PAPER, DEMAND)
    drive(method, {("x", "t"): 1.5, ("y", "t"): 5.0, ("x", "y"): 1.0}, 31.0)
    method.handle(CollectTick(31.0))
    assert method._plan.seconds == pytest.approx(1000 / 2.5 - 31, rel=0.02)
    seen = method._estimates
    assert seen.capacity(("x", "y")) == pytest.approx(1 * MB, rel=0.02)
    assert seen.capacity(("x", "t")) == pytest.approx(1.5 * MB, rel=0.02)
    assert seen.capacity(("y", "t")) == pytest.approx(5 * MB, rel=0.02)


def test_a_pair_that_fails_rests_and_its_pieces_go_elsewhere():
    method = AdaptiveCollecting(PAPER, DEMAND)
    hop = sent(method.handle(CollectStarted(0.0)), "x", "y")[0]
    method.handle(HopFailed(5.0, hop.hop, "refused"))
    (wake,) = kinds(method.handle(HopMoved(5.1, 1, 0)), CollectWake) or [None]
    assert wake is None or wake.at < 7
    assert sent(method.handle(Arrived(5.2, sent([hop], "x", "y")[0].hop + 1)), "x", "y") == []


def test_pieces_staged_at_a_host_that_dies_come_from_their_origin_again():
    method = AdaptiveCollecting(PAPER, DEMAND)
    started = method.handle(CollectStarted(0.0))
    for hop in sent(started, "x", "y"):
        method.handle(Arrived(1.0, hop.hop))
    small = Demand((File("a", 10 * MB, ("x",), ("t",)),))
    method = AdaptiveCollecting(PAPER, small)
    relayed = sent(method.handle(CollectStarted(0.0)), "x", "y")
    method.handle(Arrived(1.0, relayed[0].hop))
    method.handle(Gone(2.0, "y", "it died"))
    assert method.ledger.staged["y"] == set()
    left = {send.hop for send in method.ledger.running.values()}
    while left:
        actions = method.handle(Arrived(3.0, left.pop()))
        left |= {send.hop for send in kinds(actions, Send)}
        assert {send.sink for send in kinds(actions, Send)} <= {"t"}
    assert actions[-1] == CollectDone()


def test_loss_of_the_only_holder_gives_up_after_all_other_files():
    method = AdaptiveCollecting(PAPER, Demand((File("a", 9 * MB, ("x",), ("t",)), File("b", 9 * MB, ("y",), ("t",)))))
    method.handle(CollectStarted(0.0))
    actions = method.handle(Gone(1.0, "x", "it died"))
    while not kinds(actions, CollectGiveUp):
        actions = method.handle(Arrived(2.0, next(iter(method.ledger.running))))
    assert actions[-1] == CollectGiveUp("a cannot reach t: it died")
    assert method.ledger.missing("b", "t") == []


def test_it_goes_on_while_another_holder_lives():
    both = Demand((File("a", 100 * MB, ("x", "y"), ("t",)),))
    method = AdaptiveCollecting(PAPER, both)
    method.handle(CollectStarted(0.0))
    assert kinds(method.handle(Gone(1.0, "x", "it died")), CollectGiveUp) == []
    assert {send.source for send in method.ledger.running.values()} == {"y"}


def test_it_gives_up_when_the_destination_is_gone():
    method = AdaptiveCollecting(PAPER, DEMAND)
    method.handle(CollectStarted(0.0))
    assert method.handle(Gone(1.0, "t", "it died"))[-1] == CollectGiveUp("a cannot reach t: it died")


def test_no_more_is_staged_at_a_host_than_it_lends():
    method = AdaptiveCollecting(network(("x", "t", 1), ("y", "t", 5), ("x", "y", 2), y=1 * MB), DEMAND)
    hops = sent(method.handle(CollectStarted(0.0)), "x", "y")
    assert method.ledger.occupied("y") <= 1 * MB
    for hop in hops:
        assert sent(method.handle(Arrived(0.5, hop.hop)), "x", "y") == []
        assert method.ledger.peak["y"] <= 1 * MB


def test_a_host_that_lends_next_to_nothing_relays_nothing():
    method = AdaptiveCollecting(network(("x", "t", 1), ("y", "t", 5), ("x", "y", 2), y=10_000), DEMAND)
    assert sent(method.handle(CollectStarted(0.0)), "x", "y") == []


def test_a_host_that_is_full_gets_no_more_than_it_had():
    method = AdaptiveCollecting(PAPER, DEMAND)
    hops = sent(method.handle(CollectStarted(0.0)), "x", "y")
    method.handle(Arrived(0.2, hops[0].hop))
    method.handle(Arrived(0.3, hops[1].hop))
    there = method.ledger.occupied("y")
    for hop in list(method.ledger.running.values()):
        if hop.sink == "y":
            there = method.ledger.occupied("y") - hop.piece.size
            method.handle(HopFailed(0.5, hop.hop, "disk full", HopFault.SINK))
    assert method.ledger.occupied("y") <= there
    method.handle(CollectTick(20.0))
    assert method.ledger.occupied("y") <= there


def test_unplanned_pieces_go_to_the_destination_near_the_end():
    """final_computation (3.4): everything arrives within a period, and y holds more than the plan knew."""
    method = AdaptiveCollecting(PAPER, Demand((File("a", 1 * MB, ("x",), ("t",)), File("b", 1 * MB, ("y",), ("t",)))))
    method.handle(CollectStarted(0.0))
    method._dispatch._left["y", "t"].clear()
    hop = next(send for send in method.ledger.running.values() if (send.source, send.sink) == ("y", "t"))
    assert {send.sink for send in sent(method.handle(Arrived(0.1, hop.hop)), "y", "t")} <= {"t"}
    while method.ledger.running:
        actions = method.handle(Arrived(0.5, next(iter(method.ledger.running))))
    assert actions[-1] == CollectDone()


def test_a_file_without_a_byte_gets_there_too():
    over = network(("x", "y", 1), ("y", "t", 1))
    method = AdaptiveCollecting(over, Demand((File("empty", 0, ("x",), ("t",)),)))
    (first,) = kinds(method.handle(CollectStarted(0.0)), Send)
    assert first.piece == Piece("empty", 0, 0)
    (second,) = kinds(method.handle(Arrived(1.0, first.hop)), Send)
    assert second.sink == "t"
    assert method.handle(Arrived(2.0, second.hop))[-1] == CollectDone()


def test_missing_link_to_the_destination_gives_up_at_once():
    lost = network(("x", "y", 1), ("t", "y", 1))
    method = AdaptiveCollecting(lost, Demand((File("a", 1, ("x",), ("t",)),)))
    assert kinds(method.handle(CollectStarted(0.0)), CollectGiveUp) == [
        CollectGiveUp("a cannot reach t: no usable link leads there")
    ]


def test_budget_is_refused():
    with pytest.raises(UsageError):
        AdaptiveCollecting(PAPER, replace(DEMAND, budget=1.0))


def test_a_file_that_comes_later_is_sent_later():
    demand = Demand((File("a", 10 * MB, ("x",), ("t",), available=5.0),))
    method = AdaptiveCollecting(PAPER, demand)
    assert method.handle(CollectStarted(100.0)) == [CollectWake(105.0)]
    assert kinds(method.handle(CollectTick(105.0)), Send)


def silent(events: list, until: float) -> dict[type, float]:
    """Let no byte come over the only link; return when its first hop is cancelled, and when the method gives up."""
    method = AdaptiveCollecting(network(("x", "t", 1)), Demand((File("a", 10 * MB, ("x",), ("t",)),)))
    seen: dict[type, float] = {}
    alarm = inf
    while min([alarm, *(event.at for event in events)]) < until:
        if events and events[0].at <= alarm:
            event = events.pop(0)
        else:
            event, alarm = CollectTick(alarm), inf
        for action in method.handle(event):
            if isinstance(action, CollectGiveUp) or (isinstance(action, Cancel) and action.hop == 1):
                seen.setdefault(type(action), event.at)
            alarm = action.at if isinstance(action, CollectWake) else alarm
    return seen


def test_a_link_that_waits_for_this_machine_has_not_stalled():
    seen = silent([CollectStarted(0.0)], 1500.0)
    assert seen[Cancel] < 61
    assert CollectGiveUp in seen
    waits = [LinkHeld(6.0, "x", "t"), LinkHeld(1000.0, "x", "t", over=True)]
    seen = silent([CollectStarted(0.0), *waits], 1100.0)
    assert 1010 < seen[Cancel] < 1090, "a server that sends nothing after the wait has stalled"
    assert CollectGiveUp not in seen
