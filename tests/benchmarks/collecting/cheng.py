"""The runs behind Cheng's figures 5 to 7: makespan, storage at the hosts (bistros), throughput of other traffic."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from statistics import fmean
from typing import Any, NamedTuple

from coalloc.collect.methods import Method, make
from coalloc.collect.methods.actions import Action, CollectGiveUp, CollectWake
from coalloc.collect.methods.events import CollectStarted, Event
from coalloc.collect.simulation import SimulationRecord, simulate
from coalloc.planner import Demand, Network
from tests.benchmarks.collecting.uploads import LOADS, PROBES, measured, upload_scenario, weather

__all__ = [
    "COMMON",
    "DIRECT",
    "METHODS",
    "RELAYED",
    "SENDERS",
    "SHOWN",
    "TABLED_METHODS",
    "UNEVEN",
    "UNITS",
    "Case",
    "Run",
    "cases",
    "run",
    "storage",
]

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
"""Methods by their names in the tables: the name of the method and its parameters. Those with "no access" plan with
the paper's exact model, which does not limit the rate at which the destination receives."""

UNEVEN = 0.35
"""Unevenness of TCP (see `weather`): two connections in three then have 0.7 to 1.4 times the fair share."""
SHOWN = (24, 72, 120)
"""Loads that are shown in tables without room for all of them."""
SENDERS = (1, 2, 3, 4)
"""Numbers of stub domains that send all traffic over a peering point, in the runs in which not all of them do."""
MANY, FEWER = 5, 3
"""How many times more networks the few cases have that are repeated in many, and how many networks at most those on
measurements and data units have."""
COMMON = ("all-at-once", "path-sync-95", "path-sync-100", "best-path", "path-delay")
"""Methods that are repeated in many networks."""
TABLED_METHODS = ("path-sync-100", "path-sync-95", "path-delay", "path-sync-80")
"""Methods that follow a timetable in data units."""
UNITS = (16 * 1024, 256 * 1024)
"""Data units besides `UNIT`."""
ALONE = 1000.0
"""Seconds for which background traffic is measured without a collect job."""


class Absent(Method):
    """A method that collects nothing and gives up after `ALONE` seconds."""

    name = "absent"

    def _decide(self, event: Event, ended: Sequence[object]) -> Iterator[Action]:
        yield CollectWake(ALONE) if isinstance(event, CollectStarted) else CollectGiveUp("nothing was to be done")


class Case(NamedTuple):
    """One collect job in a scenario.

    :param load: number of background flows
    :param unevenness: unevenness of TCP: see `weather`
    :param senders: see `upload_scenario`
    :param probes: measurements of each pair
    :param told: number of background flows while pairs were measured, if other than `load`; -1 for `load`
    :param unit: bytes of a data unit, for methods that plan in such units
    """

    method: str
    load: int
    seed: int
    unevenness: float = 0.0
    senders: int = 0
    probes: int = PROBES
    told: int = -1
    unit: int = UNIT


class Run(NamedTuple):
    """The result of one collect job.

    :param seconds: makespan
    :param storage: the most bytes that a bistro stores at once, divided by its own data; over all bistros except the
        destination. A bistro drops bytes when another host has acknowledged them.
    :param background: throughput of background TCP during the job, divided by its throughput without the job
    """

    case: Case
    seconds: float
    storage: float
    background: float


def cases(seeds: int) -> list[Case]:
    """Return all cases of the tables, each once. Cases of one scenario are adjacent, so that it is measured once."""
    scenarios = [(seed, load) for seed in range(1, seeds + 1) for load in LOADS]
    plain = [
        Case(method, load, seed, unevenness)
        for seed, load in scenarios
        for unevenness in ((0.0, UNEVEN) if load in SHOWN else (0.0,))
        for method in (*DIRECT, *RELAYED, *(LOOSE if unevenness else ()))
    ]
    crowded = [
        Case(method, load, seed, senders=senders)
        for seed, load in scenarios
        if load in (min(SHOWN), max(SHOWN))
        for senders in SENDERS
        for method in ("all-at-once", "path-sync-95")
    ]
    more = [Case(method, max(SHOWN), seed) for seed in range(seeds + 1, MANY * seeds + 1) for method in COMMON]
    found = dict.fromkeys([*plain, *crowded, *more, *_sensitive(min(seeds, FEWER))])
    return sorted(found, key=lambda case: (case.seed, case.load, case.senders, case.told))


def _sensitive(seeds: int) -> list[Case]:
    """Return the cases with measurements under other traffic, and with other data units."""
    plain = [Case(method, SHOWN[1], seed) for seed in range(1, seeds + 1) for method in TABLED_METHODS]
    told = [case._replace(told=load) for case in plain for load in (min(SHOWN), max(SHOWN))]
    return [*plain, *told, *(case._replace(unit=unit) for case in plain for unit in UNITS)]


def run(case: Case) -> Run:
    """Carry out a case in virtual time."""
    here = upload_scenario(case.seed, case.load, case.senders)
    before = upload_scenario(case.seed, case.load if case.told < 0 else case.told, case.senders)
    known = measured(before, case.probes)
    record = _carried_out(_made(case, known, here.demand), case)
    if record.outcome != "done":
        raise RuntimeError(f"{case}: {record.outcome}")
    alone = _throughput(_carried_out(Absent(known, here.demand), case))
    return Run(case, record.seconds, storage(here.demand, record), _throughput(record) / alone if alone else 1.0)


def _made(case: Case, network: Network, demand: Demand) -> Method:
    name, parameters = METHODS[case.method]
    units = {"unit": case.unit} if "unit" in parameters else {}
    return make(name, network, demand, seed=case.seed, **{**parameters, **units})


def _carried_out(method: Method, case: Case) -> SimulationRecord:
    here = upload_scenario(case.seed, case.load, case.senders)
    return simulate(method, here.underlay, weather(here, 0, case.unevenness), report_every=inf, fast=True)


def _throughput(record: SimulationRecord) -> float:
    return sum(record.background.values()) / record.seconds


def storage(demand: Demand, record: SimulationRecord) -> float:
    """Return the storage of a `Run`: the sum of the bistros' highest stored bytes, divided by the sum of their data."""
    return fmean(_most(demand, record, file.holders[0]) for file in demand.files) / fmean(
        file.size for file in demand.files
    )


def _most(demand: Demand, record: SimulationRecord, host: str) -> float:
    """Return the most bytes that a host stores at once, including its own data."""
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
    for _, change in sorted(changes):  # at the same moment, bytes that leave come first
        now += change
        most = max(most, now)
    return most
