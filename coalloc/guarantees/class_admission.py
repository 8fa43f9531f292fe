"""Admission of classes of files that must arrive at a rate, by the rates of the first seconds. Pure.

A class has a part of its rate for each set of servers that hold some of its files: the part of its bytes that only they
have. It is promised if each set carries its part, beside the parts of the classes before it.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from coalloc.guarantees.admission import CONFIDENCE
from coalloc.guarantees.first_seconds import ReadingErrors, forecast_from_mean, mean_of_latest
from coalloc.guarantees.groups import PathGroup, joint_rates
from coalloc.guarantees.samples import LENGTH, PathSamples

__all__ = ["ClassNeed", "ClassOutlook", "admit_classes"]

ERRORS = ReadingErrors()


class ClassNeed(NamedTuple):
    """The need of a class.

    :param rate: bytes per second
    :param left: bytes that are missing, by the servers that hold them; none if it is complete
    """

    rate: float
    left: Mapping[tuple[str, ...], int]


class ClassOutlook(NamedTuple):
    """The outlook for the rate of a class until its end.

    :param chance: probability that the class keeps its rate
    :param possible: the highest rate that can be promised, in bytes per second
    """

    chance: float
    possible: float


def admit_classes(needs: Sequence[ClassNeed], paths: Mapping[str, PathSamples]) -> list[ClassOutlook | None]:
    """Return the outlook of each class; None while too little is known about its servers.

    :param needs: the classes, those with precedence first
    :param paths: what the servers have delivered so far
    """
    loads = dict.fromkeys(paths, 0.0)
    return [_outlook(need, paths, loads) for need in needs]


def _outlook(need: ClassNeed, paths: Mapping[str, PathSamples], loads: dict[str, float]) -> ClassOutlook | None:
    """Return the outlook of one class, and add its rate to the loads of its servers."""
    total, chance, possible = sum(need.left.values()), 1.0, inf
    parts = {hosts: need.rate * left / total for hosts, left in need.left.items() if left}
    for hosts, part in parts.items():
        known = [PathGroup(host, [paths[host]]) for host in hosts if host in paths]
        forecast = forecast_from_mean(joint_rates(known, LENGTH), LENGTH, total / need.rate) if known else None
        if forecast is None:
            return None
        load = sum(loads[group.name] for group in known)
        chance = min(chance, forecast.chance(load + part, ERRORS))
        room = max(0.0, forecast.promise(CONFIDENCE, ERRORS) - load)
        possible = min(possible, room * need.rate / part)
    for hosts, part in parts.items():
        _load([host for host in hosts if host in paths], part, paths, loads)
    return ClassOutlook(chance, possible)


def _load(hosts: Sequence[str], part: float, paths: Mapping[str, PathSamples], loads: dict[str, float]) -> None:
    """Divide a part among its servers, in proportion to their rates."""
    rates = {host: mean_of_latest(joint_rates([PathGroup(host, [paths[host]])], LENGTH), LENGTH) for host in hosts}
    total = sum(rates.values())
    for host, rate in rates.items():
        loads[host] += part * (rate / total if total else 1 / len(rates))
