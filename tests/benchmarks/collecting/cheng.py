"""Cheng's figures 5 to 7, run by run: makespan, storage at bistros, throughput of other people's traffic."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from statistics import fmean
from typing import Any, NamedTuple

from coalloc.collect.methods import Method, make
from coalloc.collect.methods.actions import Action, CollectGiveUp, CollectWake
from coalloc.collect.methods.events import CollectStarted, Event
from coalloc.collect.simulation import SimulationRecord, simulate
from coalloc.planner import Demand, Network
from tests.benchmarks.collecting.uploads import LOADS, PROBES, measured, weather, world

__all__ = ["DIRECT", "METHODS", "RELAYED", "SENDERS", "SHOWN", "UNEVEN", "Case", "Run", "cases", "run", "storage"]

STEP, UNIT = 8.0, 64 * 1024
"""Seconds of a time unit, and bytes of a data unit."""
TABLED: Mapping[str, Any] = {"step": STEP, "unit": UNIT}
DIRECT: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "all-at-once": ("all-at-once", {}),
    "one-by-one": ("one-by-one", {}),
    "spread-in-time": ("spread-in-time", {"group": 2, "slot": 240.0}),
    "concurrent-4": ("concurrent", {"group": 4}),
}
RELAYED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "best-path": ("best-path", {}),
    "path-sync-100": ("path-sync", {"percent": 100, **TABLED}),
    "path-sync-95": ("path-sync", {"percent": 95, **TABLED}),
    "path-delay": ("path-delay", TABLED),
    "path-sync-95, no access": ("path-sync", {"percent": 95, "limits": False, **TABLED}),
    "path-delay, no access": ("path-delay", {"limits": False, **TABLED}),
    "adaptive": ("adaptive", {}),
}
LOOSE: Mapping[str, tuple[str, Mapping[str, Any]]] = {"path-sync-80": ("path-sync", {"percent": 80, **TABLED})}
METHODS = {**DIRECT, **RELAYED, **LOOSE}
"""As tables name them: the method, and what it is told. Without access it is the paper's own model, to the letter: no
limit to what the destination takes in at once."""

UNEVEN = 0.35
"""Of TCP where it matters: two connections in three then have 0.7 to 1.4 times what is fair."""
SHOWN = (24, 72, 120)
"""Loads of tables that cannot have all."""
SENDERS = (1, 2, 3, 4)
"""Stub domains from which all traffic over a peering point comes, where it does not come from all."""
ALONE = 1000.0
"""Seconds over which other people's traffic is measured without a collection."""


class Absent(Method):
    """Collects nothing for a while."""

    name = "absent"

    def _decide(self, event: Event, ended: Sequence[object]) -> Iterator[Action]:
        yield CollectWake(ALONE) if isinstance(event, CollectStarted) else CollectGiveUp("nothing was to be done")


class Case(NamedTuple):
    """One collection of a world.

    :param load: background flows
    :param unevenness: of TCP: see `weather`
    :param senders: see `world`
    """

    method: str
    load: int
    seed: int
    unevenness: float = 0.0
    senders: int = 0
    probes: int = PROBES


class Run(NamedTuple):
    """One collection.

    :param seconds: its makespan
    :param storage: the most that a bistro keeps, over what it holds in the beginning; the mean of all bistros but the
        destination. What has been acknowledged elsewhere is not kept.
    :param background: throughput of other people's TCP meanwhile, over what it is without the collection
    """

    case: Case
    seconds: float
    storage: float
    background: float


def cases(seeds: int) -> list[Case]:
    """All that the tables show; those of a world side by side, as it is measured before."""
    worlds = [(seed, load) for seed in range(1, seeds + 1) for load in LOADS]
    plain = [
        Case(method, load, seed, unevenness)
        for seed, load in worlds
        for unevenness in ((0.0, UNEVEN) if load in SHOWN else (0.0,))
        for method in (*DIRECT, *RELAYED, *(LOOSE if unevenness else ()))
    ]
    crowded = [
        Case(method, load, seed, senders=senders)
        for seed, load in worlds
        if load in (min(SHOWN), max(SHOWN))
        for senders in SENDERS
        for method in ("all-at-once", "path-sync-95")
    ]
    return plain + crowded


def run(case: Case) -> Run:
    """Carry it out, in virtual time."""
    here = world(case.seed, case.load, case.senders)
    known = measured(here, case.probes)
    record = _carried_out(_made(case, known, here.demand), case)
    if record.outcome != "done":
        raise RuntimeError(f"{case}: {record.outcome}")
    alone = _throughput(_carried_out(Absent(known, here.demand), case))
    return Run(case, record.seconds, storage(here.demand, record), _throughput(record) / alone if alone else 1.0)


def _made(case: Case, network: Network, demand: Demand) -> Method:
    name, parameters = METHODS[case.method]
    return make(name, network, demand, seed=case.seed, **parameters)


def _carried_out(method: Method, case: Case) -> SimulationRecord:
    here = world(case.seed, case.load, case.senders)
    return simulate(method, here.underlay, weather(here, 0, case.unevenness), report_every=inf, fast=True)


def _throughput(record: SimulationRecord) -> float:
    return sum(record.background.values()) / record.seconds


def storage(demand: Demand, record: SimulationRecord) -> float:
    """See `Run`: the sum of the most that each keeps, over the sum of what all hold in the beginning."""
    return fmean(_most(demand, record, file.holders[0]) for file in demand.files) / fmean(
        file.size for file in demand.files
    )


def _most(demand: Demand, record: SimulationRecord, host: str) -> float:
    """The most bytes that a host keeps at once, its own included."""
    own = {file.name: file.size for file in demand.files if file.holders == (host,)}
    changes = [
        (hop.ended, -hop.send.piece.size)
        for hop in record.hops
        if hop.send.source == host and hop.outcome == "arrived" and hop.send.piece.file in own
    ]
    before = 0
    for at, kept in record.staged.get(host, ()):
        changes.append((at, kept - before))
        before = kept
    most = now = sum(own.values())
    for _, change in sorted(changes):  # at the same moment, what goes goes first
        now += change
        most = max(most, now)
    return most
